"""How the patch is spelled, and the note of what was asked for by logical name."""

import json
from typing import Any

import msgspec
import pytest

from services.admission import patch
from services.admission.mutate import Patched, Policy, Unchanged, UnchangedReason
from services.admission.patch import escaped
from tests.services.building import (
    NLB3,
    REGION,
    Object,
    container,
    judge,
    mutated,
    pair,
    pod,
)

REQUESTED = "accelbind.dev/requested"
LOGICAL = "fpga.intel.com/"


def limits_of(obj: Object) -> Any:
    return obj["spec"]["containers"][0]["resources"]["limits"]


def env_of(obj: Object) -> Any:
    return obj["spec"]["containers"][0].get("env")


def requested_of(obj: Object) -> Any:
    return json.loads(obj["metadata"]["annotations"][REQUESTED])


def test_the_note_keeps_what_earlier_passes_wrote() -> None:
    after = mutated(pod(container("one", {LOGICAL + "nlb0": "1"})))
    after["spec"]["containers"].append(container("two", {LOGICAL + "nlb3": "1"}))
    after = mutated(after)
    assert requested_of(after) == {"one": {LOGICAL + "nlb0": 1}, "two": {LOGICAL + "nlb3": 1}}


def test_what_is_asked_for_again_is_added_to_the_note() -> None:
    after = mutated(pod(container("app", {LOGICAL + "nlb0": "2"})))
    for kind in ("limits", "requests"):
        after["spec"]["containers"][0]["resources"][kind] |= {
            LOGICAL + "nlb0": "1",
            LOGICAL + "nlb3": "1",
        }
    after = mutated(after)
    assert requested_of(after) == {"app": {LOGICAL + "nlb0": 3, LOGICAL + "nlb3": 1}}
    assert limits_of(after) == {REGION: "4"}
    assert env_of(after) == pair(1) + pair(2) + pair(3) + pair(4, afu=NLB3)


@pytest.mark.parametrize("noted", [1, 2, 1000, -1])
def test_a_note_that_was_copied_with_the_pod_does_not_add_up(noted: int) -> None:
    note = json.dumps({"app": {LOGICAL + "nlb0": noted}, "gone": {LOGICAL + "nlb3": 1}})
    after = mutated(pod(container("app", {LOGICAL + "nlb0": "2"}), annotations={REQUESTED: note}))
    assert requested_of(after) == {"app": {LOGICAL + "nlb0": 2}, "gone": {LOGICAL + "nlb3": 1}}


@pytest.mark.parametrize(
    "note",
    ["", "{", "null", "[]", '{"app":1}', '{"app":{"x":"1"}}', '{"app":{"x":0.5}}', "[" * 100_000],
    ids=lambda note: note[:20],
)
def test_a_note_in_another_form_is_replaced(note: str) -> None:
    after = mutated(
        pod(container("app", {LOGICAL + "nlb0": "1"}), annotations={REQUESTED: note, "a": "b"})
    )
    assert requested_of(after) == {"app": {LOGICAL + "nlb0": 1}}
    assert after["metadata"]["annotations"]["a"] == "b"


def test_a_note_of_null_is_written_anew() -> None:
    after = mutated(
        pod(container("app", {LOGICAL + "nlb0": "1"}), annotations={REQUESTED: None, "a": "b"})
    )
    assert requested_of(after) == {"app": {LOGICAL + "nlb0": 1}}


@pytest.mark.parametrize("annotations", [None, {}])
def test_annotations_may_be_null_or_empty(annotations: Object | None) -> None:
    before = pod(container("app", {LOGICAL + "nlb0": "1"}))
    before["metadata"]["annotations"] = annotations
    assert requested_of(mutated(before)) == {"app": {LOGICAL + "nlb0": 1}}


def test_a_pod_without_metadata_gets_a_note_all_the_same() -> None:
    before = pod(container("app", {LOGICAL + "nlb0": "1"}))
    del before["metadata"]
    assert mutated(before)["metadata"] == {
        "annotations": {REQUESTED: '{"app":{"fpga.intel.com/nlb0":1}}'}
    }


def test_nothing_is_noted_where_nothing_is_rewritten() -> None:
    result = judge(pod(container("app", {REGION: "1"}), annotations={REQUESTED: "{"}))
    assert result == Unchanged(UnchangedReason.ALREADY_PHYSICAL)


def test_paths_are_escaped_as_json_pointers_are() -> None:
    assert escaped("a/b~c~1/") == "a~1b~0c~01~1"


def test_what_is_remembered_of_a_container_is_told_apart() -> None:
    """Pods that differ in one thing only, one after the other and twice."""
    ask = {LOGICAL + "nlb0": "1"}
    pods = [
        pod(container("a", ask)),
        pod(container("b", ask)),
        pod(container("a", {LOGICAL + "nlb0": "2"})),
        pod(container("a", {LOGICAL + "nlb3": "1"})),
        pod(container("a", ask, requests={})),
        pod(container("a", ask, env=[{"name": "A", "value": "a"}])),
        pod(container("a", ask | {REGION: "1"}, env=pair(1))),
        pod(container("first"), container("a", ask)),
        pod(container("a", ask), init=[container("setup", ask)]),
    ]
    fresh = []
    for each in pods:
        patch._operations_as_json.cache_clear()
        fresh.append(judge(each))
    again = [judge(each) for each in pods + pods]
    assert again == fresh + fresh
    assert len({str(each) for each in fresh}) == len(pods)


@pytest.mark.parametrize("requests", [None, {}])
@pytest.mark.parametrize("env", [None, [], [{"name": "A", "value": "a"}], pair(1)])
def test_patches_are_spelled_as_an_encoder_spells_them(
    env: list[Object] | None, requests: Object | None
) -> None:
    asked = {LOGICAL + "nlb0": "2", LOGICAL + "nlb3": "1", REGION: "1"}
    first = container('odd "name"\n', asked, requests=requests, env=env)
    result = judge(pod(first, container("b", {LOGICAL + "nlb0": "1"})))
    assert isinstance(result, Patched)
    assert msgspec.json.encode(msgspec.json.decode(result.patch)) == result.patch


def test_big_patches_are_not_remembered() -> None:
    patch._operations_as_json.cache_clear()
    policy = Policy(max_units=1000)
    assert isinstance(judge(pod(container("a", {LOGICAL + "nlb0": "65"})), policy=policy), Patched)
    assert patch._operations_as_json.cache_info().currsize == 0
    assert isinstance(judge(pod(container("a", {LOGICAL + "nlb0": "64"})), policy=policy), Patched)
    assert patch._operations_as_json.cache_info().currsize == 1
