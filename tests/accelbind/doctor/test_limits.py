"""Forms of LimitRanges and ResourceQuotas, each as a 1.36 API server was seen to apply it."""

from typing import Any

import pytest

from accelbind.doctor.limits import OurResources, quota_lines, range_lines
from accelbind.doctor.model import Line
from services.admission.mutate import Policy
from tests.services.building import REGION

NAMED, LOOKS_PHYSICAL = "fpga.intel.com/nlb0", "accelbind.dev/region-abcdef12"
LOGICAL = [NAMED, LOOKS_PHYSICAL, "accelbind.dev/gpu"]
TARGET, UNIT, TYPED = "example.com/gpu", "b-com.com/accelerator", "device.accelbind.dev/x"
SERVED = [REGION, TARGET, UNIT, TYPED]
POLICY = Policy()
OURS = OurResources(POLICY, (*POLICY.prefixes, UNIT, "device.accelbind.dev/"), frozenset({TARGET}))
RATIO = "maxLimitRequestRatio"
EACH_POD = "refuses each pod of the namespace"
WITHOUT = "refuses each pod without this resource"
REQUESTS = "sets requests without limits"


def item(spec: Any) -> Any:
    return {"metadata": {"namespace": "team-a", "name": "x"}, "spec": spec}


def text(lines: list[Line]) -> str:
    return "; ".join(f"{line.state}: {line.what}" for line in lines)


def limits_of(key: str, *limits: str) -> Any:
    """Limits such as ``max=2 min=1``, of type Container; those of others begin with the type."""
    made = []
    for each in limits:
        words = each.split()
        kind = "Container" if "=" in words[0] else words.pop(0)
        parts = dict(word.split("=") for word in words)
        made.append({"type": kind} | {name: {key: value} for name, value in parts.items()})
    return item({"limits": made})


@pytest.mark.parametrize("key", SERVED)
@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (["default=0"], ""),
        (["default=0 max=2"], ""),
        (["default=0 max=2 min=0"], ""),
        (["default=0 defaultRequest=0"], ""),
        (["default=0", "Pod min=0"], ""),
        (["default=0", "Pod max=2 min=0"], ""),
        (["max=0"], ""),
        (["max=x"], ""),
        (["max=2"], "warning: gives 2"),
        (["max=2 min=1"], "warning: gives 2"),
        (["default=1"], "warning: gives 1"),
        ([f"default=1 max=2 min=1 {RATIO}=1"], "warning: gives 1"),
        (["default=1", "Pod max=2 min=1"], "warning: gives 1"),
        (["default=2", "Pod min=1"], "warning: gives 2"),
        (["min=0"], REQUESTS),
        (["min=1 defaultRequest=1"], REQUESTS),
        (["defaultRequest=0"], REQUESTS),
        ([f"defaultRequest=1 {RATIO}=1"], REQUESTS),
        ([f"{RATIO}=1"], f"{WITHOUT}: {RATIO}"),
        ([f"default=0 {RATIO}=1"], f"{WITHOUT}: {RATIO}"),
        ([f"default=0 max=2 {RATIO}=1"], f"{WITHOUT}: {RATIO}"),
        (["Pod max=2"], f"{WITHOUT}: max"),
        (["Pod min=0"], f"{WITHOUT}: min"),
        ([f"Pod {RATIO}=1"], f"{WITHOUT}: {RATIO}"),
        (["default=0", "Pod min=1"], f"{WITHOUT}: min"),
        (["default=0", f"Pod max=2 {RATIO}=1"], f"{WITHOUT}: {RATIO}"),
        (["default=3", "Pod max=2"], f"{WITHOUT}: max"),
        (["PersistentVolumeClaim max=1 min=1"], ""),
        (["example.com/Other max=1"], ""),
    ],
)
def test_limits_of_resources_that_pods_get(key: str, limits: list[str], words: str) -> None:
    found = text([*range_lines([limits_of(key, *limits)], OURS)])
    state, _, amount = words.rpartition(": gives ")
    if state:
        assert f"gives {amount} to each container by default, added to what its names" in found
        assert "failed" not in found or "Pod" in limits[-1]
    else:
        assert words in found
        assert bool(words) == bool(found)


@pytest.mark.parametrize("key", [*SERVED, NAMED])
@pytest.mark.parametrize(("requests", "is_refused"), [(0, True), (1, True), (2, False)])
def test_requests_and_limits_of_two_limit_ranges_must_agree(
    key: str, requests: int, *, is_refused: bool
) -> None:
    ranges = [limits_of(key, f"defaultRequest={requests}"), limits_of(key, "default=2")]
    found = text([*range_lines(ranges, OURS)])
    assert ("another LimitRange sets limits of 2" in found) == is_refused


@pytest.mark.parametrize("key", LOGICAL)
@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (["default=0"], ""),
        (["PersistentVolumeClaim max=1"], ""),
        (["default=1"], "warning: LimitRange team-a/x, Container: {} gives 1 to each container"),
        (["defaultRequest=0"], REQUESTS),
        *[
            ([each], EACH_POD)
            for each in (
                *("max=2", "max=2 default=0", "default=0 min=0", "min=1", f"{RATIO}=1"),
                *(f"default=1 {RATIO}=1", "Pod max=2", "Pod min=0", f"Pod {RATIO}=1"),
            )
        ],
    ],
)
def test_limits_of_names_that_pods_have_no_more(key: str, limits: list[str], words: str) -> None:
    found = text([*range_lines([limits_of(key, *limits)], OURS)])
    assert words.format(key) in found
    assert bool(words) == bool(found)
    assert "added to" not in found


def test_a_default_counts_for_its_own_namespace() -> None:
    other = limits_of(REGION, "default=0") | {"metadata": {"namespace": "team-b", "name": "y"}}
    lines = [*range_lines([other, limits_of(REGION, "Pod max=2")], OURS)]
    assert WITHOUT in text(lines)


@pytest.mark.parametrize("prefix", ["", "requests.", "limits."])
@pytest.mark.parametrize("key", [*SERVED, *LOGICAL, "nvidia.com/gpu", "count/pods", "cpu"])
def test_quotas_count_requests_of_what_pods_get(key: str, prefix: str) -> None:
    found = text([*quota_lines([item({"hard": {prefix + key: 1}})], OURS)])
    limits_nothing = key in LOGICAL or (key in SERVED and prefix != "requests.")
    assert ("limits nothing" in found) == limits_nothing
    assert limits_nothing or not found
