"""Which starts the OCI hook has yet to confirm, in hook mode.

The kubelet calls `PreStartContainer` before the runtime calls the hook, so a start is allowed first
and confirmed afterwards. A start is in one of these states:

- **unknown**: it never was allowed, or it was confirmed, or too long ago. It may be allowed.
- **pending**: it was allowed, and the hook has not been called for it. When its container asks to
  start again, its runtime seems to start containers without the hook, so that is refused.

A start can fail before its hook for other reasons, such as a missing ConfigMap. So a pending start
is no obstacle any more once the hook was called for a later start on this node, or once
`FORGET_SECONDS` are over. Nothing of this outlives the plugin's process: after a restart each
container may try once more, and it gets its device nodes only together with the hook anyway.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from services.containers.identity import ContainerIdentity
from services.kubelet.values import Entry
from services.process.errors import HookMissing
from services.process.text import listing, plain, quote

FORGET_SECONDS: Final = 300.0
"""For how long a start that was not confirmed is an obstacle."""


@dataclass(frozen=True, slots=True)
class HookedStart:
    """A start of a container with devices of a resource."""

    containers: frozenset[ContainerIdentity]
    """Those that may be the one that starts."""
    resource: str
    devices: frozenset[str]


def check_nodes(allocations: Iterable[Entry]) -> None:
    """Refuse a container that was given device nodes otherwise than through CDI.

    The kubelet keeps what a container was allocated until its pod is deleted. A container that was
    allocated devices before hook mode gets its nodes from there, even if nothing calls the hook.
    """
    for each in allocations:
        if each.nodes != ():
            nodes = listing([plain(node) for node in (each.nodes or ["unknown nodes"])[:8]])
            raise HookMissing(
                f"container {quote(each.container)} was allocated its devices before this node"
                f" used --programming=oci-hook: the kubelet gives it {nodes} without CDI, and so"
                " without the OCI hook that programs them; delete the pod; a new one gets"
                " its devices through CDI"
            )


class HookStarts:
    """The starts of this node that were allowed and that the hook has yet to confirm."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pending: dict[HookedStart, float] = {}
        self._confirmed_at: float | None = None

    def __len__(self) -> int:
        return len(self._pending)

    def check(self, start: HookedStart) -> None:
        """Refuse a start of a container that was allowed before, and the hook was not called."""
        allowed_at = self._pending.get(start)
        if allowed_at is None:
            return
        confirmed = self._confirmed_at is not None and self._confirmed_at > allowed_at
        if confirmed or self._clock() - allowed_at >= FORGET_SECONDS:
            return
        devices = listing([plain(each) for each in sorted(start.devices)[:8]])
        raise HookMissing(
            "the container runtime has not called accelbind's OCI hook for the last start with"
            f" {devices}. Check that the runtime uses CDI files (containerd 1.7 or newer with"
            " enable_cdi, or CRI-O) from the folder of --cdi-dir, that the kubelet passes CDI"
            " device names (Kubernetes 1.29 or newer), and that the hook is at --hook-path. If"
            " the start failed for another reason, an earlier Event of the pod says so. The plugin"
            f" allows another try {FORGET_SECONDS / 60:.0f} minutes after that start, or once the"
            " hook is called for another container"
        )

    def allow(self, start: HookedStart) -> None:
        """Remember that a start was allowed."""
        now = self._clock()
        recent = {each: at for each, at in self._pending.items() if now - at < FORGET_SECONDS}
        self._pending = recent | {start: now}

    def withdraw(self, start: HookedStart) -> None:
        """Forget other starts of a container whose start is refused.

        The kubelet asks once for each resource of a container. If one is refused, the hook is not
        called, and that says nothing about the others.
        """
        for each in self._pending_of(start.containers):
            if each != start:
                del self._pending[each]

    def confirm(self, container: ContainerIdentity) -> None:
        """Note that the hook was called for a container."""
        for each in self._pending_of({container}):
            del self._pending[each]
            self._confirmed_at = self._clock()

    def _pending_of(self, containers: Collection[ContainerIdentity]) -> list[HookedStart]:
        return [each for each in self._pending if not each.containers.isdisjoint(containers)]
