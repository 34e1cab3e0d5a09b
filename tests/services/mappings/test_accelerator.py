"""Specs of Accelerators: what is read, and what no pod could use."""

from typing import Any

import pytest

from services.mappings.accelerator import Also, Effects, Toleration
from services.mappings.model import parse
from services.process.errors import InvalidMapping
from tests.services.building import accelerator

GPU: dict[str, Any] = {"resource": "nvidia.com/gpu"}
TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
CLASS = "deviceclass.resource.kubernetes.io/gpu"


def test_all_fields_are_read() -> None:
    mapping = parse(
        accelerator(
            "gpu",
            "nvidia.com/mig-1g.10gb",
            target={"resource": "nvidia.com/mig-1g.10gb", "count": 2},
            alsoRequest=[
                {"resource": "rdma/hca", "per": "Container"},
                {"resource": "a.example/b", "count": 3},
            ],
            env=[{"name": "TIER", "value": "small"}],
            nodeSelector={"b/c": "d", "a": ""},
            tolerations=[TAINT | {"operator": "Exists"}, TAINT | {"value": "x"}],
            runtimeClassName="nvidia",
        )
    )
    assert (mapping.resolution.resource, mapping.resolution.count) == ("nvidia.com/mig-1g.10gb", 2)
    assert mapping.resolution.effects == Effects(
        also=(Also("rdma/hca", 1, per_unit=False), Also("a.example/b", 3, per_unit=True)),
        env=(("TIER", "small"),),
        node_selector=(("a", ""), ("b/c", "d")),
        tolerations=(
            Toleration("nvidia.com/gpu", "Exists", "", "NoSchedule"),
            Toleration("nvidia.com/gpu", "Equal", "x", "NoSchedule"),
        ),
        runtime_class="nvidia",
    )


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu", CLASS, "device.accelbind.dev/u55c", "a/B_c"]
)
def test_extended_resources_and_classes_are_targets(resource: str) -> None:
    assert parse(accelerator("x", resource)).resolution.resource == resource


BAD_TARGETS = [
    *("cpu", "memory", "hugepages-2Mi", "", "/x", "x/", "a/b/c", "A.b/c", "a/" + "b" * 64),
    *("kubernetes.io/x", "example.kubernetes.io/x", "resource.kubernetes.io/x"),
    *("requests.nvidia.com/gpu", "accelbind.dev/x", "fpga.intel.com/x"),
    *("a.example/region-ce48", "a.example/af-x", "a" * 300 + "/" + "b" * 63),
]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        *(({"target": {"resource": each}}, "spec.target.resource") for each in BAD_TARGETS),
        ({"target": None}, "spec.target is missing"),
        ({"target": {}}, "spec.target.resource is missing"),
        *(
            ({"target": GPU | {"count": each}}, "spec.target.count")
            for each in (0, 1025, True, "0", "1025", "10000", "1.5", "x", 1.5)
        ),
        ({"alsoRequest": [GPU]}, "name a resource twice"),
        ({"alsoRequest": [{"resource": "a/b"}, {"resource": "a/b"}]}, "name a resource twice"),
        ({"alsoRequest": [{"resource": f"a/b{n}"} for n in range(5)]}, "a list of at most 4"),
        ({"alsoRequest": {}}, "a list of at most 4"),
        ({"alsoRequest": ["a/b"]}, "spec.alsoRequest[0] is not an object"),
        ({"alsoRequest": [{"resource": "cpu"}]}, "spec.alsoRequest[0].resource"),
        ({"alsoRequest": [{"resource": "a/b", "per": "Pod"}]}, "must be Unit or Container"),
        ({"env": [{"name": "A", "value": "b"}] * 2}, "sets a variable twice"),
        ({"env": [{"name": "A", "value": "$(B)"}]}, "contains $("),
        ({"env": [{"name": "A", "value": "b" * 1025}]}, "longer than 1024"),
        ({"env": [{"name": "A"}]}, "spec.env[0].value is missing"),
        *(
            ({"env": [{"name": each, "value": ""}]}, "is reserved, as PATH and all")
            for each in ("FPGA_X", "ACCELBIND_X", "ACCELERATOR_X", "NVIDIA_X", "LD_X", "PATH")
        ),
        *(
            ({"env": [{"name": each, "value": ""}]}, "is not the name")
            for each in ("", "1A", "A=", "A" * 64)
        ),
        ({"nodeSelector": []}, "an object of at most 8"),
        ({"nodeSelector": {f"a{n}": "" for n in range(9)}}, "an object of at most 8"),
        ({"nodeSelector": {"a b": ""}}, "is not a label"),
        ({"nodeSelector": {"node-restriction.kubernetes.io/a": ""}}, "is not a label"),
        ({"nodeSelector": {"a": "b c"}}, "no value of a label"),
        ({"nodeSelector": {"a": 1}}, "no value of a label"),
        ({"tolerations": [{"key": "a"}]}, "spec.tolerations[0].effect is missing"),
        ({"tolerations": [{"effect": "NoSchedule"}]}, "spec.tolerations[0].key is missing"),
        *(
            ({"tolerations": [TAINT | {"key": each}]}, "is not a taint")
            for each in ("node-role.kubernetes.io/x", "node.kubernetes.io/x", "", "a b")
        ),
        ({"tolerations": [TAINT | {"effect": "No"}]}, "effect or operator"),
        ({"tolerations": [TAINT | {"operator": "In"}]}, "effect or operator"),
        ({"tolerations": [TAINT | {"operator": "Exists", "value": "x"}]}, "beside Exists"),
        ({"tolerations": [TAINT | {"value": "a b"}]}, "no value of a taint"),
        ({"runtimeClassName": 1}, "not the name of a RuntimeClass"),
        ({"runtimeClassName": "a b"}, "not the name of a RuntimeClass"),
    ],
)
def test_what_no_pod_could_use_is_refused(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidMapping) as caught:
        parse(accelerator("x", "nvidia.com/gpu", **spec))
    assert "Accelerator default/x: " in str(caught.value)
    assert problem in str(caught.value)
