"""The resources of which the kubelet still counts devices, or whose devices pods still have.

A kubelet counts the devices that its stream was sent last, for five minutes beyond the end of that
stream, unless the last list was empty. Of a resource whose devices a pod has it wants an endpoint
whenever a container of the pod starts.
"""

from collections.abc import Collection, Iterable
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
        self._ours: set[str] = set()
        self._held: frozenset[str] = frozenset()

    def note_sent(self, resource: str, *, is_empty: bool) -> None:
        """Note what the kubelet's stream of a resource is sent."""
        kubelet = identify(self._socket)
        self._ours.add(resource)
        if is_empty or kubelet is None:
            self._kubelets.pop(resource, None)
        else:
            self._kubelets[resource] = kubelet

    def take_over(self, resources: Iterable[str]) -> None:
        """Count resources that a process before this one has left behind."""
        for resource in resources:
            self.note_sent(resource, is_empty=False)

    def note_held(self, resources: Iterable[str]) -> None:
        """Note of which resources pods have devices now."""
        self._held = frozenset(resources)

    def resources(self) -> Collection[str]:
        """The resources of this or an earlier process that are counted or held, sorted."""
        kubelet = identify(self._socket)  # a restarted one counts nothing
        counted = {name for name, counts in self._kubelets.items() if counts == kubelet}
        return sorted(counted | (self._held & self._ours))
