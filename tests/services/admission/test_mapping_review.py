"""Reviews of mappings: what is refused where it is made, what passes, and what is warned of."""

import tracemalloc
from typing import Any

import pytest

from services.admission import mapping_review
from services.admission.mapping_review import validate
from services.admission.mutate import Policy
from services.admission.review import ReviewResponse
from services.mappings.index import EMPTY_INDEX, MappingIndex
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

PHYSICAL = f"region-{STRATIX}"


def body(new: object, *, old: object = None, **request: object) -> bytes:
    kind = new.get("kind", "") if isinstance(new, dict) else "AcceleratorFunction"
    described: Object = {
        "kind": {"group": "fpga.intel.com", "version": "v2", "kind": kind},
        "operation": "CREATE" if old is None else "UPDATE",
        "object": new,
        "oldObject": old,
    }
    return reviews.body(**described | request)


def response_of(answer: ReviewResponse) -> Object:
    response = reviews.response_of(answer.body)
    assert response["allowed"] is (answer.outcome in (ReviewOutcome.ALLOWED, ReviewOutcome.PATCHED))
    return response


def ask(new: object, known: MappingIndex = EMPTY_INDEX, **more: Any) -> ReviewResponse:
    return validate(body(new, **more), known, Policy())


def warnings(new: object, known: MappingIndex = EMPTY_INDEX, **more: Any) -> list[str]:
    answer = ask(new, known, **more)
    assert answer.outcome is ReviewOutcome.ALLOWED, answer.message
    found: list[str] = response_of(answer).get("warnings", [])
    assert all(len(text) <= 120 for text in found)
    return found


def refusal(new: object, known: MappingIndex = EMPTY_INDEX, **more: Any) -> str:
    answer = ask(new, known, **more)
    assert answer.outcome is ReviewOutcome.DENIED
    response = response_of(answer)
    assert response["status"]["code"] == 403
    assert response["status"]["message"] == answer.message
    assert response["auditAnnotations"] == {"reason": answer.reason}
    return answer.message


def relabelled(obj: Object) -> Object:
    return obj | {"metadata": obj["metadata"] | {"labels": {"team": "a"}}}


BROKEN = [
    (function("x", "af", interface="123"), 'spec.interfaceId "123" is not 8 to 32 hex digits'),
    (region(AF_NLB0.partition("/")[2].lower()), "has the form of a physical name"),
    (function("x", "af") | {"spec": None}, "spec is missing"),
    (function("x", "af") | {"metadata": None}, "metadata.name is missing"),
]


@pytest.mark.parametrize(("obj", "problem"), BROKEN)
def test_what_no_pod_could_use_is_refused_unless_it_was_no_better_before(
    obj: Object, problem: str
) -> None:
    assert problem in refusal(obj)
    assert problem in refusal(obj, old=function("x", "region"))
    after = relabelled(obj) if obj["metadata"] else obj
    (warning,) = warnings(after, old=obj)
    assert warning.startswith("pods can't use it: ")


def test_a_mapping_that_serves_passes_without_a_word() -> None:
    known = index(function("y", "af", afu=NLB3), function("x", "region", namespace="other"))
    for obj in (function("x", "af"), function("x", "region"), region("x")):
        assert warnings(obj, known) == []
        assert warnings(obj, known, old=function("x", "region", afu=NLB3)) == []


def test_a_name_that_the_other_kind_has_is_refused() -> None:
    for new, other in ((function("x", "af"), region("x")), (region("x"), function("x", "region"))):
        for known in (index(other), index(other, new)):
            message = refusal(new, known)
            assert "FpgaRegion default/x have the same name" in message
            assert ask(new, known).reason == "name-clash"
        assert warnings(new, index(new)) == []


def test_objects_that_clash_already_may_be_labelled_and_no_more() -> None:
    one, other = function("x", "af"), region("x")
    (warning,) = warnings(relabelled(one), index(one, other), old=one)
    assert "FpgaRegion default/x have the same name" in warning
    assert "have the same name" in refusal(function("x", "region"), index(one, other), old=one)


def test_a_duplicate_is_warned_of_unless_the_other_is_deprecated() -> None:
    known = index(function("y", "af"), function("z", "region"))
    (warning,) = warnings(function("x", "af"), known)
    assert warning == "duplicate of y: pods that use either get a warning"
    assert warnings(function("x", "af"), index(deprecated(function("y", "af")))) == []
    assert warnings(function("y", "af"), known, old=function("y", "af")) == []


