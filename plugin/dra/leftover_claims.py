"""Claims that only this driver knows: their devices are not free, and they end by themselves.

    known ── the kubelet does not know it ──► leftover ── unused for UNUSED_SECONDS ──► given back
      ▲                                         │  ▲ │
      └────────── the kubelet knows it ─────────┘  └─┘ in use, or in doubt: the time starts over

A kubelet that has lost its state, as after a reset without a reboot, never gives its claims back.
It lists no container of them either, although one that was deleted by force may still run. So a
leftover claim is unused only while all of this holds:

- the kubelet's checkpoint can be read, and lacks the claim;
- PodResources lists no container with a device of it;
- its pods are known, and none of them has a cgroup on the node;
- its ports can be opened alone;
- the API server has no such claim, or one that no longer has the devices.

The devices of a leftover claim are unhealthy, so slices, `accelbind devices`, metrics and Events
show it. The book is read before the kubelet's checkpoint: the kubelet writes a claim there before
it has it prepared, and removes it after it was given back. That the kubelet does not know a claim
is noted in its entry. Since when it is unused is kept in memory: a driver that is restarted starts
the time over.
"""

import asyncio
import errno
import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

import structlog
from prometheus_client import Counter

from plugin.dra.book import ClaimBook, ClaimEntry
from plugin.dra.claims import has_devices
from plugin.dra.preparation import Preparation
from plugin.node_process import NodeProcess
from plugin.settings import PluginSettings
from services.containers.cgroups import pods_with_cgroup
from services.containers.pod_source import ApiServerPods
from services.devices.cdi import CLAIM_KIND
from services.devices.dra import DRIVER
from services.kubelet.checkpoint import prepared_claims
from services.kubelet.pod_resources import claimed_devices
from services.kubelet.sockets import dra_checkpoint_file, pod_resources_socket
from services.node.state import NodeState
from services.process.errors import AccelbindError, DeviceBusy, HardwareError, KubeletError
from services.process.outage import Outage
from services.process.problem import Problem
from services.process.text import listing, plain

LEFTOVER: Final = "leftover-claim"

UNUSED_SECONDS: Final = 300.0
"""How long a leftover claim must be unused until it is given back."""

ROUND_SECONDS: Final = 30.0
"""Between two rounds. Without leftover claims they cost nothing."""

ASK_SECONDS: Final = 300.0
"""Between two questions to the API server about a claim that it has."""

READ_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 2.0

OWN_ROOT: Final = Path("/")
"""A process of the host with another `--root` sees the host's cgroups here; a container only its
own, which has no pods."""

IN_API: Final = "the API server has it"

_GONE: Final = frozenset({errno.ENOENT, errno.ENODEV, errno.ENXIO})

log = structlog.get_logger(component="dra")


