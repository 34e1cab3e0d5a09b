"""Reviews of mappings: what is refused where it is made, what passes, and what is warned of."""

import tracemalloc
from typing import Any

import pytest

from services.admission import mapping_review
from services.admission.mapping_review import validate
from services.admission.mutate import Policy
from services.admission.review import ReviewResponse
from services.mappings.index import EMPTY_INDEX
from services.pods.reasons import ReviewOutcome
from tests.services.building import (
    AF_NLB0,
    NLB3,
    STRATIX,
    Object,
    accelerator,
    deprecated,
    function,
    index,
    region,
)
from tests.webhook import reviews

POLICY = Policy(domains=("fpga.intel.com", "a.example"))
GROUPS = {"Accelerator": ("accelbind.dev", "v1alpha1")}


def body(new: object, *, old: object = None, **request: object) -> bytes:
    kind = new.get("kind", "") if isinstance(new, dict) else "AcceleratorFunction"
    group, version = GROUPS.get(kind, ("fpga.intel.com", "v2"))
    described: Object = {
        "kind": {"group": group, "version": version, "kind": kind},
        "operation": "CREATE" if old is None else "UPDATE",
        "object": new,
        "oldObject": old,
    }
    return reviews.body(**described | request)


def ask(new: object, *known: Object, **more: Any) -> ReviewResponse:
    """The answer to a review, after a check that its parts agree."""
    answer = validate(body(new, **more), index(*known), POLICY)
    response = reviews.response_of(answer.body)
    assert response["allowed"] is (answer.outcome is ReviewOutcome.ALLOWED)
    if answer.outcome is ReviewOutcome.DENIED:
        assert response["status"]["code"] == 403
        assert response["status"]["message"] == answer.message
        assert response["auditAnnotations"] == {"reason": answer.reason}
    return answer


def warnings(answer: ReviewResponse) -> list[str]:
    found: list[str] = reviews.response_of(answer.body).get("warnings", [])
    assert all(len(text) <= 120 for text in found)
    return found


def relabelled(obj: Object) -> Object:
    return obj | {"metadata": obj["metadata"] | {"labels": {"team": "a"}}}


@pytest.mark.parametrize(
    ("obj", "problem"),
    [
        (function("x", "af", interface="123"), 'spec.interfaceId "123" is not 8 to 32 hex digits'),
        (region(AF_NLB0.partition("/")[2].lower()), "has the form of a physical name"),
        (function("x", "af") | {"metadata": None}, "metadata.name is missing"),
        (accelerator("x", "cpu"), 'spec.target: resource "cpu"'),
        (accelerator("x", "a.example/gpu"), "is a logical name itself"),
        (
            accelerator("x", "nvidia.com/gpu", alsoRequest=[{"resource": "a.example/nic"}]),
            "is a logical name itself",
        ),
    ],
)
def test_unusable_mappings_are_refused_unless_their_spec_was_the_same_before(
    obj: Object, problem: str
) -> None:
    for old in (None, function("x", "region")):
        answer = ask(obj, old=old)
        assert (answer.outcome, answer.reason) == (ReviewOutcome.DENIED, "invalid-mapping")
        assert problem in answer.message
    answer = ask(relabelled(obj) if obj["metadata"] else obj, old=obj)
    assert (answer.outcome, answer.reason) == (ReviewOutcome.ALLOWED, "unchanged-spec")
    (warning,) = warnings(answer)
    assert warning.startswith("pods can't use it: ")


X_AF, X_REGION, Y_AF = function("x", "af"), region("x"), function("y", "af")
OTHER_X = function("x", "region", afu=NLB3)


@pytest.mark.parametrize(
    ("new", "known", "more"),
    [
        (X_AF, [function("y", "af", afu=NLB3), function("x", "region", namespace="other")], {}),
        (X_AF, [OTHER_X], {"old": OTHER_X}),
        (X_REGION, [X_REGION], {}),
        (X_AF, [deprecated(Y_AF)], {}),
        (Y_AF, [Y_AF, function("z", "region")], {"old": Y_AF}),
        (X_AF, [accelerator("x", "nvidia.com/gpu")], {}),
        (accelerator("x", "nvidia.com/gpu"), [X_AF], {}),
        (function("x", "af", namespace="default"), [region("x", namespace="team")], {}),
    ],
)
def test_a_mapping_that_serves_passes_without_a_word(
    new: Object, known: list[Object], more: Object
) -> None:
    answer = ask(new, *known, **more)
    assert (answer.outcome, answer.reason) == (ReviewOutcome.ALLOWED, "usable")
    assert warnings(answer) == []


