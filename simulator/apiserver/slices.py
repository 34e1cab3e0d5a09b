"""What an API server does to objects of `resource.k8s.io/v1` before it stores them.

ResourceSlices: fields of features that are off are dropped without a word, taints are dated, and
what breaks a limit is refused (`k8s.io/api/resource/v1/types.go`). A slice's driver, pool and node,
and the spec of claims and templates, never change.
"""

import re
from collections.abc import Iterator

from simulator.apiserver.calls import Cause, invalid_value
from simulator.apiserver.resources import CLAIMS, SLICES, TEMPLATES, Json, Resource
from simulator.apiserver.store import timestamp

_FIXED: dict[str, tuple[tuple[str, ...], ...]] = {
    SLICES.qualified: (("spec", "driver"), ("spec", "nodeName"), ("spec", "pool", "name")),
    CLAIMS.qualified: (("spec",),),
    TEMPLATES.qualified: (("spec",),),
}
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ATTRIBUTE = re.compile(r"([^/]{1,63}/)?[A-Za-z_][A-Za-z0-9_]{0,31}")
MOST_DEVICES = 128
MOST_TAINTED = 64
"""Devices of a slice in which any has taints."""
MOST_ATTRIBUTES = 32
LONGEST_TEXT = 64


def complete(item: Json, old: Json | None, *, taints: bool) -> None:
    """Date the taints of a slice as a server does, or drop them where it does not know them."""
    known = {(name, *_identity(taint)): taint for name, taint in _taints(old or {})}
    for device in item["spec"].get("devices") or []:
        if not taints:
            device.pop("taints", None)
        for taint in device.get("taints") or []:
            before = known.get((device["name"], *_identity(taint)), {})
            taint.setdefault("timeAdded", before.get("timeAdded") or timestamp())


def _taints(item: Json) -> Iterator[tuple[str, Json]]:
    for device in item.get("spec", {}).get("devices") or []:
        for taint in device.get("taints") or []:
            yield device["name"], taint


def _identity(taint: Json) -> tuple[str, str, str]:
    return taint["key"], taint.get("value", ""), taint["effect"]


def problems(resource: Resource, item: Json, old: Json | None) -> Iterator[Cause]:
    """The fields of an object that the API server refuses."""
    for path in _FIXED.get(resource.qualified, ()) if old else ():
        if _at(item, path) != _at(old, path):
            yield invalid_value(".".join(path), _at(item, path), "field is immutable")
    if resource is SLICES:
        yield from _slice_problems(item["spec"])


def _at(item: Json | None, path: tuple[str, ...]) -> object:
    value: object = item
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _slice_problems(spec: Json) -> Iterator[Cause]:
    devices = spec.get("devices") or []
    most = MOST_TAINTED if any(one.get("taints") for one in devices) else MOST_DEVICES
    if len(devices) > most:
        yield Cause("spec.devices", f"Too many: {len(devices)}: must have at most {most} items")
    if not spec.get("driver") or not (spec.get("pool") or {}).get("name"):
        yield Cause("spec.driver, spec.pool.name", "Required value")
    names: set[str] = set()
    for at, device in enumerate(devices):
        path, name = f"spec.devices[{at}]", device.get("name", "")
        if not _LABEL.fullmatch(name):
            yield invalid_value(f"{path}.name", name, "must be a lowercase RFC 1123 label")
        if name in names:
            yield Cause(f"{path}.name", f'Duplicate value: "{name}"')
        names.add(name)
        yield from _attribute_problems(f"{path}.attributes", device.get("attributes") or {})


def _attribute_problems(path: str, attributes: Json) -> Iterator[Cause]:
    if len(attributes) > MOST_ATTRIBUTES:
        yield Cause(path, f"Too many: {len(attributes)}: must have at most {MOST_ATTRIBUTES} items")
    for name, value in attributes.items():
        if not _ATTRIBUTE.fullmatch(name):
            yield invalid_value(f"{path}[{name}]", name, "must be a C identifier")
        if len(value) != 1 or value.keys() - {"int", "bool", "string", "version"}:
            yield invalid_value(f"{path}[{name}]", value, "exactly one value must be specified")
        elif len(str(value.get("string", "")).encode()) > LONGEST_TEXT:
            yield Cause(f"{path}[{name}].string", f"Too long: may not be more than {LONGEST_TEXT}")
