"""Whether a claim that the kubelet may have forgotten is still used.

A claim is unused only while all of this holds:

- the kubelet's checkpoint can be read, and lacks the claim;
- PodResources lists no container with a device of it;
- its pods are known, and none of them has a cgroup on the node;
- its ports can be opened alone;
- the API server has no such claim, or one that no longer has the devices.
"""

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from plugin.dra.book import ClaimEntry
from plugin.dra.claims import has_devices
from services.containers.cgroups import pods_with_cgroup
from services.containers.pod_source import ApiServerPods
from services.devices.cdi import CLAIM_KIND
from services.devices.dra import DRIVER
from services.kubelet.checkpoint import prepared_claims
from services.kubelet.pod_resources import claimed_devices
from services.kubelet.sockets import dra_checkpoint_file, pod_resources_socket
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.process.errors import AccelbindError, DeviceBusy, KubeletError
from services.process.text import listing, plain
from services.programming.ioctls import DriverCalls

READ_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 2.0

ASK_SECONDS: Final = 300.0
"""Between two questions to the API server about a claim that it has."""

OWN_ROOT: Final = Path("/")
"""A process of the host with another `--root` sees the host's cgroups here; a container only its
own, which has no pods."""

_GONE: Final = frozenset({errno.ENOENT, errno.ENODEV, errno.ENXIO})


class ClaimUse:
    """Finds out whether claims are used.

    Args:
        kubelet_dir: The kubelet's folder.
        root: The host's root.
        pool: The node's name.
        calls: For reads that may hang.
        driver_calls: Opens ports.
        source: The API server.
        state: The node's devices.
    """

    def __init__(
        self,
        kubelet_dir: Path,
        root: Path,
        pool: str,
        *,
        calls: BlockingCalls,
        driver_calls: DriverCalls,
        source: ApiServerPods,
        state: NodeState,
    ) -> None:
        self._kubelet_dir = kubelet_dir
        self._root = root
        self._pool = pool
        self._calls = calls
        self._driver_calls = driver_calls
        self._source = source
        self._state = state
        self._has_checkpoint = False
        """Whether the kubelet's checkpoint was there since this process began."""
        self._asked: dict[str, float] = {}
        """When the API server had claims, by UID."""

    # The kubelet

    async def known_to_kubelet(self) -> Mapping[str, frozenset[str]]:
        """The pods of each claim that the kubelet knows, by UIDs.

        Raises:
            ExternalFailure: Its checkpoint can't be read.
        """
        try:
            known = await self._read_checkpoint()
        except KubeletError as error:
            # A kubelet that starts makes an empty one. One that was never there may be invisible.
            if self._has_checkpoint and isinstance(error.__cause__, FileNotFoundError):
                return {}
            raise
        self._has_checkpoint = True
        return known

    async def _read_checkpoint(self) -> Mapping[str, frozenset[str]]:
        return await self._calls.run(
            "kubelet claims",
            self._read,
            timeout=READ_SECONDS,
            what=f"reading {dra_checkpoint_file(self._kubelet_dir)}",
        )

    def _read(self) -> Mapping[str, frozenset[str]]:
        # In a container the whole folder is only below the host's root.
        folder = self._root / self._kubelet_dir.relative_to("/")
        if not folder.is_dir():
            folder = self._kubelet_dir
        return prepared_claims(dra_checkpoint_file(folder), DRIVER)

    # Everything

    async def find(self, entries: Sequence[ClaimEntry], *, now: float) -> dict[str, str]:
        """Why claims are used, or may be, `now`; by UID. Those that are unused have no reason."""
        if not entries:
            return {}
        try:
            reasons = await self._of_node(entries)
        except AccelbindError as error:
            return {each.claim.uid: str(error) for each in entries}
        for entry in entries:
            uid = entry.claim.uid
            if uid not in reasons and (reason := await self._of_claim(entry, now)):
                reasons[uid] = reason
        return reasons

    async def _of_node(self, entries: Sequence[ClaimEntry]) -> dict[str, str]:
        """Why claims are used as far as one look at the node tells."""
        known = await self._read_checkpoint()
        listed = await claimed_devices(
            pod_resources_socket(self._kubelet_dir), seconds=ANSWER_SECONDS
        )
        pods = await self._with_cgroup([pod for each in entries for pod in each.pods])
        reasons = {}
        for each in entries:
            uid = each.claim.uid
            left = sorted(pods.intersection(each.pods))
            if uid in known:
                reasons[uid] = "the kubelet knows it"
            elif any(name.startswith(f"{CLAIM_KIND}={uid}-") for name in listed):
                reasons[uid] = "PodResources lists a container with it"
            elif not each.pods:
                reasons[uid] = "its pods are unknown"
            elif left:
                reasons[uid] = (
                    f"there is a cgroup of its pod with UID {listing([plain(pod) for pod in left])}"
                )
        return reasons

    async def _with_cgroup(self, pods: Iterable[str]) -> frozenset[str]:
        roots = [self._root, OWN_ROOT]
        return await self._calls.run(
            "cgroups",
            partial(pods_with_cgroup, roots, [*pods]),
            timeout=READ_SECONDS,
            what="reading the cgroups of pods",
        )

    async def _of_claim(self, entry: ClaimEntry, now: float) -> str:
        """Why a claim is used as its ports and the API server tell; empty if it isn't."""
        ref, names = entry.claim, {held.device for held in entry.held()}
        if now - self._asked.get(ref.uid, float("-inf")) < ASK_SECONDS:
            return "the API server has it"
        try:
            await self._open_ports(names)
            body = await self._source.get_claim(ref.namespace, ref.name)
            if not has_devices(body, ref, names, pool=self._pool):
                self._asked.pop(ref.uid, None)
                return ""
        except AccelbindError as error:
            return str(error)
        self._asked[ref.uid] = now
        return "the API server has it"

    async def _open_ports(self, names: Iterable[str]) -> None:
        """Open the ports of FPGAs alone, and close them.

        Raises:
            HardwareError: Somebody has one, or that is unknown.
        """
        devices = self._state.ledger.by_name
        ports = [
            self._root / "dev" / node.name
            for name in names
            if name in devices and not devices[name].device.type
            for node in devices[name].device.nodes
        ]
        if ports:
            await self._calls.run(
                "leftover ports",
                partial(self._open, ports),
                timeout=READ_SECONDS,
                what="opening the ports of a claim",
            )

    def _open(self, ports: Iterable[Path]) -> None:
        for port in ports:
            try:
                os.close(self._driver_calls.open(port, alone=True))
            except OSError as error:
                if error.errno not in _GONE:
                    text = f"{port.name} can't be opened alone: {error.strerror}"
                    raise DeviceBusy(text) from error