@pytest.mark.parametrize(
    ("new", "known", "more"),
    [
        (X_AF, [X_REGION], {}),
        (X_REGION, [function("x", "region")], {}),
        (function("x", "region"), [X_AF, X_REGION], {"old": X_AF}),
        (X_AF, [region("x", namespace="team")], {"namespace": "team"}),
    ],
)
def test_a_name_that_the_other_kind_has_is_refused(
    new: Object, known: list[Object], more: Object
) -> None:
    answer = ask(new, *known, **more)
    assert (answer.outcome, answer.reason) == (ReviewOutcome.DENIED, "name-clash")
    assert f"FpgaRegion {more.get('namespace', 'default')}/x have the same name" in answer.message


DEPRECATED = "deprecated: pods that use it get a warning"


@pytest.mark.parametrize(
    ("new", "known", "more", "warning"),
    [
        (X_AF, [Y_AF, function("z", "region")], {}, "duplicate of y: pods that use either get a"),
        (deprecated(X_AF, "use y"), [Y_AF], {}, f"{DEPRECATED}: use y"),
        (deprecated(X_AF, "true"), [Y_AF], {}, DEPRECATED),
        # a clash that is there already
        (relabelled(X_AF), [X_AF, X_REGION], {"old": X_AF}, "pods can't use it: AcceleratorFu"),
    ],
)
def test_what_pods_will_be_warned_of_is_warned_of(
    new: Object, known: list[Object], more: Object, warning: str
) -> None:
    answer = ask(new, *known, **more)
    assert answer.outcome is ReviewOutcome.ALLOWED
    (found,) = warnings(answer)
    assert found.startswith(warning)
    assert (found == DEPRECATED) == (warning == DEPRECATED)


BROKEN = function(f"region-{STRATIX}", "no")
DELETED = {"metadata": BROKEN["metadata"] | {"deletionTimestamp": "2026-11-21T00:00:00Z"}}


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"operation": "DELETE", "object": None}, "not-written"),
        ({"subResource": "status", "operation": "UPDATE"}, "not-written"),
        ({"kind": {"group": "", "version": "v1", "kind": "Pod"}}, "not-a-mapping"),
        ({"kind": {"group": "a.org", "version": "v2", "kind": "FpgaRegion"}}, "not-a-mapping"),
        # it may lose its finalizers
        ({"object": BROKEN | DELETED, "old": X_AF}, "being-deleted"),
    ],
)
def test_reviews_of_other_objects_and_operations_are_admitted(
    request_: Object, reason: str
) -> None:
    answer = ask(BROKEN, **request_)
    assert (answer.outcome, answer.reason) == (ReviewOutcome.ALLOWED, reason)


@pytest.mark.parametrize(
    "request_",
    [
        {"object": [1]},
        {"object": X_AF | {"metadata": {"name": 5}}},
        {"oldObject": 5},
        {"kind": 5},
    ],
)
def test_a_review_that_cant_be_read_is_answered_with_an_error(request_: Object) -> None:
    answer = ask(X_AF, **request_)
    assert (answer.outcome, answer.reason) == (ReviewOutcome.ERRORED, "unreadable-mapping")
    assert reviews.response_of(answer.body)["status"]["code"] == 400


def test_a_crash_answers_a_denial(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(_obj: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(mapping_review, "parse", crash)
    answer = ask(function("x", "af"))
    assert (answer.outcome, answer.reason) == (ReviewOutcome.ERRORED, "internal-error")
    assert isinstance(answer.error, ZeroDivisionError)
    assert reviews.response_of(answer.body)["status"]["code"] == 500


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (b"[" + b"[]," * 90_000 + b"[]]", "spec has more than 262144 bytes"),
        (b'{"mode": "\xff"}', "spec can't be read"),
    ],
    ids=["large", "no text"],
)
def test_a_spec_that_costs_much_or_is_no_json_is_refused(spec: bytes, problem: str) -> None:
    data = body(function("x", "af") | {"spec": "SPEC"}).replace(b'"SPEC"', spec)
    answer = validate(data, EMPTY_INDEX, POLICY)
    assert (answer.outcome, answer.reason) == (ReviewOutcome.DENIED, "invalid-mapping")
    assert answer.message.startswith(f"AcceleratorFunction default/x: {problem}")


@pytest.mark.parametrize("place", ["status", "labels", "old", "options"])
def test_unread_fields_of_a_review_take_no_memory(place: str) -> None:
    """Only the spec is limited to 256 KiB: `kubectl apply` and updates repeat it."""
    nested: list[Any] = [[]] * 300_000
    new = region("a")
    more: dict[str, Any] = {}
    if place == "labels":
        new["metadata"]["labels"] = nested
    elif place == "status":
        new["status"] = nested
    else:
        more = {"old": {"spec": nested}} if place == "old" else {"options": nested}
    text = body(new, **more)
    tracemalloc.start()
    try:
        answer = validate(text, EMPTY_INDEX, POLICY)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answer.outcome is ReviewOutcome.ALLOWED
    assert peak < len(text)