class LeftoverClaims:
    """Finds leftover claims, and gives them back once they are unused.

    `given_back` counts the latter.
    """

    def __init__(
        self,
        settings: PluginSettings,
        process: NodeProcess,
        book: ClaimBook,
        state: NodeState,
        source: ApiServerPods,
        *,
        given_back: Counter,
    ) -> None:
        self._settings = settings
        self._book = book
        self._state = state
        self._source = source
        self._calls = process.calls
        self._driver_calls = process.driver_calls
        self._given_back = given_back
        self._has_checkpoint = False
        """Whether the kubelet's checkpoint was there since this process began."""
        self._found: dict[str, tuple[str, float]] = {}
        """Why leftover claims count as used, empty if they don't, and since when; by UID."""
        self._outage = Outage(
            log,
            "it can't be noted which claims the kubelet knows",
            "it is noted again which claims the kubelet knows",
            level="info",
        )
        self._unended = Outage(
            log, "leftover claims can't be given back", "leftover claims are given back again"
        )

    # Which claims are left

    async def problems(self) -> Mapping[str, Problem]:
        """Find the leftover claims; return why their devices are not free, by the devices' ids."""
        before = self._book.entries()
        if before:
            try:
                known = await self._known_to_kubelet()
            except AccelbindError as error:
                self._outage.failed(str(error))  # what was known before stays
            else:
                self._note(before, known)
        return {
            held.id: Problem(LEFTOVER, self._describe(entry))
            for entry in self._leftover()
            for held in entry.held()
            if not held.share.id  # the rest of the device is free
        }

    async def _known_to_kubelet(self) -> Mapping[str, frozenset[str]]:
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

    def _note(self, before: Iterable[ClaimEntry], known: Mapping[str, Collection[str]]) -> None:
        """Note what the kubelet knows of claims that were here before it was asked."""
        errors = []
        for claim in (each.claim for each in before):
            pods = known.get(claim.uid)
            try:
                entry = self._book.find(claim.uid)
                if entry is None:
                    continue
                if pods is None and not entry.is_leftover:
                    text = "the kubelet does not know a claim that is here"
                    log.warning(text, claim=str(claim), uid=claim.uid)
                self._book.note_pods(entry, pods)
            except HardwareError as error:
                errors.append(str(error))
        self._outage.update("; ".join(errors))

    def _leftover(self) -> list[ClaimEntry]:
        return [each for each in self._book.entries() if each.is_leftover]

    def _describe(self, entry: ClaimEntry) -> str:
        uid = entry.claim.uid
        why, _ = self._found.get(uid, ("", 0.0))
        return (
            f"{entry.claim} has it, and the kubelet does not know that claim"
            f" ({why or 'whether it is used is being observed'}): it is given back once it has been"
            f" unused for {UNUSED_SECONDS / 60:g} minutes; if no container uses it:"
            f" accelbind dra release {uid}"
        )

    # Which of them are unused

    async def run_forever(self, preparation: Preparation) -> NoReturn:
        """Observe leftover claims, and give them back, until cancelled."""
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            await self.run_once(preparation, time.monotonic())

    async def run_once(self, preparation: Preparation, now: float) -> None:
        """Observe leftover claims, and give back those that have been unused for long enough."""
        errors = []
        for entry in await self._unused(now):
            try:
                if await preparation.end_leftover(entry):
                    self._given_back.inc()
            except AccelbindError as error:
                errors.append(str(error))
        self._unended.update("; ".join(errors))

    async def _unused(self, now: float) -> list[ClaimEntry]:
        """The leftover claims that have been unused for long enough."""
        leftover, found, unused = self._leftover(), {}, []
        used = await self._used_on_node(leftover) if leftover else {}
        for entry in leftover:
            uid = entry.claim.uid
            why, since = self._found.get(uid, ("", now))
            if uid in used:
                why, since = used[uid], now
            elif why != IN_API or now - since >= ASK_SECONDS:
                before, why = why, await self._used_in_cluster(entry)
                since = now if before or why else since
            found[uid] = why, since
            if not why and now - since >= UNUSED_SECONDS:
                unused.append(entry)
        self._found = found
        return unused

    async def _used_on_node(self, entries: Sequence[ClaimEntry]) -> dict[str, str]:
        """Why claims are used as far as one look at the node tells, by UID."""
        try:
            known = await self._read_checkpoint()
            socket = pod_resources_socket(self._settings.kubelet_dir)
            listed = await claimed_devices(socket, seconds=ANSWER_SECONDS)
            pods = await self._with_cgroup([pod for each in entries for pod in each.pods])
        except AccelbindError as error:
            return {each.claim.uid: str(error) for each in entries}
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

    async def _used_in_cluster(self, entry: ClaimEntry) -> str:
        """Why a claim is used as its ports and the API server tell; empty if it isn't."""
        ref, names = entry.claim, {held.device for held in entry.held()}
        try:
            await self._open_ports(names)
            body = await self._source.get_claim(ref.namespace, ref.name)
            is_there = has_devices(body, ref, names, pool=self._settings.node_name)
        except AccelbindError as error:
            return str(error)
        return IN_API if is_there else ""

    # What may hang

    async def _read_checkpoint(self) -> Mapping[str, frozenset[str]]:
        root, folder = self._settings.root, self._settings.kubelet_dir

        def read() -> Mapping[str, frozenset[str]]:
            # In a container the whole folder is only below the host's root.
            whole = root / folder.relative_to("/")
            return prepared_claims(dra_checkpoint_file(whole if whole.is_dir() else folder), DRIVER)

        what = f"reading {dra_checkpoint_file(folder)}"
        return await self._calls.run("kubelet claims", read, timeout=READ_SECONDS, what=what)

    async def _with_cgroup(self, pods: Collection[str]) -> frozenset[str]:
        return await self._calls.run(
            "cgroups",
            partial(pods_with_cgroup, [self._settings.root, OWN_ROOT], pods),
            timeout=READ_SECONDS,
            what="reading the cgroups of pods",
        )

    async def _open_ports(self, names: Iterable[str]) -> None:
        """Open the ports of FPGAs alone, and close them.

        Raises:
            HardwareError: Somebody has one, or that is unknown.
        """
        devices = self._state.ledger.by_name
        ports = [
            self._settings.root / "dev" / node.name
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
