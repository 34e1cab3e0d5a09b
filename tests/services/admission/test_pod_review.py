"""AdmissionReviews in, AdmissionReviews out."""

import base64
import copy
import json
from typing import Any

import jsonpatch
import pytest

from services.admission.mutate import Policy
from services.admission.pod_review import answer
from services.admission.review import (
    GroupVersionKind,
    ReviewOutcome,
    ReviewResponse,
    UnreadableReview,
    decode,
)
from services.mappings.index import EMPTY_INDEX, MappingIndex
from services.process.errors import InvalidReview
from tests.services.building import (
    AF_NLB0,
    ARRIA,
    NLB0,
    NLB3,
    REGION,
    USUAL,
    Object,
    container,
    function,
    index,
    pair,
    pod,
)
from tests.support import require_shared

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"
LOGICAL = "fpga.intel.com/"
ASKING = pod(container("app", {LOGICAL + "nlb0": "1"}, env=[{"name": "A", "value": "a"}]))


def review(obj: Any = None, **request: Any) -> Object:
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": UID,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "p",
            "namespace": "default",
            "operation": "CREATE",
            "object": ASKING if obj is None else obj,
            "oldObject": None,
            "dryRun": False,
        }
        | request,
    }


def body(obj: Any) -> bytes:
    return json.dumps(obj).encode()


def ask(
    obj: Any, *, validating: bool = False, mappings: MappingIndex | None = None
) -> ReviewResponse:
    data = obj if isinstance(obj, bytes) else body(obj)
    return answer(
        data, index(*USUAL) if mappings is None else mappings, Policy(), validating=validating
    )


def response(answered: ReviewResponse | bytes) -> Any:
    """The response, after a look at its envelope."""
    envelope = json.loads(answered.body if isinstance(answered, ReviewResponse) else answered)
    assert envelope.keys() == {"apiVersion", "kind", "response"}
    assert (envelope["apiVersion"], envelope["kind"]) == (
        "admission.k8s.io/v1",
        "AdmissionReview",
    )
    return envelope["response"]


def patch_of(answered: ReviewResponse) -> Any:
    made = response(answered)
    assert made["patchType"] == "JSONPatch"
    return json.loads(base64.b64decode(made["patch"], validate=True))


# What a review is read as


def test_a_review_of_a_pod_is_read() -> None:
    read = decode(body(review()))
    assert (read.uid, read.namespace, read.operation, read.sub_resource) == (
        UID,
        "default",
        "CREATE",
        "",
    )
    assert read.kind == GroupVersionKind("", "v1", "Pod")
    assert read.is_about_pod
    assert read.pod is not None
    assert read.pod.display_name == "p"
    assert not isinstance(read, UnreadableReview)


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        ({"name": "p"}, "p"),
        ({"generateName": "p-"}, "p-"),
        ({"name": "", "generateName": "p-"}, "p-"),
        ({}, ""),
        (None, ""),
    ],
)
def test_a_pod_is_called_by_what_it_has_of_a_name(metadata: Object | None, name: str) -> None:
    obj = ASKING | {"metadata": metadata}
    assert ask(review(obj)).pod == name


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the body can't be read as an AdmissionReview: "),
        (b"{", "the body can't be read as an AdmissionReview: "),
        (b"[]", "the body can't be read as an AdmissionReview: Expected `object`, got `array`"),
        (b"null", "the body can't be read as an AdmissionReview: "),
        (b"\xff\xfe", "the body can't be read as an AdmissionReview: "),
        (b"{}", "Object missing required field `request`"),
        (body(review(uid=None)), r"Expected `str`, got `null` - at `\$.request.uid`"),
        (body(review(uid=7)), r"Expected `str`, got `int` - at `\$.request.uid`"),
        (body(review(uid="")), "^the AdmissionReview has no request.uid to answer to$"),
        (body(review()) + b"x", "trailing characters"),
        (b'{"request":' * 100_000, "the body can't be read as an AdmissionReview: "),
        (
            body(review() | {"apiVersion": "admission.k8s.io/v1beta1"}),
            (
                "^this webhook answers AdmissionReview of admission.k8s.io/v1, not "
                '"AdmissionReview" of "admission.k8s.io/v1beta1": set admissionReviewVersions to '
                "v1 in its configuration$"
            ),
        ),
        (body(review() | {"kind": "Pod"}), 'not "Pod" of "admission.k8s.io/v1"'),
        (body({"request": {"uid": UID}}), 'not "" of ""'),
        (body({"request": {"uid": UID, "object": {"metadata": 1}}}), 'not "" of ""'),
        (body({"request": {"uid": UID, "operation": 1}}), 'not "" of ""'),
    ],
)
def test_what_can_not_be_answered_is_refused_with_a_reason(data: bytes, message: str) -> None:
    with pytest.raises(InvalidReview, match=message):
        ask(data)


