"""The API server's answer to the creation of a pod, by a dry run.

https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run
"""

import re
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import msgspec

from services.kube.client import (
    CONFLICT,
    NOT_FOUND,
    UNAUTHORIZED,
    ClusterClient,
    HttpResponse,
    Status,
    segment,
)
from services.kube.lists import decode, decode_object
from services.pods.manifests import FoundPod
from services.process.json import UNREADABLE
from services.process.objects import Object
from services.process.text import plain, words

_WHAT: Final = "the dry run of a pod"
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_SET_BY_SERVER: Final = words(
    "creationTimestamp deletionGracePeriodSeconds deletionTimestamp generation managedFields"
    " resourceVersion selfLink uid"
)
"""Fields of metadata that nobody else sets."""

_EXISTS: Final = "a pod of this name exists already: it was asked about under another name"
_MOST: Final = 4000
"""Characters of a refusal that are shown."""
_NO_ANSWER: Final = frozenset({UNAUTHORIZED, 408, 429, 500, 502, 503, 504})
_UNCALLED: Final = re.compile(r'failed calling webhook "([^"]+)"')
_UNASKED: Final = re.compile(r'admission webhook "([^"]+)" does not support dry run')
_FORBIDDEN: Final = re.compile(r'^(?:Pod|pods) "[^"]*" is (?:forbidden|invalid):[ :]*')
_AUTHORS: Final = (
    ("webhook", "webhook {}", re.compile(r'^admission webhook "([^"]+)" denied the request:? ?')),
    ("webhook-failed", "webhook {}, which can't be called", _UNCALLED),
    (
        "policy",
        "ValidatingAdmissionPolicy {}",
        re.compile(r"^ValidatingAdmissionPolicy '([^']+)' with binding '[^']+' denied request: "),
    ),
    ("quota", "ResourceQuota {}", re.compile(r"(?:exceeded|failed) quota: ([^,:]+)")),
    ("pod-security", "pod security {}", re.compile(r'violates PodSecurity "([^"]+)"')),
    ("limit-range", "a LimitRange", re.compile(r"(?:usage|ratio) per (Container|Pod) is")),
)
"""Code, name and words of those who refuse pods, the rest being the API server itself."""
API_SERVER: Final = "api-server"


@dataclass(frozen=True, slots=True)
class Admitted:
    """A pod as it would be."""

    pod: Object
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Denied:
    """The first refusal of a pod; later ones are not known."""

    code: str
    author: str
    message: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NotAsked:
    """The API server did not say what the creation of a pod would come to."""

    reason: str


DryRun: TypeAlias = Admitted | Denied | NotAsked


class _ReviewStatus(msgspec.Struct):
    allowed: bool


class _Review(msgspec.Struct):
    status: _ReviewStatus


_REVIEW: Final = msgspec.json.Decoder(_Review)


async def may_create(client: ClusterClient, namespace: str) -> bool:
    """Whether the caller may create pods in a namespace; if not, that is no refusal of a pod.

    Raises:
        ClusterError: the API server doesn't answer.
    """
    attributes = {"namespace": namespace, "verb": "create", "version": "v1", "resource": "pods"}
    review = {"spec": {"resourceAttributes": attributes}}
    answer = await client.request("POST", _REVIEWS, body=review)
    if answer.status == NOT_FOUND:  # a server without authorization
        return True
    body = client.expect(answer, f"POST {_REVIEWS}").body
    return (await decode(body, _REVIEWS, _REVIEW)).status.allowed


async def dry_run(client: ClusterClient, found: FoundPod, namespace: str) -> DryRun:
    """Create a pod without its effect, as kubectl or a controller would.

    Raises:
        ClusterError: the API server doesn't answer.
    """
    pod = pod_of(found, namespace)
    answer = await _create(client, pod, namespace, strict=found.is_known)
    if answer.status == CONFLICT and not found.is_template:
        # All admission has passed, but the answer doesn't show the pod.
        answer = await _create(client, _renamed(pod, found.name), namespace, strict=True)
        result = await _read(client, answer)
        if isinstance(result, Admitted):
            metadata: Any = result.pod["metadata"]
            metadata.pop("generateName", None)
            result.pod["metadata"] = metadata | {"name": found.name}
            result = replace(result, warnings=(*result.warnings, _EXISTS))
        return result
    return await _read(client, answer)


def pod_of(found: FoundPod, namespace: str) -> Object:
    """Return the pod of a manifest, or one that a controller would make of a template."""
    written: Any = found.manifest
    metadata = {
        key: each
        for key, each in (written.get("metadata") or {}).items()
        if key not in _SET_BY_SERVER
    }
    spec = dict(written.get("spec") or {})
    if found.claimed:
        claims = (
            {"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{found.name}-0"}}
            for name in found.claimed
        )
        spec["volumes"] = [*(spec.get("volumes") or ()), *claims]
    metadata["namespace"] = namespace
    pod: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    if not found.is_template:
        rest = {key: each for key, each in written.items() if key not in {*pod, "status"}}
        return pod | rest
    return _renamed(pod, found.name)


def _renamed(pod: Any, name: str) -> Object:  # noqa: ANN401 - JSON
    metadata = {key: each for key, each in pod["metadata"].items() if key != "name"}
    made: Object = pod | {"metadata": metadata | {"generateName": f"{name.rstrip('-') or 'pod'}-"}}
    return made


async def _create(
    client: ClusterClient, pod: Object, namespace: str, *, strict: bool
) -> HttpResponse:
    # As kubectl; the objects of others have fields in their templates that pods don't have.
    params = {"dryRun": "All", "fieldValidation": "Strict" if strict else "Warn"}
    path = f"/api/v1/namespaces/{segment(namespace)}/pods"
    return await client.request("POST", path, params=params, body=pod)


async def _read(client: ClusterClient, answer: HttpResponse) -> DryRun:
    if answer.status < 400:
        pod = await decode_object(client.expect(answer, _WHAT).body, _WHAT)
        metadata = pod.get("metadata") or {}
        pod["metadata"] = {key: metadata[key] for key in metadata if key not in _SET_BY_SERVER}
        pod.pop("status", None)
        return Admitted(pod, answer.warnings)
    try:
        message = msgspec.json.decode(answer.body, type=Status).message
    except UNREADABLE:
        message = ""
    if unasked := _UNASKED.search(message):
        return NotAsked(f"webhook {unasked[1]} does not support dry runs")
    denied = _denied(message, answer.warnings)
    # Webhooks choose the status of their refusals.
    is_known = denied.code != API_SERVER
    if not (message and (is_known or answer.status not in _NO_ANSWER)):
        client.expect(answer, _WHAT)
    return denied


def _denied(message: str, warnings: tuple[str, ...]) -> Denied:
    text = _FORBIDDEN.sub("", " ".join(message.split()))
    for code, author, own in _AUTHORS:
        if known := own.search(text):
            # Of the author's own words, what comes before them says nothing more.
            rest = text[known.end() :] if code in {"webhook", "policy"} else text
            return Denied(
                code, author.format(plain(known[1])), plain(rest or text, _MOST), warnings
            )
    return Denied(API_SERVER, "the API server", plain(text, _MOST), warnings)
