"""Pods in manifests: alone, in lists, and as templates in any object.

A template is known by its shape, an object whose `spec` has `containers`: Kubernetes' workloads,
KubeRay, JobSet, Kubeflow and others have theirs in different places. Those of Argo Workflows have
another shape, see `services.pods.workflows`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from services.pods.pod import Pod, decode_pod
from services.pods.workflows import Template, in_workflow, items_of
from services.process.errors import InvalidManifest, InvalidReview
from services.process.json import UNREADABLE
from services.process.objects import Object, group_of, is_kind
from services.process.text import plain

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
"""The API groups of Kubernetes' own kinds; others have kinds of the same names."""
_KINDS = {kind.lower(): kind for kind in _GROUPS}

_ARGO: Final = "argoproj.io"
_DEEPEST: Final = 16
"""Levels of an object in which templates are looked for."""


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
    template_at: str = ""
    """Where the pod is in that object, such as ``spec.template``; empty if it is the object."""
    is_known: bool = True
    """Whether the object is of a kind of Kubernetes, whose templates have a pod's fields only."""
    is_one_of_several: bool = False
    """Whether the object has more templates."""
    claimed: tuple[str, ...] = ()
    """Volumes that its controller adds, by their claim templates."""
    unread: tuple[str, ...] = ()
    """Fields by which its controller changes it in ways that were not read."""

    @property
    def label(self) -> str:
        """Its name in messages: ``Pod nlb0``, ``RayCluster r, spec.headGroupSpec.template``."""
        place = f", {self.template_at}" if self.is_one_of_several else ""
        return f"{_label(self.kind, self.name)}{place}"

    @property
    def is_template(self) -> bool:
        """Whether a controller makes pods of it."""
        return bool(self.template_at) or self.kind != "Pod"

    def namespace_among(self, given: str | None, default: str = "default") -> str:
        """Return its namespace, where `given` or, without that, `default` is the usual one.

        Raises:
            InvalidManifest: it names another than `given`.
        """
        if given is not None and self.namespace not in (None, "", given):
            raise InvalidManifest(
                f"{self.label} is of namespace {plain(self.namespace or '')}, not of {given}"
            )
        return self.namespace or given or default


def find_objects(document: object) -> Iterator[Object]:
    """Yield the objects of one document, as decoded from YAML or JSON: itself, or those of a list.

    Raises:
        InvalidManifest: the document can't be read.
    """
    if not isinstance(document, dict):
        raise InvalidManifest("a document of a manifest must be an object with a kind")
    kind = document.get("kind")
    if not isinstance(kind, str):
        raise InvalidManifest("an object of a manifest must have a kind")
    known = _KINDS.get(kind.lower(), kind)
    if known != kind and is_kind(document, kind, *_GROUPS[known]):
        raise InvalidManifest(f"Kubernetes has no kind {plain(kind)}; did you mean {known}?")
    if not kind.endswith("List"):
        yield document
        return
    items = document.get("items") or []
    item_kind = kind.removesuffix("List")
    if not isinstance(items, list):
        groups = _GROUPS.get(item_kind or "List")
        if groups and is_kind(document, kind, *groups):
            raise InvalidManifest(f"items of a {plain(kind)} must be a list")
        yield document  # of a kind that is no list
        return
    # As kubectl: the items of a `PodList` may leave out its version and their kind.
    own = {"apiVersion": document.get("apiVersion"), "kind": item_kind} if item_kind else {}
    for item in items:
        if is_kind(item, "List", ""):
            raise InvalidManifest("a list within a list is not a manifest")
        yield from find_objects(own | item if isinstance(item, dict) else item)


def find_pods(document: object) -> Iterator[FoundPod]:
    """Yield the pods and the templates of one document, as decoded from YAML or JSON.

    Raises:
        InvalidManifest: the document or one of its pods can't be read.
    """
    for each in find_objects(document):
        templates = [*_templates_of(each)]
        for template in templates:
            yield _found(each, template, is_one_of_several=len(templates) > 1)


def object_label(document: Object) -> str:
    """Return the name of an object in messages."""
    metadata = document.get("metadata")
    name = (
        metadata.get("name") or metadata.get("generateName") if isinstance(metadata, dict) else ""
    )
    return _label(str(document.get("kind")), name if isinstance(name, str) else "")


def _templates_of(document: Object) -> Iterator[Template]:
    if is_kind(document, "Pod", ""):
        yield Template("", document)
        return
    # Metadata and status have no templates, and may be long.
    parts = {key: each for key, each in document.items() if key not in ("metadata", "status")}
    yield from _templates("", parts)


def _templates(
    place: str,
    value: object,
    levels: int = _DEEPEST,
    *,
    is_of_argo: bool = False,
    namespace: object = None,
) -> Iterator[Template]:
    if isinstance(value, dict) and levels:
        if "kind" in value and isinstance(metadata := value.get("metadata"), dict):
            namespace = metadata.get("namespace") or namespace  # an object within another
        spec = value.get("spec")
        if isinstance(spec, dict) and ("containers" in spec or "initContainers" in spec):
            yield Template(place, value, namespace=namespace)
            return
        is_of_argo = is_of_argo or group_of(str(value.get("apiVersion"))) == _ARGO
        if is_of_argo:
            made = in_workflow(value, place)
            yield from (each._replace(namespace=namespace) for each in made)
        parts = ((f"{place}.{key}" if place else str(key), each) for key, each in value.items())
    elif isinstance(value, list) and levels:
        parts = ((f"{place}[{number}]", each) for number, each in enumerate(value))
    else:
        return
    for there, each in parts:
        yield from _templates(there, each, levels - 1, is_of_argo=is_of_argo, namespace=namespace)


def _found(document: Object, template: Template, *, is_one_of_several: bool) -> FoundPod:
    kind, metadata = str(document["kind"]), document.get("metadata")
    name = namespace = None
    if isinstance(metadata, dict):
        name = metadata.get("name") or metadata.get("generateName")
        namespace = metadata.get("namespace")
    is_known = kind in _GROUPS and is_kind(document, kind, *_GROUPS[kind])
    if not is_known:  # controllers of Kubernetes make pods beside their objects
        namespace = template.namespace or namespace
    if namespace is not None and not isinstance(namespace, str):
        raise InvalidManifest(f"metadata.namespace of a {plain(kind)} must be a text")
    try:
        encoded = msgspec.json.encode(template.manifest)
        manifest = msgspec.json.decode(encoded, type=dict[str, object])
        pod = decode_pod(encoded)
    except (InvalidReview, TypeError, *UNREADABLE) as error:
        raise InvalidManifest(f"{object_label(document)}: {error}") from error
    return FoundPod(
        kind,
        name if isinstance(name, str) else "",
        namespace,
        manifest,
        pod,
        template.place,
        is_known=is_known,
        is_one_of_several=is_one_of_several,
        claimed=tuple(_claimed(document.get("spec"))),
        unread=template.unread,
    )


def _claimed(spec: object) -> Iterator[str]:
    """Yield the volumes that come of `volumeClaimTemplates`, as in a StatefulSet."""
    for each in items_of(spec.get("volumeClaimTemplates") if isinstance(spec, dict) else None):
        metadata = each.get("metadata") if isinstance(each, dict) else None
        if isinstance(metadata, dict) and isinstance(metadata.get("name"), str):
            yield metadata["name"]


def _label(kind: str, name: str) -> str:
    return f"{plain(kind)} {plain(name)}" if name else plain(kind)
