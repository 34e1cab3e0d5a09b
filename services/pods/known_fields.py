"""Fields of a manifest that Kubernetes does not know, on the way to `resources`.

Otherwise `resource:` for `resources:` would look like a pod that asks for nothing. The API server
ignores such a field with a warning, and kubectl refuses it. Other fields only a dry run knows.
"""

import difflib
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from services.pods.manifests import FoundPod
from services.process.text import plain, quote

FieldPlace: TypeAlias = tuple[str, object, frozenset[str]]
"""A path, what is there, and the fields of the way that an object there may have."""

_SPEC: Final = frozenset({"containers", "initContainers", "resources"})
_CONTAINER: Final = frozenset({"resources"})
_RESOURCES: Final = frozenset({"claims", "limits", "requests"})
"""All that there are."""
_WAY: Final = sorted({"spec"} | _SPEC | _RESOURCES)
_SIMILAR: Final = 0.8
"""No other field of a pod is that similar to one of the way."""


def manifest_problems(found: FoundPod) -> Iterator[str]:
    """Yield a sentence for each field that misspells or misplaces one of the way, or lacks."""
    root = f"{found.template_at}." if found.template_at else ""
    for path, value, known in _places(found, root):
        for name in sorted(value.keys() - known) if isinstance(value, dict) else ():
            near = difflib.get_close_matches(name, known, n=1)
            if known is _RESOURCES or difflib.get_close_matches(name, _WAY, 1, _SIMILAR):
                meant = f'; did you mean "{near[0]}"?' if near else ""
                text = quote(plain(f"{path}{name}", 200), 200)
                yield f"Kubernetes has no field {text}{meant}"
    yield from unread_parts(found)
    if found.pod.spec is None or not found.pod.spec.containers:
        yield f"{root}spec{'' if found.pod.spec is None else '.containers'} is missing"


def unread_parts(found: FoundPod) -> Iterator[str]:
    """Yield a sentence for each part that was not read as it is written.

    Those are quantities that are null, as templates of Helm make them, and patches.
    """
    yield from (f"{path} was not read: it may ask for more" for path in found.unread)
    root = f"{found.template_at}." if found.template_at else ""
    for path, value, known in _places(found, root):
        for part in ("limits", "requests") if known is _RESOURCES else ():
            quantities = value.get(part) if isinstance(value, dict) else None
            for key, quantity in quantities.items() if isinstance(quantities, dict) else ():
                if quantity is None:
                    yield f"{path}{part} has null for {plain(key)}, which Kubernetes reads as 0"


def _places(found: FoundPod, root: str) -> Iterator[FieldPlace]:
    """Yield the objects whose fields are checked."""
    spec: Any = found.manifest.get("spec") or {}  # an object: `found.pod` was read from it
    yield root, found.manifest, frozenset({"spec"})
    yield f"{root}spec.", spec, _SPEC
    yield f"{root}spec.resources.", spec.get("resources"), _RESOURCES
    for group in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(group) or ()):
            path = f"{root}spec.{group}[{number}]."
            yield path, container, _CONTAINER
            yield f"{path}resources.", container.get("resources"), _RESOURCES
