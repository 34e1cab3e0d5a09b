from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.mappings.model import Mapping, Mode, Resolution, parse, read_entry, reject
from services.process.errors import InvalidMapping
from tests.services.building import (
    AF_NLB0,
    ARRIA,
    NLB0,
    REGION,
    Object,
    deprecated,
    function,
    index,
    region,
)


def part(resource: str) -> str:
    return resource.removeprefix("fpga.intel.com/")


def test_mappings_stand_for_a_function_or_a_region() -> None:
    af = Resolution(part(AF_NLB0), Mode.AF, ARRIA, NLB0)
    mapping = parse(function("nlb0", "af", namespace="team"))
    assert mapping == Mapping("AcceleratorFunction", "team", "nlb0", af)
    assert mapping.label == "AcceleratorFunction team/nlb0"
    for missing in ("", None):
        obj = region("r") | {"metadata": {"name": "r", "namespace": missing}}
        assert parse(obj).namespace == "default"
    programmed = Resolution(part(REGION), Mode.REGION, ARRIA, NLB0)
    assert parse(function("nlb0", "region")).resolution == programmed
    by_workload = Resolution(part(REGION), Mode.REGIONDEVEL, ARRIA)
    assert parse(region("r", namespace="t")) == Mapping("FpgaRegion", "t", "r", by_workload)


NAME_RULE = (
    "pods can't request a resource of this name: Kubernetes allows at most 63 letters, digits, "
    "'-', '_' and '.', beginning and ending with a letter or digit"
)
PHYSICAL = "this name has the form of a physical name; choose another"
KIND = "kind must be AcceleratorFunction, FpgaRegion or Accelerator"


GOOD_SPEC = function("x", "region")["spec"]
BAD_SPECS: list[tuple[Object, str]] = [
    ({"afuId": None}, "afuId is missing or not a string"),
    # what the public pattern ^af|region$ lets through
    ({"mode": "afoo"}, 'mode must be af or region, not "afoo"'),
    ({"mode": ["af"]}, "mode must be af or region, not of type list"),
    # YAML reads an id of digits as a number
    (
        {"interfaceId": 12345678},
        "interfaceId must be a string, but is a number; put it into quotes",
    ),
]


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (None, "a mapping must be an object"),
        ({}, f"{KIND}, and is missing"),
        ({"kind": "ConfigMap"}, f'{KIND}, not "ConfigMap"'),
        (
            function("x", "af") | {"apiVersion": "fpga.intel.com/v1"},
            'AcceleratorFunction: apiVersion must be fpga.intel.com/v2, not "fpga.intel.com/v1"',
        ),
        (region("x") | {"metadata": None}, "FpgaRegion: metadata.name is missing or not a string"),
        *(
            (
                region("x") | {"metadata": {"name": "x", "namespace": namespace}},
                "FpgaRegion x: metadata.namespace must be a string of at most 63 characters",
            )
            for namespace in (3, "n" * 64)
        ),
        (region("x" * 64), f"FpgaRegion default/{'x' * 64}: {NAME_RULE}"),
        (function("a\nb", "af"), f"AcceleratorFunction default/a\\nb: {NAME_RULE}"),
        (region(f"region-{ARRIA}"), f"FpgaRegion default/region-{ARRIA}: {PHYSICAL}"),
        (region("x") | {"spec": []}, "FpgaRegion default/x: spec is missing or not an object"),
        (
            region("x") | {"spec": {"interfaceId": ARRIA, "mode": "af"}},
            'FpgaRegion default/x: spec.mode must be regiondevel or left out, not "af"',
        ),
        *[
            (
                function("x", "region") | {"spec": GOOD_SPEC | spec},
                f"AcceleratorFunction default/x: spec.{problem}",
            )
            for spec, problem in BAD_SPECS
        ],
    ],
)
def test_unusable_mappings_are_refused_with_a_sentence(obj: object, message: str) -> None:
    with pytest.raises(InvalidMapping) as caught:
        parse(obj)
    assert str(caught.value) == message


@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["apiVersion", "kind", "metadata", "spec", "name", "namespace"]),
                inner | st.sampled_from(["fpga.intel.com/v2", "FpgaRegion", "AcceleratorFunction"]),
                max_size=5,
            )
        ),
        max_leaves=12,
    )
)
def test_no_object_breaks_reading(obj: Any) -> None:
    entry = read_entry(obj)
    if isinstance(entry, Mapping):
        assert parse(obj) == entry
    else:
        with pytest.raises(InvalidMapping) as caught:
            parse(obj)
        assert reject(obj, str(caught.value)) == entry


@pytest.mark.parametrize(
    ("note", "kept"),
    [
        ("use nlb0-v2", "use nlb0-v2"),
        (" use\n nlb0-v2 ", "use nlb0-v2"),
        ("True", ""),
        ("False", None),
        (None, None),
        ("x" * 1000, "x" * 119 + "…"),
    ],
)
def test_a_mapping_is_deprecated_by_an_annotation(note: object, kept: str | None) -> None:
    for obj in (function("x", "af"), region("x")):
        assert parse(deprecated(obj, note)).deprecated == kept


def test_of_two_objects_of_one_kind_and_name_the_first_serves() -> None:
    first, second = function("x", "region"), function("x", "af")
    mappings = index(first, second).namespace("default")
    assert dict(mappings.by_name) == {"x": parse(first)}
    assert mappings.rejected == {
        "x": "AcceleratorFunction default/x exists more than once; the first one is used"
    }
