"""Verdicts on pods, and a memory of the last ones.

Most pods are one of many: a Deployment or a Job makes them from one template, and to us they differ
in nothing but the name. `Memory` keeps the verdict on what a pod asks for, with the patch as bytes,
and gives it to the next pod that asks for exactly that in the same mappings.

What `mutate` looks at must all be in `_question`. The tests hold a memory against judging anew.
"""

import weakref
from collections.abc import Hashable
from typing import Final, TypeAlias

import msgspec

from services.domain import env_rules
from services.domain.asks import asking_places
from services.domain.mappings import NamespaceMappings
from services.domain.mutation import Patched, Policy, Refused, Rewrite, Unchanged, mutate
from services.domain.pod import Place, Pod, has_reserved
from services.domain.text import clip, plain

MAX_AUDIT = 2000
"""Characters of one audit annotation: they go into every line of the audit log about the pod."""

REMEMBERED: Final = 256
"""How many verdicts a memory holds, the last ones."""

MAX_REMEMBERED: Final = 16 * 1024
"""How many characters a question and its patch may have to be remembered: 4 MiB for all."""

Question: TypeAlias = tuple[Hashable, ...]

_ENCODER = msgspec.json.Encoder()


class Verdict(msgspec.Struct, frozen=True):
    """What is to be done to a pod, and how it is spelled.

    Attributes:
        result: what `mutate` found.
        patch: the operations as JSON, empty if there are none.
        audit: for the audit log, without a prefix; None if there is nothing to note.
    """

    result: Unchanged | Patched | Refused
    patch: bytes = b""
    audit: dict[str, str] | None = None


class Memory:
    """The last verdicts; for one process, and one thread.

    Args:
        size: how many.
    """

    def __init__(self, size: int = REMEMBERED) -> None:
        self._size = size
        self._known: dict[Question, tuple[weakref.ref[NamespaceMappings], Policy, Verdict]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def judge(self, pod: Pod, mappings: NamespaceMappings, policy: Policy) -> Verdict:
        """Return the verdict on a pod, as `judge` would.

        Raises:
            InvalidReview: the env of a container that asks for our resources can't be read.
        """
        question = _question(pod, mappings.namespace, policy)
        known = self._known.get(question)
        if known is not None and known[0]() is mappings and known[1] is policy:
            return known[2]
        verdict = judge(pod, mappings, policy)
        if _size(question) + len(verdict.patch) <= MAX_REMEMBERED:
            self._known.pop(question, None)
            if len(self._known) >= self._size:
                del self._known[next(iter(self._known))]
            self._known[question] = (weakref.ref(mappings), policy, verdict)
        return verdict


def judge(pod: Pod, mappings: NamespaceMappings, policy: Policy) -> Verdict:
    """Return the verdict on a pod.

    Raises:
        InvalidReview: the env of a container that asks for our resources can't be read.
    """
    result = mutate(pod, mappings, policy)
    if isinstance(result, Unchanged):
        return Verdict(result)
    if isinstance(result, Refused):
        codes = dict.fromkeys(refusal.reason.value for refusal in result.refusals)
        return Verdict(result, audit={"reason": ",".join(codes)})
    rewrites = "; ".join(map(_spelled, result.rewrites))
    audit = {"rewrites": clip(rewrites, MAX_AUDIT)}
    return Verdict(result, _ENCODER.encode(result.operations), audit)


def _spelled(rewrite: Rewrite) -> str:
    container = plain(rewrite.container)
    return f"{container}: {rewrite.logical}={rewrite.count} as {rewrite.resource}"


def _question(pod: Pod, namespace: str, policy: Policy) -> Question:
    """Return everything that the verdict on a pod depends on, but mappings and policy."""
    annotations = pod.metadata.annotations if pod.metadata else None
    asking = asking_places(pod, policy.prefixes)
    return (
        namespace,
        pod.is_mirror,
        pod.metadata is None,
        annotations is None,
        annotations.requested if annotations else None,
        *[_asked(place) for place in asking],
    )


def _asked(place: Place) -> Question:
    container, resources = place.container, place.container.resources
    env = container.env
    return (
        place.path,
        place.sidecar,
        container.name,
        tuple(resources.limits.items()) if resources and resources.limits else None,
        tuple(resources.requests.items()) if resources and resources.requests else None,
        bytes(env) if has_reserved(env, env_rules.RESERVED) else None,
    )


def _size(part: object) -> int:
    """Return how many characters a question has, roughly."""
    if isinstance(part, tuple):
        return sum(map(_size, part)) + 8 * len(part)
    return len(part) if isinstance(part, str | bytes) else 8
