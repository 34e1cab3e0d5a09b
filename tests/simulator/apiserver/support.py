"""Objects for the API server stand-in."""

from typing import Any, TypeAlias

from tests.services import building

Json: TypeAlias = dict[str, Any]
PHYSICAL = building.AF_NLB0


def function(name: str = "nlb0", **spec: Any) -> Json:
    usual = building.function(name, "af")
    return usual | {"spec": usual["spec"] | spec}


def pod(name: str = "p", resource: str = "", count: object = 1, **spec: Any) -> Json:
    container: Json = {"name": "c", "image": "reg/app:1"}
    if resource:
        container["resources"] = {"limits": {resource: count}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container]} | spec,
    }


def node_with(name: str, amounts: dict[str, object]) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"capacity": amounts, "allocatable": amounts},
    }
