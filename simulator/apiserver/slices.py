"""Checks of ResourceSlices before they are stored.

Fields of features that are off are dropped without a word, and taints are dated.
"""

from collections.abc import Collection, Iterator

from simulator.apiserver.calls import invalid, invalid_value
from simulator.apiserver.resources import SLICES, Json
from simulator.apiserver.store import timestamp


def complete(item: Json, old: Json | None, dropped: Collection[str]) -> None:
    """Date the taints of a slice as a server does; drop fields that it doesn't know."""
    dated = {
        (device["name"], *_identity(taint)): taint.get("timeAdded")
        for device in (old or {"spec": {}})["spec"].get("devices") or []
        for taint in device.get("taints") or []
    }
    for device in item["spec"].get("devices") or []:
        for part in (device, *(device.get("capacity") or {}).values()):
            for name in dropped:
                part.pop(name, None)
        for taint in device.get("taints") or []:
            taint.setdefault(
                "timeAdded", dated.get((device["name"], *_identity(taint))) or timestamp()
            )


def validate(item: Json) -> None:
    """Refuse capacities that are less than the second smallest request."""
    if causes := [*_steps_too_large(item["spec"].get("devices") or [])]:
        raise invalid(SLICES, item["metadata"]["name"], causes)


def _steps_too_large(devices: list[Json]) -> Iterator[str]:
    for number, device in enumerate(devices):
        for name, capacity in (device.get("capacity") or {}).items():
            allowed = capacity.get("requestPolicy", {}).get("validRange", {})
            if step := allowed.get("step"):
                first = int(allowed["min"]) + int(step)
                if first > int(capacity["value"]):
                    field = f"spec.devices[{number}].capacity[{name}].requestPolicy.validRange.step"
                    why = f"one step {first} is larger than capacity value: {capacity['value']}"
                    yield invalid_value(field, step, why)


def _identity(taint: Json) -> tuple[str, str, str]:
    return taint["key"], taint.get("value", ""), taint["effect"]
