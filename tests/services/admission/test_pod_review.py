"""AdmissionReviews in, AdmissionReviews out."""

import copy
import json
from typing import Any

import jsonpatch
import pytest

from services.admission.mutate import Policy
from services.admission.pod_review import answer
from services.admission.review import ReviewResponse
from services.mappings.index import MappingIndex
from services.pods.reasons import ReviewOutcome
from services.process.errors import InvalidReview
from tests.services.building import (
    REGION,
    USUAL,
    Object,
    accelerator,
    container,
    index,
    pod,
    set_again,
)
from tests.webhook import reviews
from tests.webhook.reviews import UID, patch_of

LOGICAL = "fpga.intel.com/"
ASKING = pod(container("app", {LOGICAL + "nlb0": "1"}, env=[{"name": "A", "value": "a"}]))


def review(obj: Any = None, **request: Any) -> Object:
    return reviews.review(ASKING if obj is None else obj, **request)


def body(obj: Any) -> bytes:
    return json.dumps(obj).encode()


def ask(
    obj: Any, *, validating: bool = False, mappings: MappingIndex | None = None
) -> ReviewResponse:
    data = obj if isinstance(obj, bytes) else body(obj)
    return answer(
        data, index(*USUAL) if mappings is None else mappings, Policy(), validating=validating
    )


def response(answered: ReviewResponse) -> Any:
    return reviews.response_of(answered.body)


# What a review is read as


def test_a_pod_is_called_by_what_it_has_of_a_name() -> None:
    for metadata, name in (({"name": "p"}, "p"), ({"generateName": "p-"}, "p-"), (None, "")):
        assert ask(review(ASKING | {"metadata": metadata})).review.name == name


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the body can't be read as an AdmissionReview: "),
        (b"{}", "Object missing required field `request`"),
        (body(review(uid=None)), r"Expected `str`, got `null` - at `\$.request.uid`"),
        (body(review(uid="u" * 129)), "too long"),
        (body(review(uid="")), "^the AdmissionReview has no request.uid to answer to$"),
        (body(review()) + b"x", "trailing characters"),
        (
            body(review() | {"apiVersion": "admission.k8s.io/v1beta1"}),
            (
                "^this webhook answers AdmissionReview of admission.k8s.io/v1, not "
                '"AdmissionReview" of "admission.k8s.io/v1beta1": set admissionReviewVersions to '
                "v1 in its configuration$"
            ),
        ),
        (body({"request": {"uid": UID}}), 'not "" of ""'),
    ],
)
def test_reviews_that_cannot_be_answered_are_refused_with_a_reason(
    data: bytes, message: str
) -> None:
    with pytest.raises(InvalidReview, match=message):
        ask(data)


def test_moderate_nesting_is_skipped_and_deep_nesting_is_refused() -> None:
    data = body(review()).replace(b'"dryRun": false', b'"dryRun": false, "x": @')
    assert ask(data.replace(b"@", b"[" * 300 + b"]" * 300)).body == ask(review()).body
    with pytest.raises(InvalidReview, match="can't be read as an AdmissionReview"):
        ask(data.replace(b"@", b"[" * 100_000 + b"]" * 100_000))


# What is admitted as it is


def test_versions_and_fields_of_the_future_are_no_obstacle() -> None:
    obj = copy.deepcopy(ASKING)
    obj["spec"]["newThing"] = {"a": [1, {}]}
    obj["spec"]["containers"][0]["resources"]["newThing"] = 7
    obj["spec"]["containers"][0]["env"].append({"name": "FPGA_X", "valueFrom": {"fileKeyRef": {}}})
    request = review(obj, kind={"group": "", "version": "v2", "kind": "Pod"}, newField=[{}])
    assert ask(request | {"newField": 1}).outcome is ReviewOutcome.PATCHED


# What is patched, refused, or beyond judging


