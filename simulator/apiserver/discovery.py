"""Discovery: versions, groups, resources and health."""

import os

from simulator.apiserver import openapi, wire
from simulator.apiserver.resources import Resource, ResourceTable
from simulator.apiserver.wire import Json

VERSION = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.0+accelbind-stand-in",
    "platform": f"linux/{os.uname().machine}",
}
HEALTH = ("/healthz", "/readyz", "/livez")
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def answer(path: str, table: ResourceTable) -> bytes | None:
    """The body of a discovery path, None where there is nothing."""
    match path.strip("/").split("/"):
        case ["version"]:
            found: Json | None = dict(VERSION)
        case ["api"]:
            found = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["api", "v1"]:
            found = _resource_list("", "v1", table)
        case ["apis"]:
            groups = [_group(name, table) for name in table.groups()]
            found = {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", group] if group in table.groups():
            found = {"kind": "APIGroup", "apiVersion": "v1"} | _group(group, table)
        case ["apis", group, version]:
            found = _resource_list(group, version, table)
        case ["openapi", "v3"]:
            found = openapi.index(table)
        case ["openapi", "v3", *root]:
            found = openapi.document("/".join(root), table)
        case _:
            found = None
    return None if found is None else wire.encode(found) + b"\n"


def _versions(group: str, table: ResourceTable) -> list[str]:
    return sorted({one.version for one in table if one.group == group})


def _group(name: str, table: ResourceTable) -> Json:
    versions = [
        {"groupVersion": f"{name}/{version}", "version": version}
        for version in _versions(name, table)
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resource_list(group: str, version: str, table: ResourceTable) -> Json | None:
    served = [one for one in table if (one.group, one.version) == (group, version)]
    if not served:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": served[0].api_version,
        "resources": [entry for one in served for entry in _entries(one)],
    }


def _entries(resource: Resource) -> list[Json]:
    entry: Json = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _VERBS,
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    below = [
        {
            "name": f"{resource.plural}/{name}",
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": ["create"] if name == "binding" else ["get", "patch", "update"],
        }
        for name in sorted(resource.subresources)
    ]
    return [entry, *below]
