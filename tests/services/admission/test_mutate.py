"""What becomes of a pod, rule by rule: rewritten, left alone, or refused with a message."""

import json
from typing import Any

import pytest

from services.admission.mutate import MAX_POD_UNITS, Patched, Policy, Refused, Unchanged, mutate
from services.admission.patch import read_note
from services.pods.pod import decode_pod
from services.pods.reasons import ReviewReason
from services.process.errors import InvalidReview
from tests.services.building import (
    KNOWN,
    NLB3,
    REGION,
    STRATIX,
    USUAL,
    Object,
    accelerator,
    container,
    decode,
    deprecated,
    first,
    function,
    index,
    judge,
    mutated,
    note_of,
    pod,
    refused,
    region,
)

NOTE = "accelbind.dev/requested"
NAMESPACE = KNOWN.namespace("default")
OURS = "fpga.intel.com/"


def ours(**counts: Any) -> Object:
    """Limits by the last part of the name, `_` for `-`."""
    return {OURS + name.replace("_", "-"): count for name, count in counts.items()}


# The note of what was requested


@pytest.mark.parametrize(
    "note",
    ["", "null", '{"app":1}', "[" * 100_000, '{"app":{"\u20ac":1}}', None],
    ids=lambda note: str(note)[:20],
)
def test_a_note_in_another_form_is_replaced(note: str | None) -> None:
    before = pod(container("app", ours(nlb0="1")), annotations={NOTE: note, "a": "b"})
    after = mutated(before)
    assert note_of(after) == {"app": ours(nlb0=1)}
    assert after["metadata"]["annotations"]["a"] == "b"


# Refused pods


@pytest.mark.parametrize(("names", "counts"), [(512, True), (513, False)])
def test_a_note_with_more_names_than_a_pod_can_have_counts_for_nothing(
    names: int, *, counts: bool
) -> None:
    half = {f"fpga.intel.com/n{n}": 1 for n in range(256)}
    noted = {"a": half, "b": half | dict.fromkeys(["more"] if names > 512 else [], 1)}
    made = read_note(decode(pod(container("a"), annotations={NOTE: json.dumps(noted)})))
    assert made == (noted if counts else {})