def test_moderate_nesting_is_skipped_and_deep_nesting_is_refused() -> None:
    data = body(review()).replace(b'"dryRun": false', b'"dryRun": false, "x": @')
    assert ask(data.replace(b"@", b"[" * 300 + b"]" * 300)).body == ask(review()).body
    with pytest.raises(InvalidReview, match="can't be read as an AdmissionReview"):
        ask(data.replace(b"@", b"[" * 100_000 + b"]" * 100_000))


# What is admitted as it is


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}}, "not-a-pod"),
        ({"kind": {"group": "example.org", "version": "v1", "kind": "Pod"}}, "not-a-pod"),
        ({"kind": {"group": "", "version": "v1", "kind": "ConfigMap"}}, "not-a-pod"),
        ({"kind": {"group": "", "version": "v1", "kind": "Binding"}}, "not-a-pod"),
        ({"subResource": "ephemeralcontainers"}, "not-a-pod"),
        ({"operation": "UPDATE"}, "not-created"),
        ({"operation": "DELETE", "object": None}, "not-created"),
        ({"operation": "CONNECT"}, "not-created"),
        ({"operation": ""}, "not-created"),
    ],
)
@pytest.mark.parametrize("validating", [False, True])
def test_what_is_no_new_pod_is_let_through(
    request_: Object, reason: str, *, validating: bool
) -> None:
    answered = ask(review(**request_), validating=validating)
    assert response(answered) == {"uid": UID, "allowed": True}
    assert (answered.outcome, answered.reason) == (ReviewOutcome.ALLOWED, reason)


@pytest.mark.parametrize(
    "obj", [{"spec": "text"}, {"spec": {"containers": {}}}, [], "x", {"metadata": []}, 7]
)
def test_other_kinds_may_have_any_shape(obj: Any) -> None:
    kind = {"group": "example.org", "version": "v1", "kind": "Thing"}
    answered = ask(review(obj, kind=kind))
    assert response(answered) == {"uid": UID, "allowed": True}
    assert answered.reason == "not-a-pod"


def test_versions_and_fields_of_the_future_are_no_obstacle() -> None:
    obj = copy.deepcopy(ASKING)
    obj["spec"]["newThing"] = {"a": [1, {}]}
    obj["spec"]["containers"][0]["resources"]["newThing"] = 7
    obj["spec"]["containers"][0]["env"].append({"name": "FPGA_X", "valueFrom": {"fileKeyRef": {}}})
    request = review(obj, kind={"group": "", "version": "v2", "kind": "Pod"}, newField=[{}])
    assert ask(request | {"newField": 1}).outcome is ReviewOutcome.PATCHED


@pytest.mark.parametrize(
    ("obj", "reason"),
    [
        (pod(container("app", {"cpu": "1"})), "nothing-asked"),
        (pod(container("app", {REGION: "1"})), "already-physical"),
        (
            pod(container("app"), annotations={"kubernetes.io/config.mirror": "x"}),
            "mirror-pod",
        ),
    ],
)
@pytest.mark.parametrize("validating", [False, True])
def test_a_pod_that_is_fine_is_let_through(obj: Object, reason: str, *, validating: bool) -> None:
    answered = ask(review(obj), validating=validating)
    noted = {} if reason == "nothing-asked" else {"auditAnnotations": {"reason": reason}}
    assert response(answered) == {"uid": UID, "allowed": True} | noted
    assert (answered.outcome, answered.reason, answered.pod, answered.namespace) == (
        ReviewOutcome.ALLOWED,
        reason,
        "p",
        "default",
    )


