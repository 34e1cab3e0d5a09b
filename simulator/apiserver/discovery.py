"""Discovery, and as much of OpenAPI v3 as kubectl asks for before it sends an object.

kubectl looks for the parameter `fieldValidation` of a kind's PATCH; where it finds it, it leaves
the validation to the server.
"""

from simulator.apiserver.resources import Resource, ResourceTable
from simulator.apiserver.wire import Json

VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.0+accelbind-stand-in"}
_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
_FIELD_VALIDATION = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}


def discover(path: str, table: ResourceTable) -> Json | None:  # noqa: PLR0911 - a table of paths
    """What a discovery path answers, None where there is nothing."""
    roots = {_root(resource): resource for resource in table}
    groups = {resource.group: _group(resource.group, table) for resource in table}
    match path.strip("/").split("/"):
        case ["version"]:
            return VERSION
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            found = [groups[name] for name in sorted(groups) if name]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}
        case ["openapi", "v3"]:
            return {"paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}"} for root in roots}}
        case ["openapi", "v3", *root] if "/".join(root) in roots:
            return _openapi("/".join(root), table)
        case root if "/".join(root) in roots:
            served = [one for one in table if _root(one) == "/".join(root)]
            return {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": served[0].api_version,
                "resources": [entry for one in served for entry in _entries(one)],
            }
    return None


def _root(resource: Resource) -> str:
    return f"apis/{resource.api_version}" if resource.group else "api/v1"


def _group(name: str, table: ResourceTable) -> Json:
    found = {one.api_version: one.version for one in table if one.group == name}
    versions = [{"groupVersion": key, "version": found[key]} for key in sorted(found)]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _entries(resource: Resource) -> list[Json]:
    entry = {"singularName": resource.kind.lower(), "namespaced": resource.namespaced}
    entry |= {"kind": resource.kind, "verbs": _VERBS, "shortNames": resource.short_names}
    names = (f"{resource.plural}/{name}" for name in sorted(resource.subresources))
    return [entry | {"name": name} for name in (resource.plural, *names)]


def _openapi(root: str, table: ResourceTable) -> Json:
    paths: Json = {}
    for one in (one for one in table if _root(one) == root):
        where = "namespaces/{namespace}/" if one.namespaced else ""
        kind = {"group": one.group, "version": one.version, "kind": one.kind}
        operation = {"parameters": [_FIELD_VALIDATION], "x-kubernetes-group-version-kind": kind}
        operation["responses"] = {"200": {"description": "OK"}}
        paths[f"/{root}/{where}{one.plural}/{{name}}"] = {"patch": operation, "put": operation}
    info = {"title": "accelbind API server stand-in", "version": "v1.36"}
    return {"openapi": "3.0.0", "info": info, "paths": paths}
