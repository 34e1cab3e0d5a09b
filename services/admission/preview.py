"""What the webhook would do to the pods of a manifest."""

import sys
from dataclasses import dataclass
from pathlib import Path

from services.admission.mutate import Patched, Policy, Refused, Unchanged, mutate
from services.mappings.index import MappingIndex
from services.pods.manifests import MAKES_PODS, FoundPod, find_pods
from services.process.errors import InvalidManifest, InvalidReview
from services.process.text import plain
from services.process.yaml import BrokenDocument, read_documents

MAX_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Explained:
    """A pod and what the webhook would do to it."""

    found: FoundPod
    namespace: str
    result: Unchanged | Patched | Refused

    @property
    def is_refused(self) -> bool:
        """Whether it would be refused."""
        return isinstance(self.result, Refused)


def read_pods(path: Path) -> list[FoundPod]:
    """Return the pods of a manifest.

    Args:
        path: a file of YAML or JSON documents, ``-`` for stdin.

    Raises:
        InvalidManifest: it can't be read, or has no pods.
    """
    where = "stdin" if str(path) == "-" else plain(str(path), 200)
    try:
        data = _read(path)
    except OSError as error:
        raise InvalidManifest(f"{where}: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise InvalidManifest(f"{where} has more than {MAX_BYTES} bytes")
    found: list[FoundPod] = []
    for document in read_documents(data, types=True):
        place = f"{where}, line {document.line}"
        if isinstance(document, BrokenDocument):
            raise InvalidManifest(f"{place}: {plain(document.message, 500)}")
        try:
            found += find_pods(document.value) if document.value else ()
        except InvalidManifest as error:
            raise InvalidManifest(f"{place}: {_one_line(error)}") from error
    if not found:
        kinds = ", ".join(MAKES_PODS)
        raise InvalidManifest(f"{where} holds nothing that makes pods ({kinds})")
    return found


def explain_pod(
    found: FoundPod, index: MappingIndex, policy: Policy, *, namespace: str | None
) -> Explained:
    """Return what the webhook would do to a pod.

    Args:
        found: the pod.
        index: the mappings of all namespaces.
        policy: the webhook's.
        namespace: of pods that name none; None for `default`.

    Raises:
        InvalidManifest: the pod can't be read, or names another namespace.
    """
    if namespace is not None and found.namespace not in (None, "", namespace):
        raise InvalidManifest(
            f"{found.label} is of namespace {plain(found.namespace or '')}, not of {namespace}"
        )
    used = found.namespace or namespace or "default"
    try:
        result = mutate(found.pod, index.namespace(used), policy)
    except InvalidReview as error:
        raise InvalidManifest(f"{found.label}: {error}") from error
    return Explained(found, used, result)


def _read(path: Path) -> bytes:
    if str(path) == "-":
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def _one_line(error: Exception) -> str:
    return plain(" ".join(str(error).split()), 500)
