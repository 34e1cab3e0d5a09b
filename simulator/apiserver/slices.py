"""Checks of ResourceSlices before they are stored.

Fields of features that are off are dropped without a word, and taints are dated.
"""

from collections.abc import Collection

from simulator.apiserver.resources import Json
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


def _identity(taint: Json) -> tuple[str, str, str]:
    return taint["key"], taint.get("value", ""), taint["effect"]
