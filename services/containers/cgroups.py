"""Which pods still have a cgroup on this node: while one has, its containers may run.

The kubelet's cgroup drivers name the cgroup of a pod differently, and kubelets in containers have
theirs below others:

    cgroupfs   kubepods/burstable/pod1c3a4e6f-8a64-…
    systemd    kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1c3a4e6f_8a64_….slice

With cgroup v1, each controller has a tree of its own.
"""

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from services.process.errors import HardwareError

TREE: Final = "sys/fs/cgroup"
"""Where cgroups are, below a host's root."""

OF_KUBELET: Final = "kubepods"
"""Start of the name of the kubelet's own cgroup, which has those of all pods."""


def pods_with_cgroup(roots: Iterable[Path], uids: Collection[str]) -> frozenset[str]:
    """The pods, of those with these UIDs, that have a cgroup.

    `roots` are those that may be the host's; the first one with cgroups of a kubelet counts.

    Raises:
        HardwareError: None of them shows the cgroups of pods.
    """
    wanted = {_plain(uid): uid for uid in uids}
    for root in roots:
        names = {_plain(each) for each in _names(root / TREE)}
        if any(OF_KUBELET in each for each in names):
            return frozenset(
                uid
                for plain, uid in wanted.items()
                if any(each.removesuffix(".slice").endswith(f"pod{plain}") for each in names)
            )
    raise HardwareError(
        f"no cgroups of pods are visible below /{TREE}: mount the host's /sys with all that is"
        " mounted below it"
    )


def _plain(name: str) -> str:
    return name.replace("_", "-")


def _names(tree: Path) -> Iterator[str]:
    """The names of all cgroups."""

    def failed(error: OSError) -> None:
        # A cgroup may go meanwhile. One that can't be listed may have any pod.
        if not isinstance(error, FileNotFoundError):
            raise HardwareError(f"{error.filename} can't be listed: {error.strerror}") from error

    for _, folders, _ in os.walk(tree, onerror=failed):
        yield from folders
