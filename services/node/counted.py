"""The resources whose devices the kubelet still counts.

A kubelet counts the devices that its stream was sent last, for five minutes beyond the end of that
stream, unless the last list was empty.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from services.kubelet.sockets import Identity, identify


class Counted(Protocol):
    """Knows which resources the kubelet counts."""

    def note_sent(self, resource: str, *, is_empty: bool) -> None:
        """Note what the kubelet's stream of a resource is sent."""

    def resources(self) -> Collection[str]:
        """The resources that are counted, in the order of their names."""


class CountedResources:
    """Notes what each resource's stream was sent, for the kubelet at a socket."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._kubelets: dict[str, Identity] = {}

    def note_sent(self, resource: str, *, is_empty: bool) -> None:
        """Note what the kubelet's stream of a resource is sent."""
        kubelet = identify(self._socket)
        if is_empty or kubelet is None:
            self._kubelets.pop(resource, None)
        else:
            self._kubelets[resource] = kubelet

    def resources(self) -> Collection[str]:
        """The resources that are counted, in the order of their names."""
        kubelet = identify(self._socket)  # a restarted one counts nothing
        return sorted(name for name, counts in self._kubelets.items() if counts == kubelet)
