"""Pods in manifests: alone, in lists, and as templates in any object.

A template is known by its shape, an object whose `spec` has `containers`: Kubernetes' workloads,
KubeRay, JobSet, Kubeflow and others have theirs in different places. Those of Argo Workflows have
another shape (https://argo-workflows.readthedocs.io/en/latest/fields/#template).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from services.pods.pod import Pod, decode_pod
from services.process.errors import InvalidManifest, InvalidReview
from services.process.json import UNREADABLE
from services.process.objects import group_of, is_kind
from services.process.text import plain, words

Object: TypeAlias = dict[str, object]
_Template: TypeAlias = tuple[str, Object]
"""Where it is in its object, and the template."""

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
_OF_WORKFLOWS: Final = words(
    "affinity nodeSelector priorityClassName schedulerName securityContext serviceAccountName"
    " tolerations"
)
"""Fields of an Argo Workflow, and of its templates, that its pods have too."""

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
        for place, template in templates:
            yield _found(each, place, template, is_one_of_several=len(templates) > 1)


def object_label(document: Object) -> str:
    """Return the name of an object in messages."""
    metadata = document.get("metadata")
    name = (
        metadata.get("name") or metadata.get("generateName") if isinstance(metadata, dict) else ""
    )
    return _label(str(document.get("kind")), name if isinstance(name, str) else "")


def _templates_of(document: Object) -> Iterator[_Template]:
    if is_kind(document, "Pod", ""):
        yield "", document
    elif group_of(str(document.get("apiVersion"))) == _ARGO:
        yield from _in_workflow(_outside(document))
    else:
        yield from _templates("", _outside(document))


def _outside(document: Object) -> Object:
    """Return an object without the fields that have no templates, and may be long."""
    return {key: each for key, each in document.items() if key not in ("metadata", "status")}


def _templates(place: str, value: object, levels: int = _DEEPEST) -> Iterator[_Template]:
    if isinstance(value, dict) and levels:
        spec = value.get("spec")
        if isinstance(spec, dict) and ("containers" in spec or "initContainers" in spec):
            yield place, value
            return
        for key, each in value.items():
            yield from _templates(f"{place}.{key}" if place else str(key), each, levels - 1)
    elif isinstance(value, list) and levels:
        for number, each in enumerate(value):
            yield from _templates(f"{place}[{number}]", each, levels - 1)


def _in_workflow(value: object, place: str = "") -> Iterator[_Template]:
    """Yield the pods of an Argo Workflow, without what Argo adds to them."""
    if not isinstance(value, dict):
        return
    for number, template in enumerate(_items(value.get("templates"))):
        containers = _containers_of(template) if isinstance(template, dict) else []
        if containers:
            parts = (value, template)
            shared = {
                key: each for part in parts for key, each in part.items() if key in _OF_WORKFLOWS
            }
            lists = {
                "volumes": [each for part in parts for each in _items(part.get("volumes"))],
                "containers": containers,
                "initContainers": _items(template.get("initContainers")),
            }
            # An API server drops empty ones, which would look like a change of the pod.
            pod = {key: each for key, each in lists.items() if each}
            spec = {"restartPolicy": "Never", **shared, **pod}
            made = {"metadata": template.get("metadata"), "spec": spec}
            yield f"{place}.templates[{number}]", made
    for key in ("spec", "workflowSpec"):
        yield from _in_workflow(value.get(key), f"{place}.{key}" if place else key)


def _containers_of(template: dict[str, Any]) -> list[Any]:
    """Return the containers of a template of an Argo Workflow; none if it makes no pod."""
    main = template.get("container") or template.get("script")
    if isinstance(main, dict):
        own = {key: each for key, each in main.items() if key != "source"}
        return [{"name": "main"} | own, *_items(template.get("sidecars"))]
    several = template.get("containerSet")
    return _items(several.get("containers")) if isinstance(several, dict) else []


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _found(document: Object, place: str, manifest: Object, *, is_one_of_several: bool) -> FoundPod:
    kind, metadata = str(document["kind"]), document.get("metadata")
    name = namespace = None
    if isinstance(metadata, dict):
        name = metadata.get("name") or metadata.get("generateName")
        namespace = metadata.get("namespace")
    if namespace is not None and not isinstance(namespace, str):
        raise InvalidManifest(f"metadata.namespace of a {plain(kind)} must be a text")
    try:
        encoded = msgspec.json.encode(manifest)
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
        place,
        is_known=kind in _GROUPS and is_kind(document, kind, *_GROUPS[kind]),
        is_one_of_several=is_one_of_several,
        claimed=tuple(_claimed(document.get("spec"))),
    )


def _claimed(spec: object) -> Iterator[str]:
    """Yield the volumes that come of `volumeClaimTemplates`, as in a StatefulSet."""
    for each in _items(spec.get("volumeClaimTemplates") if isinstance(spec, dict) else None):
        metadata = each.get("metadata") if isinstance(each, dict) else None
        if isinstance(metadata, dict) and isinstance(metadata.get("name"), str):
            yield metadata["name"]


def _label(kind: str, name: str) -> str:
    return f"{plain(kind)} {plain(name)}" if name else plain(kind)
