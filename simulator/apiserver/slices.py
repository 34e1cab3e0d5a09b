"""Checks of ResourceSlices before they are stored.

Fields of features that are off are dropped without a word, and taints are dated.
"""

from simulator.apiserver.resources import Json
from simulator.apiserver.store import timestamp


def complete(item: Json, old: Json | None, *, taints: bool, shares: bool) -> None:
    """Date the taints of a slice as a server does; drop taints and shares that it doesn't know."""
    dated = {
        (device["name"], *_identity(taint)): taint.get("timeAdded")
        for device in (old or {"spec": {}})["spec"].get("devices") or []
        for taint in device.get("taints") or []
    }
    for device in item["spec"].get("devices") or []:
        if not taints:
            device.pop("taints", None)
        if not shares:
            device.pop("allowMultipleAllocations", None)
            for capacity in (device.get("capacity") or {}).values():
                capacity.pop("requestPolicy", None)
        for taint in device.get("taints") or []:
            taint.setdefault(
                "timeAdded", dated.get((device["name"], *_identity(taint))) or timestamp()
            )


def _identity(taint: Json) -> tuple[str, str, str]:
    return taint["key"], taint.get("value", ""), taint["effect"]