def test_warnings_come_with_a_pod_that_stays_as_it_is() -> None:
    obj = pod(container("one", {REGION: "1"}), container("two", {AF_NLB0: "1"}))
    answered = ask(review(obj))
    assert answered.outcome is ReviewOutcome.ALLOWED
    assert response(answered)["warnings"] == list(answered.warnings)
    assert len(answered.warnings) == 1


# What is patched, refused, or beyond judging


def test_a_pod_is_patched_and_the_audit_says_how() -> None:
    answered = ask(review())
    after = jsonpatch.apply_patch(ASKING, patch_of(answered))
    assert after["spec"]["containers"][0]["env"] == [{"name": "A", "value": "a"}, *pair(1)]
    made = response(answered)
    assert made["auditAnnotations"] == {
        "reason": "rewritten",
        "rewrites": f"app: fpga.intel.com/nlb0=1 as fpga.intel.com/region-{ARRIA}",
    }
    assert made.keys() == {"uid", "allowed", "patchType", "patch", "auditAnnotations"}
    assert (answered.outcome, answered.reason, answered.message) == (ReviewOutcome.PATCHED, "", "")
    assert (answered.uid, answered.namespace, answered.pod) == (UID, "default", "p")
    assert [rewrite.resource for rewrite in answered.rewrites] == [REGION]


def test_warnings_come_with_a_patch() -> None:
    obj = pod(
        container("one", {LOGICAL + "nlb0": "1"}), container("two", {LOGICAL + "nlb0-af": "1"})
    )
    answered = ask(review(obj))
    assert response(answered)["warnings"] == list(answered.warnings)
    assert len(answered.warnings) == 1
    assert response(answered)["auditAnnotations"]["rewrites"].count("; ") == 1


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


def test_the_audit_of_each_time_that_a_pod_is_judged_has_names_of_its_own() -> None:
    """An API server keeps the first value of an annotation, and drops others."""
    first = ask(review())
    after = jsonpatch.apply_patch(ASKING, patch_of(first))
    injected = copy.deepcopy(after)
    injected["spec"]["containers"].append(container("late", {LOGICAL + "nlb0": "2"}))
    second = ask(review(injected))
    finished = jsonpatch.apply_patch(injected, patch_of(second))
    noted = [
        response(one)["auditAnnotations"]
        for one in (first, second, ask(review(finished), validating=True))
    ]
    assert noted[1:] == [
        {
            "reason-again": "rewritten",
            "rewrites-again": f"late: fpga.intel.com/nlb0=2 as fpga.intel.com/region-{ARRIA}",
        },
        {"reason": "already-physical"},
    ]
    assert not noted[0].keys() & noted[1].keys()
    assert response(ask(review(after)))["auditAnnotations"] == {"reason-again": "already-physical"}


@pytest.mark.parametrize("validating", [False, True])
def test_a_pod_is_refused_with_its_reasons(*, validating: bool) -> None:
    obj = pod(container("app", {LOGICAL + "x": "1", LOGICAL + "y": "1", LOGICAL + "nlb0": "x"}))
    answered = ask(review(obj), validating=validating)
    made = response(answered)
    assert made == {
        "uid": UID,
        "allowed": False,
        "status": {
            "status": "Failure",
            "code": 403,
            "reason": "Forbidden",
            "message": answered.message,
        },
        "auditAnnotations": {"reason": "invalid-quantity,unknown-name"},
    }
    assert answered.message.startswith('3 problems: (1) container "app": ')
    assert (answered.outcome, answered.reason) == (ReviewOutcome.DENIED, "invalid-quantity")
    assert (answered.namespace, answered.pod) == ("default", "p")