def accelerators(new: Object, known: MappingIndex = EMPTY_INDEX, **more: Any) -> ReviewResponse:
    kind = {"group": "accelbind.dev", "version": "v1alpha1", "kind": "Accelerator"}
    return ask(new, known, kind=kind, **more)


def test_an_accelerator_is_checked_and_clashes_with_no_fpga() -> None:
    known = index(function("x", "af"))
    assert accelerators(accelerator("x", "nvidia.com/gpu"), known).reason == "usable"
    answer = accelerators(accelerator("x", "cpu"))
    assert (answer.outcome, answer.reason) == (ReviewOutcome.DENIED, "invalid-mapping")
    assert 'spec.target: resource "cpu"' in answer.message
    assert warnings(function("x", "af"), index(accelerator("x", "nvidia.com/gpu"))) == []


def test_an_accelerator_may_not_stand_for_a_name_of_a_domain_in_force() -> None:
    policy = Policy(domains=("a.example",))
    kind = {"group": "accelbind.dev", "version": "v1alpha1", "kind": "Accelerator"}
    other = [{"resource": "a.example/nic"}]
    for obj in (
        accelerator("x", "a.example/gpu"),
        accelerator("x", "nvidia.com/gpu", alsoRequest=other),
    ):
        answer = validate(body(obj, kind=kind), EMPTY_INDEX, policy)
        assert (answer.outcome, answer.reason) == (ReviewOutcome.DENIED, "invalid-mapping")
        assert "is a logical name itself" in answer.message


def test_a_deprecated_mapping_is_warned_of() -> None:
    known = index(function("y", "af"))
    told = "deprecated: pods that use it get a warning"
    assert warnings(deprecated(function("x", "af"), "use y"), known) == [f"{told}: use y"]
    assert warnings(deprecated(function("x", "af"), "true"), known) == [told]


def test_the_namespace_is_that_of_the_request() -> None:
    known = index(region("x", namespace="team"))
    obj = function("x", "af", namespace="default")
    assert warnings(obj, known) == []
    assert "FpgaRegion team/x have the same name" in refusal(obj, known, namespace="team")


@pytest.mark.parametrize(
    "request_",
    [
        {"operation": "DELETE", "object": None},
        {"subResource": "status", "operation": "UPDATE"},
        {"kind": {"group": "", "version": "v1", "kind": "Pod"}},
        {"kind": {"group": "example.org", "version": "v2", "kind": "FpgaRegion"}},
    ],
)
def test_what_is_no_mapping_or_isnt_written_passes(request_: Object) -> None:
    broken = function(PHYSICAL, "no")
    assert ask(broken, **request_).outcome is ReviewOutcome.ALLOWED


def test_a_mapping_that_is_being_deleted_may_lose_its_finalizers() -> None:
    broken = function(PHYSICAL, "no")
    broken["metadata"] |= {"deletionTimestamp": "2026-11-21T00:00:00Z"}
    answer = ask(broken, old=function("x", "af"))
    assert (answer.outcome, answer.reason) == (ReviewOutcome.ALLOWED, "being-deleted")


@pytest.mark.parametrize(
    "request_",
    [
        {"object": None},
        {"object": [1]},
        {"object": function("x", "af") | {"metadata": {"name": 5}}},
        {"oldObject": 5},
        {"kind": 5},
    ],
)
def test_a_review_that_cant_be_read_is_answered_with_an_error(request_: Object) -> None:
    answer = ask(function("x", "af"), **request_)
    assert (answer.outcome, answer.reason) == (ReviewOutcome.ERRORED, "unreadable-mapping")
    assert response_of(answer)["status"]["code"] == 400


def test_a_crash_answers_a_denial(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(_obj: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(mapping_review, "parse", crash)
    answer = ask(function("x", "af"))
    assert (answer.outcome, answer.reason) == (ReviewOutcome.ERRORED, "internal-error")
    assert isinstance(answer.error, ZeroDivisionError)
    assert response_of(answer)["status"]["code"] == 500


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
    answer = validate(data, EMPTY_INDEX, Policy())
    assert (answer.outcome, answer.reason) == (ReviewOutcome.DENIED, "invalid-mapping")
    assert answer.message.startswith(f"AcceleratorFunction default/x: {problem}")


@pytest.mark.parametrize("place", ["status", "labels", "old", "options"])
def test_what_is_not_read_of_a_review_takes_no_memory(place: str) -> None:
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
        answer = validate(text, EMPTY_INDEX, Policy())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answer.outcome is ReviewOutcome.ALLOWED
    assert peak < len(text)
