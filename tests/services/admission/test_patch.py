"""How the patch is spelled, and the note of what was asked for by logical name."""

import json
from typing import Any

import pytest

from services.admission.mutate import Unchanged, UnchangedReason
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


@pytest.mark.parametrize("requests", [None, {}])
@pytest.mark.parametrize("env", [None, [], [{"name": "A", "value": "a"}], pair(1)])
def test_env_is_added_to_or_made(env: list[Object] | None, requests: Object | None) -> None:
    asked = {LOGICAL + "nlb0": "2", LOGICAL + "nlb3": "1", REGION: "1"}
    number = 1 if env == pair(1) else 0
    before = pod(container('odd "name"\n', asked, requests=requests, env=env))
    added = [pair(number + 1), pair(number + 2), pair(number + 3, afu=NLB3)]
    assert env_of(mutated(before)) == (env or []) + [each for two in added for each in two]
    assert limits_of(mutated(before)) == {REGION: "4"}