def test_the_last_check_refuses_what_was_not_rewritten() -> None:
    obj = pod(
        container("app", {LOGICAL + "nlb0": "1"}),
        init=[container("setup", {LOGICAL + "stratix.nlb3": "1"})],
    )
    answered = ask(review(obj), validating=True)
    assert (answered.outcome, answered.reason) == (ReviewOutcome.DENIED, "not-mutated")
    assert response(answered)["status"] == {
        "status": "Failure",
        "code": 403,
        "reason": "Forbidden",
        "message": 'fpga.intel.com/stratix.nlb3 in container "setup" and fpga.intel.com/nlb0 in '
        'container "app" was not rewritten to its physical name: either another webhook changed '
        "the pod after accelbind's mutating webhook, or that webhook isn't configured",
    }
    assert response(answered)["auditAnnotations"] == {"reason": "not-mutated"}


def test_the_last_check_does_not_list_everything() -> None:
    obj = pod(*[container(f"c{n}", {LOGICAL + "nlb0": "1"}) for n in range(5)])
    message = ask(review(obj), validating=True).message
    assert message.count("fpga.intel.com/nlb0 in container") == 4
    assert 'in container "c3" and 1 more was not rewritten' in message


def test_the_last_check_admits_what_the_first_one_made() -> None:
    after = jsonpatch.apply_patch(ASKING, patch_of(ask(review())))
    assert ask(review(after), validating=True).reason == "already-physical"


@pytest.mark.parametrize(
    ("obj", "problem"),
    [
        ({"metadata": 1}, "Expected `object | null`, got `int` - at `$.request.object.metadata`"),
        (
            {"spec": {"containers": "x"}},
            "Expected `array | null`, got `str` - at `$.request.object.spec.containers`",
        ),
        (
            {"spec": {"containers": [{"resources": {"limits": {"a": []}}}]}},
            "- at `$.request.object.spec.containers[0].resources.limits[...]`",
        ),
        (
            {"spec": {"containers": [{"resources": {"limits": {"a": True}}}]}},
            "got `bool` - at `$.request.object.spec.containers[0].resources.limits[...]`",
        ),
        ([], "Expected `object | null`, got `array` - at `$.request.object`"),
    ],
)
def test_a_pod_that_can_not_be_read_is_refused_with_the_field(obj: Any, problem: str) -> None:
    answered = ask(review(obj))
    last = ask(review(obj), validating=True)
    assert response(last)["auditAnnotations"] == {"reason": "unreadable-pod"}
    status = response(answered)["status"]
    assert (status["code"], status["reason"]) == (400, "BadRequest")
    assert status["message"].startswith("the review can't be read: ")
    assert problem in status["message"]
    assert (answered.uid, answered.outcome) == (UID, ReviewOutcome.ERRORED)
    assert answered.reason == "unreadable-pod"
    assert response(answered)["auditAnnotations"] == {"reason": "unreadable-pod"}
    assert answered.error is None


def test_an_env_that_can_not_be_read_is_refused_with_the_field() -> None:
    obj = pod(container("app", {LOGICAL + "nlb0": "1"}))
    obj["spec"]["containers"][0]["env"] = "text"
    answered = ask(review(obj))
    assert answered.message == (
        "the pod can't be read: Expected `array | null`, got `str` in /spec/containers/0/env"
    )
    assert (answered.outcome, answered.pod, answered.namespace) == (
        ReviewOutcome.ERRORED,
        "p",
        "default",
    )


def test_a_review_without_a_pod_is_refused() -> None:
    answered = ask(review() | {"request": review()["request"] | {"object": None}})
    assert answered.message == "the review has no pod in request.object"
    assert answered.outcome is ReviewOutcome.ERRORED


@pytest.mark.parametrize(
    "request_",
    [{"kind": 1}, {"kind": {"group": 1}}, {"operation": []}, {"namespace": 1}, {"subResource": {}}],
)
def test_a_broken_request_with_a_uid_is_answered(request_: Object) -> None:
    answered = ask(review(**request_))
    assert response(answered)["status"]["code"] == 400
    assert answered.message.startswith("the review can't be read: Expected ")
    assert answered.uid == UID


