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
        also=(Also("rdma/hca", 1, "Container"), Also("a.example/b", 3, "Unit")),
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


@pytest.mark.parametrize(
    ("nulls", "without"),
    [
        (dict.fromkeys(("alsoRequest", "env", "nodeSelector", "tolerations")), {}),
        ({"runtimeClassName": None}, {}),
        ({"nodeSelector": {"a": None}}, {}),
        (
            {"alsoRequest": [{"resource": "b/x", "count": None, "per": None}]},
            {"alsoRequest": [{"resource": "b/x"}]},
        ),
        ({"tolerations": [TAINT | {"operator": None, "value": None}]}, {"tolerations": [TAINT]}),
    ],
)
def test_null_is_as_if_the_field_was_missing(nulls: dict[str, Any], without: Any) -> None:
    """As API servers store it, which drop such fields."""
    assert parse(accelerator("x", "a/x", **nulls)) == parse(accelerator("x", "a/x", **without))


def test_a_claim_template_is_a_target() -> None:
    mapping = parse(accelerator("x", "", target={"claimTemplate": "gpu.pair", "count": "16"}))
    assert mapping.resolution.resource == "ResourceClaimTemplate/gpu.pair"
    assert mapping.resolution.count == 16
    null = accelerator("x", "", target={"claimTemplate": "gpu.pair", "resource": None})
    assert parse(null).resolution.count == 1


BAD_TARGETS = [
    *("cpu", "memory", "hugepages-2Mi", "", "/x", "x/", "a/b/c", "A.b/c", "a/" + "b" * 64),
    *("kubernetes.io/x", "example.kubernetes.io/x", "resource.kubernetes.io/x"),
    *("requests.nvidia.com/gpu", "accelbind.dev/x", "fpga.intel.com/x"),
    *("a.example/region-ce48", "a.example/af-x", "a" * 300 + "/" + "b" * 63),
]


FORM = "that Kubernetes allows there"


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        *(({"target": {"resource": each}}, "spec.target") for each in BAD_TARGETS),
        ({"target": None}, "spec: Object missing required field `target`"),
        ({"env": [{"name": "A", "value": None}]}, "spec.env[0]: Object missing required field"),
        *(
            ({"target": each}, "spec.target: exactly one of resource and claimTemplate must be set")
            for each in ({}, {"claimTemplate": ""}, GPU | {"claimTemplate": "a"})
        ),
        ({"target": {"claimTemplate": "A"}}, f"spec.target.claimTemplate: Expected `str` {FORM}"),
        ({"target": {"claimTemplate": "a", "count": 17}}, "can be 16 at most"),
        *(
            ({"target": GPU | {"count": each}}, "spec.target.count: Expected `int`")
            for each in (0, 1025, True, "0", "1025", "1.5", "x", 1.5)
        ),
        ({"alsoRequest": [GPU]}, "name a resource twice"),
        ({"alsoRequest": [{"resource": f"a/b{n}"} for n in range(5)]}, "of length <= 4"),
        ({"alsoRequest": [{"resource": "cpu"}]}, 'spec.alsoRequest[0]: resource "cpu"'),
        ({"alsoRequest": [{"resource": "a/b", "per": "Pod"}]}, "spec.alsoRequest[0].per"),
        ({"env": [{"name": "A", "value": "b"}] * 2}, "sets a variable twice"),
        ({"env": [{"name": "A", "value": "$(B)"}]}, "contains $("),
        ({"env": [{"name": "A", "value": "b" * 1025}]}, "spec.env[0].value"),
        *(
            ({"env": [{"name": each, "value": ""}]}, "is reserved, as PATH and all")
            for each in ("FPGA_X", "ACCELBIND_X", "ACCELERATOR_X", "NVIDIA_X", "LD_X", "PATH")
        ),
        *(
            ({"env": [{"name": each, "value": ""}]}, f"spec.env[0].name: Expected `str` {FORM}")
            for each in ("", "1A", "A=", "A\n", "A" * 64)
        ),
        ({"nodeSelector": {f"a{n}": "" for n in range(9)}}, "spec.nodeSelector"),
        *(
            ({"nodeSelector": {each: ""}}, f"key in spec.nodeSelector: Expected `str` {FORM}")
            for each in ("a b", "a\n", "node-restriction.kubernetes.io/a")
        ),
        ({"nodeSelector": {"a": "b c"}}, f"spec.nodeSelector[...]: Expected `str` {FORM}"),
        ({"nodeSelector": {"a": 1}}, "spec.nodeSelector[...]: Expected `str`, got `int`"),
        ({"tolerations": [{"key": "a"}]}, "spec.tolerations[0]: Object missing"),
        *(
            (
                {"tolerations": [TAINT | {"key": each}]},
                f"spec.tolerations[0].key: Expected `str` {FORM}",
            )
            for each in ("node-role.kubernetes.io/x", "node.kubernetes.io/x", "", "a b")
        ),
        ({"tolerations": [TAINT | {"effect": "No"}]}, "spec.tolerations[0].effect"),
        ({"tolerations": [TAINT | {"operator": "In"}]}, "spec.tolerations[0].operator"),
        ({"tolerations": [TAINT | {"operator": "Exists", "value": "x"}]}, "beside operator Exists"),
        ({"tolerations": [TAINT | {"value": "a b"}]}, "spec.tolerations[0].value"),
        ({"runtimeClassName": ""}, "spec.runtimeClassName"),
    ],
)
def test_accelerators_that_no_pod_could_use_are_refused(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidMapping) as caught:
        parse(accelerator("x", "nvidia.com/gpu", **spec))
    assert "Accelerator default/x: " in str(caught.value)
    assert problem in str(caught.value)
