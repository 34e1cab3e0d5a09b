"""AdmissionReviews of pods: bytes in, bytes out."""

from collections.abc import Callable

from services.admission import review as reviews
from services.admission.guard import guard
from services.admission.mutate import (
    REASON,
    Patched,
    Policy,
    Refused,
    Unchanged,
    audit_note,
    mutate,
)
from services.admission.review import Review, ReviewResponse, UnreadableReview, admit, decode, deny
from services.mappings.index import MappingIndex
from services.pods.pod import Pod
from services.pods.reasons import ReviewReason
from services.process.errors import InvalidReview
from services.process.text import listing, plain

_REWRITES_SHOWN = 4


def answer(body: bytes, index: MappingIndex, policy: Policy, *, validating: bool) -> ReviewResponse:
    """Answer a review; `validating` is the last check, after all mutation.

    Raises:
        InvalidReview: the body isn't a review, or has no uid to answer to.
    """
    return _answer(
        body, lambda review, pod: _review_pod(review, pod, index, policy, validating=validating)
    )


def answer_guard(body: bytes, index: MappingIndex, policy: Policy) -> ReviewResponse:
    """Answer a review of a pod of a guarded namespace, after all mutation; raises as `answer`."""
    return _answer(body, lambda review, pod: _guard_pod(review, pod, index, policy))


def _answer(body: bytes, decide: Callable[[Review, Pod], ReviewResponse]) -> ReviewResponse:
    review = decode(body)
    try:
        pod = _new_pod(review)
        return pod if isinstance(pod, ReviewResponse) else decide(review, pod)
    except InvalidReview as error:
        return reviews.unreadable(review, ReviewReason.UNREADABLE_POD, str(error))
    except Exception as error:  # noqa: BLE001 - a crash must answer a denial; the caller logs it
        return reviews.fail(review, error)


def _new_pod(review: Review) -> Pod | ReviewResponse:
    """Return the pod that is created, or the answer if there is none to review."""
    pod = review.pod
    if not review.is_about_pod or review.operation != "CREATE":
        return admit(
            review, ReviewReason.NOT_CREATED if review.is_about_pod else ReviewReason.NOT_A_POD
        )
    if pod is None:
        problem = review.problem if isinstance(review, UnreadableReview) else ""
        raise InvalidReview(problem or "the review has no pod in request.object")
    # Anyone's pod may have the annotation, with a node's name: it would pass unchecked.
    if pod.is_mirror and review.user is not None and review.user.is_node:
        return admit(review, ReviewReason.MIRROR_POD)
    return pod


def _review_pod(
    review: Review, pod: Pod, index: MappingIndex, policy: Policy, *, validating: bool
) -> ReviewResponse:
    mappings = index.namespace(review.namespace)
    decision = mutate(pod, mappings, policy, policy.shared(index))
    if validating and isinstance(decision, Patched):
        return deny(review, ReviewReason.NOT_MUTATED, _not_mutated(decision))
    audit = audit_note(pod, decision, validating=validating)
    if isinstance(decision, Unchanged):
        return admit(review, decision.reason, warnings=decision.warnings, audit=audit)
    if isinstance(decision, Refused):
        return deny(review, decision.refusals[0].code, decision.message, audit=audit)
    return reviews.patch(
        review,
        decision.operations,
        rewrites=decision.rewrites,
        warnings=decision.warnings,
        audit=audit,
    )


def _guard_pod(review: Review, pod: Pod, index: MappingIndex, policy: Policy) -> ReviewResponse:
    if not policy.guard:
        message = "the webhook configuration calls the guard, but the webhook runs without --guard"
        return deny(review, ReviewReason.NOTHING_GUARDED, message)
    refused = guard(pod, index.namespace(review.namespace), policy, policy.shared(index))
    if refused is None:
        return admit(review, ReviewReason.WITHIN_NAMES, audit={REASON: ReviewReason.WITHIN_NAMES})
    audit = audit_note(pod, refused, validating=True)
    return deny(review, refused.refusals[0].code, refused.message, audit=audit)


def _not_mutated(result: Patched) -> str:
    shown = [
        f'{plain(rewrite.key)} in container "{plain(rewrite.ref.container.name)}"'
        for rewrite in result.rewrites[:_REWRITES_SHOWN]
    ]
    names = listing(shown, more=len(result.rewrites) - len(shown))
    return (
        f"{names} was not rewritten to its physical name: either another webhook changed the pod "
        "after accelbind's mutating webhook, or that webhook isn't configured"
    )
