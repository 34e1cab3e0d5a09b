from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.mappings.index import build_namespace
from services.mappings.model import Mapping, Mode, Rejected, Resolution, parse, read_entry, reject
from services.process.errors import InvalidMapping
from tests.services.building import (
    AF_NLB0,
    ARRIA,
    NLB0,
    NLB3,
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
    programmed = Resolution(part(REGION), Mode.REGION, ARRIA, NLB0)
    assert parse(function("nlb0", "region")).resolution == programmed
    by_workload = Resolution(part(REGION), Mode.REGIONDEVEL, ARRIA)
    assert parse(region("r", namespace="t")) == Mapping("FpgaRegion", "t", "r", by_workload)


def test_an_object_without_namespace_gets_the_default_one() -> None:
    for metadata in ({}, {"namespace": None}, {"namespace": ""}):
        obj = function("nlb0", "region")
        assert parse(obj | {"metadata": obj["metadata"] | metadata}).namespace == "default"


def test_ids_are_read_in_any_spelling() -> None:
    obj = function(
        "nlb0",
        "af",
        interface="CE489693-98F0-5F33-946D-560708BE108A",
        afu=f" {NLB0.upper()}\n",
    )
    assert parse(obj) == parse(function("nlb0", "af"))


NAME_RULE = (
    "pods can't request a resource of this name: Kubernetes allows at most 63 letters, digits, "
    "'-', '_' and '.', beginning and ending with a letter or digit"
)
PHYSICAL = "this name has the form of a physical name; choose another"
KIND = "kind must be AcceleratorFunction, FpgaRegion or Accelerator"


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (None, "a mapping must be an object"),
        ({}, f"{KIND}, and is missing"),
        ({"kind": []}, f"{KIND}, not of type list"),
        ({"kind": "ConfigMap"}, f'{KIND}, not "ConfigMap"'),
        (
            function("x", "af") | {"apiVersion": "fpga.intel.com/v1"},
            'AcceleratorFunction: apiVersion must be fpga.intel.com/v2, not "fpga.intel.com/v1"',
        ),
        (region("x") | {"metadata": None}, "FpgaRegion: metadata.name is missing or not a string"),
        (
            region("x") | {"metadata": {"name": "x", "namespace": 3}},
            "FpgaRegion x: metadata.namespace must be a string of at most 63 characters",
        ),
        (
            region("x") | {"metadata": {"name": "x", "namespace": "n" * 64}},
            "FpgaRegion x: metadata.namespace must be a string of at most 63 characters",
        ),
        (region("x" * 64), f"FpgaRegion default/{'x' * 64}: {NAME_RULE}"),
        (function("a\nb", "af"), f"AcceleratorFunction default/a\\nb: {NAME_RULE}"),
        (region(f"region-{ARRIA}"), f"FpgaRegion default/region-{ARRIA}: {PHYSICAL}"),
        (region("x") | {"spec": []}, "FpgaRegion default/x: spec is missing or not an object"),
        (
            region("x") | {"spec": {}},
            "FpgaRegion default/x: spec.interfaceId is missing or not a string",
        ),
        (
            region("x") | {"spec": {"interfaceId": ARRIA, "mode": "af"}},
            'FpgaRegion default/x: spec.mode must be regiondevel or left out, not "af"',
        ),
    ],
)
def test_what_can_not_serve_is_refused_with_a_sentence(obj: object, message: str) -> None:
    with pytest.raises(InvalidMapping) as caught:
        parse(obj)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"afuId": None}, "spec.afuId is missing or not a string"),
        ({"mode": None}, "spec.mode must be af or region, and is missing"),
        # what the public pattern ^af|region$ lets through
        ({"mode": "afoo"}, 'spec.mode must be af or region, not "afoo"'),
        ({"mode": ["af"]}, "spec.mode must be af or region, not of type list"),
        ({"afuId": "a" * 41}, f'spec.afuId "{"a" * 41}" is not 8 to 40 hex digits'),
        # YAML reads an id of digits as a number
        (
            {"interfaceId": 12345678},
            "spec.interfaceId must be a string, but is a number; put it into quotes",
        ),
    ],
)
def test_a_spec_that_can_not_serve_is_refused(spec: Object, message: str) -> None:
    obj = function("x", "region")
    obj["spec"] |= spec
    with pytest.raises(InvalidMapping) as caught:
        parse(obj)
    assert str(caught.value) == f"AcceleratorFunction default/x: {message}"


