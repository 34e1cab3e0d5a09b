"""Whether the container runtime calls the OCI hook, in hook mode.

The kubelet calls `PreStartContainer` before the runtime calls the hook, so a start is allowed
first. If no hook is called on this node until its container asks to start again, the runtime seems
to start containers without the hook, and that start is refused.

A start can fail before its hook for other reasons, such as a missing ConfigMap, so it counts only
for `FORGET_SECONDS`. Nothing of this outlives the plugin's process: a container gets its device
nodes only together with the hook anyway.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from services.containers.identity import ContainerIdentity
from services.kubelet.values import Entry
from services.process.errors import HookMissing
from services.process.text import listing, plain, quote

FORGET_SECONDS: Final = 300.0
"""For how long a start without a hook is an obstacle."""

Containers: TypeAlias = frozenset[ContainerIdentity]
"""Those that may be the one that starts."""


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
    """The starts of this node that were allowed, and the last call of the hook."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._allowed: dict[tuple[Containers, str], float] = {}
        """When a start with devices of a resource was allowed last."""
        self._called_at = float("-inf")

    def check(self, containers: Containers, resource: str, devices: Sequence[str]) -> None:
        """Refuse a start of a container that was allowed before, if no hook was called since."""
        allowed_at = self._allowed.get((containers, resource), float("-inf"))
        if allowed_at <= self._called_at or self._clock() - allowed_at >= FORGET_SECONDS:
            return
        shown = listing([plain(each) for each in devices[:8]])
        raise HookMissing(
            "the container runtime has not called accelbind's OCI hook for the last start with"
            f" {shown}. Check that the runtime uses CDI files (containerd 1.7 or newer with"
            " enable_cdi, or CRI-O) from the folder of --cdi-dir, that the kubelet passes CDI"
            " device names (Kubernetes 1.29 or newer), and that the hook is at --hook-path. If"
            " the start failed for another reason, an earlier Event of the pod says so. The plugin"
            f" allows another try {FORGET_SECONDS / 60:.0f} minutes after that start, or once the"
            " hook is called for another container"
        )

    def allow(self, containers: Containers, resource: str) -> None:
        """Remember that a start was allowed."""
        now = self._clock()
        recent = {key: at for key, at in self._allowed.items() if now - at < FORGET_SECONDS}
        self._allowed = recent | {(containers, resource): now}

    def withdraw(self, containers: Containers, resource: str) -> None:
        """Forget a container's starts with other resources, since one with this is refused.

        The kubelet asks once for each resource of a container. If one is refused, the hook is not
        called, and that says nothing about the others.
        """
        for each in list(self._allowed):
            if each[0] & containers and each[1] != resource:
                del self._allowed[each]

    def called(self) -> None:
        """Note that the hook was called for a container of this node."""
        self._called_at = self._clock()
