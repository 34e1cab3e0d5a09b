"""Names that a pod should not use: there more than once, on their way out, one of two for one."""

import pytest

from services.admission.mutate import Patched
from services.mappings.index import build_index
from services.mappings.model import parse
from tests.services.building import (
    NLB3,
    STRATIX,
    Object,
    container,
    deprecated,
    function,
    index,
    judge,
    pod,
    refused,
    region,
)

LOGICAL = "fpga.intel.com/"


def test_a_name_that_is_there_more_than_once_is_warned_of() -> None:
    again = [parse(function(name, mode)) for name, mode in [("x", "af"), ("x", "region")]]
    other = parse(function("y", "af", afu=NLB3))
    mappings = build_index([*again, other]).namespace("default")
    result = judge(pod(container("app", {LOGICAL + "x": "1", LOGICAL + "y": "1"})), mappings)
    assert isinstance(result, Patched)
    assert result.warnings == (
        (
            "fpga.intel.com/x: AcceleratorFunction default/x exists more than once; "
            "the first one is used"
        ),
    )


def warned(*objects: Object, name: str = "x") -> tuple[str, ...]:
    result = judge(
        pod(container("app", {LOGICAL + name: "1"})), index(*objects).namespace("default")
    )
    assert isinstance(result, Patched)
    return result.warnings


def test_a_deprecated_name_is_warned_of_with_what_its_mapping_says() -> None:
    objects = [deprecated(function("x", "af"), "use  y\nsoon"), function("y", "af")]
    assert warned(*objects) == ("fpga.intel.com/x is deprecated: use y soon",)


def test_of_a_deprecated_name_without_more_to_say_another_one_is_told() -> None:
    old, new = deprecated(function("x", "region"), "true"), function("y", "region")
    assert warned(old, new) == ("fpga.intel.com/x is deprecated: use fpga.intel.com/y",)
    assert warned(old, function("y", "af")) == ("fpga.intel.com/x is deprecated",)


@pytest.mark.parametrize(
    ("other", "meant"), [(function("new", "af"), "new"), (region("r"), "nlb0")]
)
def test_a_deprecated_name_is_not_suggested_where_there_is_another(
    other: Object, meant: str
) -> None:
    known = index(deprecated(function("nlb0", "af")), other).namespace("default")
    result = refused(pod(container("app", {LOGICAL + "nlb1": "1"})), known)
    assert f"did you mean {meant}?" in result.message


def test_a_name_beside_another_one_for_the_same_function_is_a_duplicate() -> None:
    objects = [function("x", "region"), function("y", "region"), function("z", "region")]
    told = ("fpga.intel.com/x is a duplicate of fpga.intel.com/y",)
    assert warned(*objects) == told
    assert warned(*[region(obj["metadata"]["name"]) for obj in objects]) == told


@pytest.mark.parametrize(
    "other",
    [
        function("y", "af"),
        function("y", "region", afu=NLB3),
        function("y", "region", interface=STRATIX),
        region("y"),
        deprecated(function("y", "region")),
        function("y", "region", namespace="elsewhere"),
    ],
)
def test_names_for_different_things_or_deprecated_ones_are_no_duplicates(other: Object) -> None:
    assert warned(function("x", "region"), other) == ()
