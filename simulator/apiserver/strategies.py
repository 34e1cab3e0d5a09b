"""What is special about each kind when its objects are created and changed.

The generic path (`writing`) calls these in the order of a real API server: defaults while
decoding, built-in admission, then, after the mutating webhooks, what storing sets, validation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from simulator.apiserver import names, pods, schemas, status, webhook_configs
from simulator.apiserver.resources import (
    DEFINITIONS,
    MUTATING,
    NAMESPACES,
    NODES,
    PODS,
    VALIDATING,
    Resource,
)
from simulator.apiserver.shapes import without_empty
from simulator.apiserver.status import Cause
from simulator.apiserver.wire import Json

Step: TypeAlias = Callable[[Json], None]


def _nothing(_item: Json) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Strategy:
    """The steps of one kind.

    Args:
        default: decodes and fills in defaults; returns the object.
        admit: the built-in admission plugins.
        prepare: what storing a new object sets.
        validate: refuses what may not be stored.
        validate_update: refuses what may not be stored instead of what was; as `validate` if None.
        webhooks: whether webhooks are asked (not about their own configurations).
        returns_deleted: whether a deletion is answered with the object.
        needs_version: whether a PUT must say which version it replaces.
        name_problem: the rule for its names.
    """

    default: Callable[[Json], Json]
    admit: Step = _nothing
    prepare: Step = _nothing
    validate: Step = _nothing
    validate_update: Callable[[Json, Json], None] | None = None
    webhooks: bool = True
    returns_deleted: bool = False
    needs_version: bool = False
    name_problem: Callable[[str], str] = names.subdomain_problem


def _checked(resource: Resource) -> Callable[[Json], Json]:
    def default(item: Json) -> Json:
        if resource.custom:
            return item | {"metadata": without_empty(item["metadata"])}
        return without_empty(item)

    return default


def _prepare_namespace(item: Json) -> None:
    name = item["metadata"]["name"]
    labels = item["metadata"].get("labels") or {}
    item["metadata"]["labels"] = labels | {"kubernetes.io/metadata.name": name}
    item["spec"] = {"finalizers": ["kubernetes"]}
    item["status"] = {"phase": "Active"}


def _default_node(item: Json) -> Json:
    item.setdefault("spec", {})
    node_status = item.setdefault("status", {})
    for name in ("capacity", "allocatable"):
        pods.canonical_amounts(node_status, name, f"status.{name}", "Node")
    if node_status.get("capacity"):
        node_status.setdefault("allocatable", dict(node_status["capacity"]))
    return without_empty(item)


def _for_webhooks(resource: Resource) -> Strategy:
    def default(item: Json) -> Json:
        webhook_configs.set_defaults(item, mutating=resource is MUTATING)
        return without_empty(item)

    return Strategy(
        default,
        validate=lambda item: webhook_configs.validate(item, resource.kind),
        webhooks=False,
    )


def _for_custom(resource: Resource) -> Strategy:
    def validate(item: Json, old: Json | None = None) -> None:
        causes: list[Cause] = schemas.validate(resource.schema or {}, item, old)
        if causes:
            name = item["metadata"].get("name", "")
            raise status.invalid(resource.group, resource.kind, name, causes)

    return Strategy(
        _checked(resource),
        validate=validate,
        validate_update=lambda old, item: validate(item, old),
        needs_version=True,
    )


def _validate_definition(item: Json) -> None:
    causes: list[Cause] = []
    for number, version in enumerate((item.get("spec") or {}).get("versions") or []):
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        where = f"spec.versions[{number}].schema.openAPIV3Schema"
        causes += schemas.rule_problems(schema, where)
    if causes:
        name = item["metadata"].get("name", "")
        raise status.invalid(DEFINITIONS.group, DEFINITIONS.kind, name, causes)


_SPECIAL = {
    PODS.key: Strategy(
        pods.set_defaults,
        admit=pods.admit,
        prepare=pods.prepare,
        validate=pods.validate,
        returns_deleted=True,
    ),
    NODES.key: Strategy(_default_node),
    NAMESPACES.key: Strategy(
        _checked(NAMESPACES),
        prepare=_prepare_namespace,
        returns_deleted=True,
        name_problem=names.label_problem,
    ),
    MUTATING.key: _for_webhooks(MUTATING),
    VALIDATING.key: _for_webhooks(VALIDATING),
    DEFINITIONS.key: Strategy(
        _checked(DEFINITIONS), validate=_validate_definition, webhooks=False, needs_version=True
    ),
}


def strategy_of(resource: Resource) -> Strategy:
    """The strategy of a resource."""
    if found := _SPECIAL.get(resource.key):
        return found
    return _for_custom(resource) if resource.custom else Strategy(_checked(resource))
