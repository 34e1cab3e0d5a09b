"""Pods in manifests: alone, in lists, and in the templates of workloads.

https://kubernetes.io/docs/concepts/workloads/controllers/
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from services.pods.pod import Pod, decode_pod
from services.process.errors import InvalidManifest, InvalidReview
from services.process.json import UNREADABLE
from services.process.objects import is_kind
from services.process.text import plain

Object: TypeAlias = dict[str, object]

_APPS = ("apps", "extensions")
_GROUPS = {
    "Pod": ("",),
    "List": ("",),
    "CronJob": ("batch",),
    "DaemonSet": _APPS,
    "Deployment": _APPS,
    "Job": ("batch",),
    "PodTemplate": ("",),
    "ReplicaSet": _APPS,
    "ReplicationController": ("",),
    "StatefulSet": _APPS,
}
"""The API groups of kinds; others have kinds of the same names, such as Volcano's Job."""

_TEMPLATE_AT = {
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Deployment": ("spec", "template"),
    "Job": ("spec", "template"),
    "PodTemplate": ("template",),
    "ReplicaSet": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
}

MAKES_PODS = (*_GROUPS,)
"""The kinds of objects that pods are found in."""


@dataclass(frozen=True, slots=True)
class FoundPod:
    """A pod in a manifest."""

    kind: str
    """Of the object that it was found in: ``Pod``, or a kind with a template."""
    name: str
    """Of that object; empty if it has none."""
    namespace: str | None
    """Of that object; None if it names none."""
    manifest: Object
    """The pod, or the template, as it was written, in types of JSON."""
    pod: Pod

    @property
    def label(self) -> str:
        """Its name in messages: ``Pod nlb0``."""
        return _label(self.kind, self.name)

    @property
    def template_at(self) -> str:
        """Where the pod is in that object, such as ``spec.template``; empty if it is the object."""
        return ".".join(_TEMPLATE_AT.get(self.kind, ()))


def find_pods(document: object) -> Iterator[FoundPod]:
    """Yield the pods of one document, as decoded from YAML or JSON.

    Other kinds have none, and so have those of other API groups.

    Raises:
        InvalidManifest: the document or one of its pods can't be read.
    """
    if not isinstance(document, dict):
        raise InvalidManifest("a document of a manifest must be an object with a kind")
    kind = document.get("kind")
    if not isinstance(kind, str):
        raise InvalidManifest("an object of a manifest must have a kind")
    item_kind = kind.removesuffix("List")
    if item_kind != kind and item_kind in {"Pod", *_TEMPLATE_AT}:
        if is_kind(document, kind, *_GROUPS[item_kind]):
            # As kubectl: the items of a `PodList` may leave out its version and their kind.
            inherited = {"apiVersion": document.get("apiVersion"), "kind": item_kind}
            for item in _items(document, kind):
                yield from find_pods(inherited | item if isinstance(item, dict) else item)
        return
    if not is_kind(document, kind, *_GROUPS.get(kind, ())):
        return
    if kind == "Pod":
        yield _found(kind, document, document)
    elif kind in _TEMPLATE_AT:
        yield _found(kind, document, _descend(document, kind, _TEMPLATE_AT[kind]))
    elif kind == "List":
        for item in _items(document, kind):
            yield from find_pods(item)


def _items(document: Object, kind: str) -> Iterator[object]:
    items = document.get("items") or []
    if not isinstance(items, list):
        raise InvalidManifest(f"items of a {kind} must be a list")
    for item in items:
        if is_kind(item, "List", ""):
            raise InvalidManifest("a list within a list is not a manifest")
        yield item


def _descend(document: Object, kind: str, path: tuple[str, ...]) -> Object:
    value: object = document
    for member in path:
        value = value.get(member) if isinstance(value, dict) else None
    if not isinstance(value, dict):
        raise InvalidManifest(f"a {kind} must have an object at {'.'.join(path)}")
    return value


def _found(kind: str, document: Object, manifest: Object) -> FoundPod:
    metadata = document.get("metadata")
    name = namespace = None
    if isinstance(metadata, dict):
        name = metadata.get("name") or metadata.get("generateName")
        namespace = metadata.get("namespace")
    if namespace is not None and not isinstance(namespace, str):
        raise InvalidManifest(f"metadata.namespace of a {kind} must be a text")
    shown = name if isinstance(name, str) else ""
    try:
        encoded = msgspec.json.encode(manifest)
        manifest = msgspec.json.decode(encoded, type=dict[str, object])
        pod = decode_pod(encoded)
    except (InvalidReview, TypeError, *UNREADABLE) as error:
        raise InvalidManifest(f"{_label(kind, shown)}: {error}") from error
    return FoundPod(kind, shown, namespace, manifest, pod)


def _label(kind: str, name: str) -> str:
    return f"{kind} {plain(name)}" if name else kind
