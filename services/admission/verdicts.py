"""Verdicts on pods: what is to be done to one, and what the audit log is told of it."""

from typing import Final

import msgspec

from services.admission.mutate import (
    Patched,
    Policy,
    Refused,
    Rewrite,
    Unchanged,
    UnchangedReason,
    mutate,
)
from services.mappings.index import NamespaceMappings
from services.pods.pod import Pod
from services.process.text import clip, plain

MAX_AUDIT: Final = 8000
"""Characters of one audit annotation: they go into every line of the audit log about the pod."""

REWRITTEN: Final = "rewritten"
"""What the audit log has for a reason where a pod is patched."""

REASON: Final = "reason"
"""The annotation that has the reasons."""
REWRITES: Final = "rewrites"
"""The one that has each rewrite."""
AGAIN: Final = "-again"
"""What these two end in where the pod has been mutated before; see `reason_key`."""


class Verdict(msgspec.Struct, frozen=True):
    """What is to be done to a pod, and how it is spelled.

    Attributes:
        result: what `mutate` found.
        audit: for the audit log, without a prefix; None if there is nothing to note.
    """

    result: Unchanged | Patched | Refused
    audit: dict[str, str] | None = None


def judge(
    pod: Pod, mappings: NamespaceMappings, policy: Policy, *, validating: bool = False
) -> Verdict:
    """Return the verdict on a pod.

    Args:
        pod: as it came.
        mappings: those of its namespace.
        policy: the administrator's.
        validating: whether this is the last check.

    Raises:
        InvalidReview: the env of a container that asks for our resources can't be read.
    """
    result = mutate(pod, mappings, policy)
    if isinstance(result, Unchanged):
        if result.reason is UnchangedReason.NOTHING_ASKED:
            return Verdict(result)
        return Verdict(result, {reason_key(pod, validating=validating): result.reason.value})
    if isinstance(result, Refused):
        codes = dict.fromkeys(refusal.reason.value for refusal in result.refusals)
        return Verdict(result, {reason_key(pod, validating=validating): ",".join(codes)})
    if validating:
        return Verdict(result)  # whoever asked refuses it
    rewrites = clip("; ".join([_spelled(rewrite) for rewrite in result.rewrites]), MAX_AUDIT)
    if pod.is_noted:
        return Verdict(result, {REASON + AGAIN: REWRITTEN, REWRITES + AGAIN: rewrites})
    return Verdict(result, {REASON: REWRITTEN, REWRITES: rewrites})


def reason_key(pod: Pod, *, validating: bool) -> str:
    """Return the annotation for the reasons of a verdict.

    A pod is judged two or three times: mutated, once more if a webhook after ours changes it, and
    validated. An API server keeps the first value of an annotation, drops others and complains in
    its log (k8s.io/apiserver, `AddAuditAnnotation`), so the second time has a name of its own. The
    last needs none: it is another webhook's, whose name stands before the annotation's.
    """
    return REASON + AGAIN if pod.is_noted and not validating else REASON


def _spelled(rewrite: Rewrite) -> str:
    container = plain(rewrite.container)
    return f"{container}: {rewrite.logical}={rewrite.count} as {rewrite.resource}"