def test_an_odd_id_is_fine_where_it_is_in_no_resource_name() -> None:
    assert parse(function("x", "region", afu="a" * 9)).resolution.afu_id == "a" * 9


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
        ("", ""),
        ("True", ""),
        ("False", None),
        (["?"], None),
        (None, None),
        ("x" * 1000, "x" * 119 + "…"),
    ],
)
def test_a_mapping_is_deprecated_by_an_annotation(note: object, kept: str | None) -> None:
    for obj in (function("x", "af"), region("x")):
        assert parse(deprecated(obj, note)).deprecated == kept


def test_a_namespace_is_indexed_by_name_and_function() -> None:
    nlb0, nlb3 = function("nlb0", "region"), function("nlb3", "region", afu=NLB3)
    af, devel = function("nlb0-af", "af"), region("devel")
    mappings = index(nlb0, nlb3, af, devel).namespace("default")
    assert dict(mappings.by_name) == {
        obj["metadata"]["name"]: parse(obj) for obj in (nlb0, nlb3, af, devel)
    }
    assert mappings.functions.keys() == {(ARRIA, NLB0), (ARRIA, NLB3)}
    assert mappings.modes_of(part(REGION)) == {Mode.REGION, Mode.REGIONDEVEL}
    assert mappings.modes_of(part(AF_NLB0)) == {Mode.AF}
    assert not mappings.rejected
    assert len(mappings) == 4


def test_namespaces_do_not_see_each_other() -> None:
    both = index(function("a", "af", namespace="one"), function("b", "af", namespace="two"))
    assert set(both.namespace("one").by_name) == {"a"}
    assert set(both.namespace("two").by_name) == {"b"}
    assert [each.namespace for each in both.namespace("three").tables] == ["three", "three"]
    assert not both.namespace("three").by_name
    assert both.namespaces == ("one", "two")
    assert len(both) == 2


def test_a_function_and_a_region_of_one_name_cancel_each_other_out() -> None:
    mappings = index(function("x", "region"), region("x"), function("y", "af")).namespace("default")
    assert set(mappings.by_name) == {"y"}
    assert set(mappings.modes) == {part(AF_NLB0)}
    assert mappings.functions == {}
    assert mappings.modes_of(part(REGION)) == frozenset()
    assert mappings.rejected == {
        "x": "AcceleratorFunction default/x and FpgaRegion default/x have the same name, so "
        "neither can be used: rename one of them"
    }


def test_of_two_objects_of_one_kind_and_name_the_first_serves() -> None:
    first, second = function("x", "region"), function("x", "af")
    mappings = index(first, second).namespace("default")
    assert dict(mappings.by_name) == {"x": parse(first)}
    assert mappings.rejected == {
        "x": "AcceleratorFunction default/x exists more than once; the first one is used"
    }


def test_the_reason_of_a_refused_object_is_kept() -> None:
    built = index(
        function("good", "af"),
        rejected=[
            Rejected("FpgaRegion", "default", "bad", "it is bad"),
            Rejected("FpgaRegion", "default", "bad", "later news"),
            Rejected("FpgaRegion", "default", "good", "a bad region"),
            Rejected("FpgaRegion", "team", "far", "away"),
        ],
    )
    assert built.namespace("default").rejected == {"bad": "it is bad", "good": "a bad region"}
    assert set(built.namespace("default").by_name) == {"good"}
    assert built.namespace("team").rejected == {"far": "away"}
    assert built.namespaces == ("default", "team")
    assert len(built) == 1


def test_a_namespace_without_mappings_leaves_the_index() -> None:
    before = index(function("a", "af", namespace="one"))
    assert before.with_namespaces([build_namespace("one", [])]).namespaces == ()
    assert before.with_namespaces([build_namespace("two", [])]).namespaces == ("one",)
    bad = build_namespace("one", [Rejected("FpgaRegion", "one", "x", "bad")])
    after = before.with_namespaces([bad])
    assert (after.namespaces, len(after)) == (("one",), 0)