def test_the_audit_of_a_big_pod_is_cut() -> None:
    obj = pod(*[container(f"c{n}", {LOGICAL + "nlb0": "1"}) for n in range(120)])
    audit = response(ask(review(obj)))["auditAnnotations"]["rewrites"]
    assert len(audit) == 8000
    assert audit.endswith("…")


def test_the_namespace_of_the_request_decides() -> None:
    assert ask(review(namespace="elsewhere")).outcome is ReviewOutcome.DENIED
    secret = pod(container("app", {LOGICAL + "secret": "1"}))
    assert ask(review(secret)).outcome is ReviewOutcome.DENIED
    secret["metadata"]["namespace"] = "elsewhere"
    assert ask(review(secret)).outcome is ReviewOutcome.DENIED
    assert ask(review(secret, namespace="elsewhere")).outcome is ReviewOutcome.PATCHED


def test_names_of_the_shared_namespace_are_for_all() -> None:
    asking = body(review(pod(container("app", {"accelbind.dev/gpu": "1"}))))
    known = index(accelerator("gpu", "nvidia.com/gpu", namespace="lib"))
    for policy, outcome in (
        (Policy(), ReviewOutcome.DENIED),
        (Policy(shared_namespace="lib"), ReviewOutcome.PATCHED),
    ):
        assert answer(asking, known, policy, validating=False).outcome is outcome


def test_the_audit_of_each_time_that_a_pod_is_judged_has_names_of_its_own() -> None:
    """An API server keeps the first value of an annotation, and drops others."""
    first = ask(review())
    assert [rewrite.resource for rewrite in first.rewrites] == [REGION]
    after = jsonpatch.apply_patch(ASKING, patch_of(first.body))
    again = ask(review(set_again(after, {LOGICAL + "nlb0": "2"})))
    noted = [response(one)["auditAnnotations"] for one in (first, again, ask(review(after)))]
    assert noted[1:] == [
        {"reason-again": "rewritten", "rewrites-again": f"app: fpga.intel.com/nlb0=2 as {REGION}"},
        {"reason-again": "already-physical"},
    ]
    assert not noted[0].keys() & noted[1].keys()
    last = ask(review(after), validating=True)
    assert response(last)["auditAnnotations"] == {"reason": "already-physical"}


def test_a_crash_inside_answers_a_denial(monkeypatch: pytest.MonkeyPatch) -> None:
    crash = RuntimeError("secret detail")

    def mutate(*_: object) -> None:
        raise crash

    monkeypatch.setattr("services.admission.pod_review.mutate", mutate)
    answered = ask(review())
    made = response(answered)
    assert (made["allowed"], made["status"]["code"]) == (False, 500)
    assert made["status"]["reason"] == "InternalError"
    assert made["auditAnnotations"] == {"reason": "internal-error"}
    assert "secret" not in answered.message
    assert (answered.outcome, answered.reason) == (ReviewOutcome.ERRORED, "internal-error")
    assert answered.error is crash
    assert (answered.review.namespace, answered.review.uid) == ("default", UID)


# The reviews of a real API server


MIRROR = pod(
    container("app", {LOGICAL + "nowhere": "1"}), annotations={"kubernetes.io/config.mirror": "0"}
)
NODE = {"username": "system:node:n1", "groups": ["system:authenticated", "system:nodes"]}


@pytest.mark.parametrize(
    ("user", "reason"),
    [
        (NODE, "mirror-pod"),
        (NODE | {"groups": ["system:authenticated"]}, "unknown-name"),
        (NODE | {"groups": None}, "unknown-name"),
        (NODE | {"username": "mallory"}, "unknown-name"),
        ({}, "unknown-name"),
        (None, "unknown-name"),
    ],
)
def test_only_a_kubelet_is_believed_that_its_pod_is_a_mirror(
    user: Object | None, reason: str
) -> None:
    for validating in (False, True):
        found = ask(review(MIRROR, userInfo=user), validating=validating)
        assert found.reason == reason
    assert ask(review(userInfo=user)).outcome is ReviewOutcome.PATCHED
