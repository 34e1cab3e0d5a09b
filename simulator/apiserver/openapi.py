"""OpenAPI v3, as much of it as kubectl asks for before it sends an object.

kubectl looks for the parameter `fieldValidation` of a kind's PATCH; where it finds it, it leaves
the validation to the server. Only custom resources have schemas.
"""

from simulator.apiserver.resources import Resource, ResourceTable
from simulator.apiserver.wire import Json

_FIELD_VALIDATION = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}


def index(table: ResourceTable) -> Json:
    """Where the document of each group and version is."""
    versions = sorted({_root(resource) for resource in table})
    return {
        "paths": {
            version: {"serverRelativeURL": f"/openapi/v3/{version}?hash=0"} for version in versions
        }
    }


def document(root: str, table: ResourceTable) -> Json | None:
    """The document of one group and version; None where nothing is served there."""
    served = [resource for resource in table if _root(resource) == root]
    if not served:
        return None
    return {
        "openapi": "3.0.0",
        "info": {"title": "accelbind API server stand-in", "version": "v1.36"},
        "paths": {_path(resource): _operations(resource) for resource in served},
        "components": {"schemas": {_schema_name(one): _schema(one) for one in served}},
    }


def _root(resource: Resource) -> str:
    prefix = f"apis/{resource.group}" if resource.group else "api"
    return f"{prefix}/{resource.version}"


def _path(resource: Resource) -> str:
    where = "namespaces/{namespace}/" if resource.namespaced else ""
    return f"/{_root(resource)}/{where}{resource.plural}/{{name}}"


def _kind(resource: Resource) -> Json:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _operations(resource: Resource) -> Json:
    operation: Json = {
        "parameters": [_FIELD_VALIDATION],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-group-version-kind": _kind(resource),
    }
    return {"patch": operation, "put": operation}


def _schema_name(resource: Resource) -> str:
    group = ".".join(reversed(resource.group.split("."))) if resource.group else "io.k8s.api.core"
    return f"{group}.{resource.version}.{resource.kind}"


def _schema(resource: Resource) -> Json:
    schema = dict(resource.schema or {"type": "object"})
    return schema | {"x-kubernetes-group-version-kind": [_kind(resource)]}