def test_many_full_containers_fit_into_a_pod_and_no_unit_more() -> None:
    full = [container(f"c{n}", {REGION: "2"}) for n in range(MAX_POD_UNITS // 2)]
    assert isinstance(judge(pod(*full)), Unchanged)
    result = refused(pod(*full, container("more", ours(nlb0="1"))))
    assert result.message == (
        'container "more": the pod requests more than 256 accelerators, the limit for all its '
        "containers together; each name counts as one at least"
    )
    assert result.refusals[0].code is ReviewReason.TOO_MANY_UNITS


@pytest.mark.parametrize(
    ("none", "counted"), [(ours(nlb0="0"), 1), (ours(nlb0="0", nlb3="0"), 2), ({REGION: "0"}, 1)]
)
def test_a_name_without_units_counts_as_one(none: Object, counted: int) -> None:
    """Its rewriting takes as much room in the patch."""
    empty = [container(f"c{n}", none) for n in range(MAX_POD_UNITS // counted)]
    assert not isinstance(judge(pod(*empty)), Refused)
    result = refused(pod(*empty, container("more", none)))
    assert result.refusals[0].code is ReviewReason.TOO_MANY_UNITS


def test_requests_may_be_written_in_another_way_than_limits() -> None:
    limits = ours(nlb0="1")
    made = first(mutated(pod(container("app", limits, requests=ours(nlb0="1000m")))))
    assert made["resources"]["requests"] == {REGION: "1"}
    (refusal,) = refused(pod(container("app", limits, requests=ours(nlb0="x")))).refusals
    assert refusal.code is ReviewReason.INVALID_QUANTITY
    assert refusal.text.startswith('container "app": invalid quantity of fpga.intel.com/nlb0: ')


@pytest.mark.parametrize("quantity", ["1", "1.5"])
def test_no_more_than_eight_problems_are_looked_for(quantity: str) -> None:
    many = {f"{OURS}x{n:04}": quantity for n in range(200)}
    for asking in (
        [container("app", many), container("too", many)],
        [container("app", {"cpu": "1"}, requests=many), container("too", many)],
    ):
        result = refused(pod(*asking))
        assert [refusal.subject for refusal in result.refusals] == ["app"] * 8
    result = refused(pod(*[container(f"c{n}", ours(x=quantity)) for n in range(2000)]))
    assert [refusal.subject for refusal in result.refusals] == [f"c{n}" for n in range(8)]


def test_a_quantity_that_can_not_be_read_is_refused() -> None:
    body = json.dumps(pod(container("app", ours(nlb0="@")))).encode().replace(b"@", b"\xff")
    result = mutate(decode_pod(body), NAMESPACE, Policy())
    assert isinstance(result, Refused)
    assert "a quantity can't be read" in result.message


@pytest.mark.parametrize(
    ("env", "problem"),
    [
        (b"[1]", "Expected `object`, got `int` - at `$[0]` in /spec/containers/0/env"),
        (b'[{"name":"FPGA_\xff"}]', ""),
        (b"[" * 100_000 + b"]" * 100_000, ""),
    ],
    ids=["number", "utf-8", "deep"],
)
def test_an_env_that_can_not_be_read_is_refused(env: bytes, problem: str) -> None:
    obj = pod(container("app", ours(nlb0="1"), env=[{"name": "@"}]))
    body = json.dumps(obj).encode().replace(b'[{"name": "@"}]', env)
    with pytest.raises(InvalidReview) as caught:
        mutate(decode_pod(body), NAMESPACE, Policy())
    assert str(caught.value).startswith(f"the pod can't be read: {problem}")


# Warnings


DUPLICATE = ("fpga.intel.com/x is a duplicate of fpga.intel.com/y",)


@pytest.mark.parametrize(
    ("objects", "warnings"),
    [
        (
            [deprecated(function("x", "af"), "use  y\nsoon"), function("y", "af")],
            ("fpga.intel.com/x is deprecated: use y soon",),
        ),
        (
            [deprecated(function("x", "region"), "true"), function("y", "region")],
            ("fpga.intel.com/x is deprecated: use fpga.intel.com/y",),
        ),
        (
            [deprecated(function("x", "region"), "true"), function("y", "af")],
            ("fpga.intel.com/x is deprecated",),
        ),
        ([function(name, "region") for name in "xyz"], DUPLICATE),
        ([region(name) for name in "xyz"], DUPLICATE),
        *[
            ([function("x", "region"), other], ())
            for other in (
                function("y", "af"),
                function("y", "region", afu=NLB3),
                function("y", "region", interface=STRATIX),
                region("y"),
                deprecated(function("y", "region")),
                function("y", "region", namespace="elsewhere"),
            )
        ],
    ],
)
def test_deprecated_and_duplicate_names_are_warned_of(
    objects: list[Object], warnings: tuple[str, ...]
) -> None:
    result = judge(pod(container("app", ours(x="1"))), index(*objects))
    assert isinstance(result, Patched)
    assert result.warnings == warnings


def test_warnings_are_short_and_few() -> None:
    objects = [function("a" * 63, "region"), function("b" * 63, "af"), region("c" * 63)]
    known = index(*[deprecated(each, "x" * 120) for each in objects])
    before = pod(*[container(x * 63, {OURS + y * 63: "1"}) for x, y in ("xa", "yb", "zc")])
    result = judge(before, known)
    assert isinstance(result, Patched)
    assert len(result.warnings) == 4
    assert (
        f"containers {'x' * 19}… (region) and {'y' * 19}… (af): a node runs one mode only"
    ) in result.warnings
    assert all(len(warning) <= 120 for warning in result.warnings)


# Other domains, the audit log, codes


def test_units_need_no_mapping_where_their_domain_is_ours_too() -> None:
    policy = Policy(domains=("fpga.intel.com", "b-com.com"), max_units=3)
    units = "b-com.com/accelerator"
    before = pod(container("app", {units: "2"}))
    assert judge(before, policy=policy) == Unchanged(ReviewReason.ALREADY_PHYSICAL)
    both = pod(container("app", {units: "2"}), container("b", ours(nlb0="1")))
    assert first(mutated(both, policy=policy))["resources"]["limits"] == {units: "2"}
    same = pod(container("app", {units: "1"} | ours(nlb0="1")))
    assert first(mutated(same, policy=policy))["resources"]["limits"] == {units: "1", REGION: "1"}
    result = refused(pod(container("app", {units: "4"})), policy=policy)
    assert "the limit is 3 per container" in result.message
    result = refused(pod(container("app", {"b-com.com/other": "1"})), policy=policy)
    assert "b-com.com/other does not exist in" in result.message


# What LimitRanger set


GPU, GPU_NAME = "nvidia.com/gpu", "accelbind.dev/gpu"
WITH_GPU = index(*USUAL, accelerator("gpu", GPU))


def from_limit_ranger(limits: Object, text: str, *, noted: bool = False) -> tuple[str, ...]:
    """The warnings about a pod in which LimitRanger set such defaults."""
    annotations = {"kubernetes.io/limit-ranger": f"LimitRanger plugin set: {text}"}
    if noted:
        annotations[NOTE] = "{}"
    both = [container(name, limits) for name in ("app", "setup")]
    result = judge(pod(both[0], init=both[1:], annotations=annotations), WITH_GPU)
    assert isinstance(result, (Patched, Unchanged))
    return result.warnings


@pytest.mark.parametrize(
    ("limits", "text", "key", "container"),
    [
        *[
            ({key: "1"}, f"cpu, {key} request for container app; cpu, {key} limit", key, "app")
            for key in (OURS + "nlb0", REGION)
        ],
        ({REGION: "1"}, f"{REGION} limit for init container setup", REGION, "setup"),
        ({GPU_NAME: "1", GPU: "1"}, f"{GPU} limit for container app", GPU, "app"),
        ({GPU_NAME: "1", GPU: "0"}, f"{GPU} limit for container app", GPU, ""),
        ({REGION: "0"}, f"{REGION} limit for container app", REGION, ""),
        ({REGION: "1"}, "cpu limit for container app; nonsense", REGION, ""),
    ],
)
def test_units_that_come_from_a_limit_range_are_warned_of(
    limits: Object, text: str, key: str, container: str
) -> None:
    expected = (f"{key} of container {container} comes from a LimitRange",) if container else ()
    assert from_limit_ranger(limits, text) == expected
    if REGION in limits:  # after an earlier mutation nobody knows whose the units are
        assert from_limit_ranger(limits, text, noted=True) == ()