def test_a_message_of_msgspec_is_kept_short_and_printable() -> None:
    data = body(review({"metadata": {"name": "@"}})).replace(b"@", b"\xff" * 10_000)
    answered = ask(data)
    assert answered.message.isprintable()
    assert len(answered.message) <= 500


def test_a_crash_inside_answers_a_denial(monkeypatch: pytest.MonkeyPatch) -> None:
    crash = RuntimeError("secret detail")

    def mutate(*_: object) -> None:
        raise crash

    monkeypatch.setattr("services.admission.mutate.mutate", mutate)
    answered = ask(review())
    assert response(answered) == {
        "uid": UID,
        "allowed": False,
        "status": {
            "status": "Failure",
            "code": 500,
            "reason": "InternalError",
            "message": answered.message,
        },
        "auditAnnotations": {"reason": "internal-error"},
    }
    last = ask(review(), validating=True)
    assert response(last)["auditAnnotations"] == {"reason": "internal-error"}
    assert "secret" not in answered.message
    assert (answered.outcome, answered.reason) == (ReviewOutcome.ERRORED, "internal-error")
    assert answered.error is crash
    assert (answered.namespace, answered.uid) == ("default", UID)


# The reviews of a real API server


@pytest.mark.parametrize(
    ("name", "uid", "variables"),
    [
        ("small", "0eee0779-9a23-4ba0-a102-b462376d90f0", 9),
        ("medium", "a1ec2c2e-2715-496b-92ce-59d5a78dc168", 17),
        ("large-env", "abe87f05-7b89-45d7-9fb8-8caa1874c02d", 37),
    ],
)
def test_recorded_reviews_are_answered_as_a_reader_of_the_rules_expects(
    name: str, uid: str, variables: int
) -> None:
    recorded = require_shared(
        "recorded", "kube-apiserver-1.36", f"admissionreview-{name}.json"
    ).read_bytes()
    mappings = index(function("arria10.dcp1.0-nlb0-orchestrated", "region"))
    answered = ask(recorded, mappings=mappings)
    before = json.loads(recorded)["request"]["object"]
    expected = copy.deepcopy(before)
    asking = expected["spec"]["containers"][0]
    region = {"cpu": "1", "memory": "1Gi", "fpga.intel.com/region-" + ARRIA: "2"}
    asking["resources"] = {"limits": region, "requests": region}
    asking["env"] += [
        {"name": "FPGA_REGION_1", "value": "ce48969398f05f33946d560708be108a"},
        {"name": "FPGA_AFU_1", "value": "d8424dc4a4a3c413f89e433683f9040b"},
        {"name": "FPGA_REGION_2", "value": "ce48969398f05f33946d560708be108a"},
        {"name": "FPGA_AFU_2", "value": "d8424dc4a4a3c413f89e433683f9040b"},
    ]
    expected["metadata"]["annotations"]["accelbind.dev/requested"] = (
        '{"c0":{"fpga.intel.com/arria10.dcp1.0-nlb0-orchestrated":2}}'
    )
    assert len(asking["env"]) == variables + 4
    assert jsonpatch.apply_patch(before, patch_of(answered)) == expected
    assert response(answered)["uid"] == uid
    assert answered.outcome is ReviewOutcome.PATCHED


def test_doubled_keys_count_as_kubernetes_counts_them() -> None:
    data = body(review()).replace(b'"uid": "', b'"uid": "first", "uid": "')
    assert ask(data).uid == UID


def test_no_mappings_means_no_functions() -> None:
    answered = ask(review(), mappings=EMPTY_INDEX)
    assert "the namespace has no mappings" in answered.message
    forged = pod(container("app", {REGION: "1"}, env=pair(1, afu=NLB3)))
    assert ask(review(forged), mappings=EMPTY_INDEX).outcome is ReviewOutcome.DENIED
    assert NLB0 not in answered.message
