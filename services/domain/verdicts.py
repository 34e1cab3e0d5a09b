"""Verdicts on pods: what is to be done to one, and what the audit log is told of it."""

from typing import Final

import msgspec

from services.domain.mappings import NamespaceMappings
from services.domain.mutation import (
    Patched,
    Policy,
    Refused,
    Rewrite,
    Unchanged,
    UnchangedReason,
    mutate,
)
from services.domain.pod import Pod
from services.domain.text import clip, plain

MAX_AUDIT: Final = 8000
"""Characters of one audit annotation: they go into every line of the audit log about the pod."""

REWRITTEN: Final = "rewritten"
"""What the audit log has for a reason where a pod is patched."""


class Verdict(msgspec.Struct, frozen=True):
    """What is to be done to a pod, and how it is spelled.

    Attributes:
        result: what `mutate` found.
        audit: for the audit log, without a prefix; None if there is nothing to note.
    """

    result: Unchanged | Patched | Refused
    audit: dict[str, str] | None = None


def judge(pod: Pod, mappings: NamespaceMappings, policy: Policy) -> Verdict:
    """Return the verdict on a pod.

    Raises:
        InvalidReview: the env of a container that asks for our resources can't be read.
    """
    result = mutate(pod, mappings, policy)
    if isinstance(result, Unchanged):
        silent = result.reason is UnchangedReason.NOTHING_ASKED
        return Verdict(result, audit=None if silent else {"reason": result.reason.value})
    if isinstance(result, Refused):
        codes = dict.fromkeys(refusal.reason.value for refusal in result.refusals)
        return Verdict(result, audit={"reason": ",".join(codes)})
    rewrites = "; ".join([_spelled(rewrite) for rewrite in result.rewrites])
    audit = {"reason": REWRITTEN, "rewrites": clip(rewrites, MAX_AUDIT)}
    return Verdict(result, audit)


def _spelled(rewrite: Rewrite) -> str:
    container = plain(rewrite.container)
    return f"{container}: {rewrite.logical}={rewrite.count} as {rewrite.resource}"
