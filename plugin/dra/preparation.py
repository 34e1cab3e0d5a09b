"""Makes claims ready, and takes them back: a state machine whose state `plugin.dra.book` keeps.

    absent ── check, reserve ──► reserved ── work, CDI file ──► committed
       ▲                            │                               │
       └────────────────────────── unprepare ──────────────────────┘

A claim is prepared in these steps, each of which may be the last one before the process is killed:

1. check: the claim of this UID, its configuration, its pod, what its namespace maps (`.wants`);
2. reserve its devices, once nobody else has them;
3. work: verify or program functions, under the card's lock;
4. write the files of metadata and the CDI file;
5. commit; only then is the kubelet answered.

The kubelet retries after an error or a crash, and the steps that were made cost nothing then.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

import msgspec
import structlog

from plugin.dra.book import ClaimBook, ClaimEntry
from plugin.dra.claim_files import CdiClaimFiles, GivenDevice
from plugin.dra.claims import AllocatedClaim, ClaimRef, read_claim
from plugin.dra.wants import (
    Kind,
    MappingsNeeded,
    Want,
    decide,
    held,
    located,
    require_unchanged,
    withheld,
)
from plugin.settings import PluginSettings
from services.containers.holders import HolderReader
from services.containers.pod_source import ApiServerPods
from services.containers.wanted import StartingPod, confirm_pod
from services.devices.dra import fpga_name, held_by_plugin
from services.devices.health import unusable
from services.devices.model import Contents
from services.kube.client import is_outage, will_pass
from services.kube.events import EventRecorder
from services.node.regions import RegionContents, RegionProgramming, record_programming
from services.node.state import NodeState
from services.process.errors import (
    AccelbindError,
    ClusterError,
    DeviceBusy,
    DeviceHung,
    ExternalFailure,
    NotAllowed,
    TooSlow,
)
from services.process.text import listing, plain
from services.programming.assignment import Region

PREPARE_SECONDS: Final = 40.0
"""For one claim; the kubelet gives up after 45 s, with a message that explains nothing. It retries
after 60 to 90 s: so waiting for a device and programming happen within the call."""

WORK_SECONDS: Final = 36.0
"""For programming a card, of these; the work goes on after that."""

RETRIES: Final = "Kubernetes retries in 60 to 90 s"

POLL_SECONDS: Final = 0.25
"""Between two looks at whether a device was given back."""

log = structlog.get_logger(component="dra")


class Preparation:
    """Prepares claims.

    The node is scanned when devices are taken or given back, and nothing is prepared before its
    first scan. `plugin` knows which pods still have devices from the device plugin.
    """

    def __init__(
        self,
        settings: PluginSettings,
        book: ClaimBook,
        regions: RegionProgramming,
        files: CdiClaimFiles,
        state: NodeState,
        *,
        source: ApiServerPods,
        plugin: HolderReader,
        events: EventRecorder,
    ) -> None:
        self._settings = settings
        self._book = book
        self._regions = regions
        self._files = files
        self._state = state
        self._source = source
        self._plugin = plugin
        self._events = events
        self._running: dict[str, _Work] = {}
        self._locks = WeakValueDictionary[str, asyncio.Lock]()
        """For the work on each claim, by UID."""
        self._reserving = asyncio.Lock()
        self.ends = False
        """Whether the driver ends: no claim waits for a device that another one has."""

    async def prepare(self, claim: ClaimRef) -> tuple[GivenDevice, ...]:
        """Make a claim ready; return what its containers get.

        Raises:
            AccelbindError: It isn't ready; the text is for the pod's events.
        """
        work = self._running.get(claim.uid) or self._begin(claim)
        # Pods that share a claim have it prepared at the same time: the work ends with their last
        # call, so that none of them breaks it off for the others.
        work.calls += 1
        try:
            async with asyncio.timeout(PREPARE_SECONDS):
                return await asyncio.shield(work.task)
        except asyncio.CancelledError as error:
            if work.task.cancelled():
                raise TooSlow(f"{claim} was taken back meanwhile") from error
            raise
        except TimeoutError as error:
            raise TooSlow(
                f"{claim} isn't ready after {PREPARE_SECONDS:g} s: {work.step}; {RETRIES}"
            ) from error
        finally:
            work.calls -= 1
            if not work.calls:
                self._end(claim.uid, work)

    async def unprepare(self, claim: ClaimRef) -> None:
        """Take a claim back; it need not be here.

        Raises:
            AccelbindError: Something of it is left.
        """
        self._book.path(claim.uid)  # refuses what is no UID
        if claim.uid in self._running:
            self._end(claim.uid, self._running[claim.uid])
        # Neither the API server nor a card is asked. Work that goes on holds the card's lock, and
        # the card's records are empty until it ends: the next claim waits, or programs again.
        async with self.lock(claim.uid):
            await self._remove(claim.uid)
        log.info("claim unprepared", claim=str(claim), uid=claim.uid)

    async def end_leftover(self, entry: ClaimEntry) -> bool:
        """Take back a claim that nobody uses, unless something has happened to it meanwhile."""
        uid = entry.claim.uid
        if self.is_worked_on(uid):
            return False
        async with self.lock(uid):
            if self._book.find(uid) != entry:
                return False
            await self._remove(uid)
        text = "a claim that nobody knows and uses was given back"
        log.warning(text, claim=str(entry.claim), uid=uid)
        return True

    async def _remove(self, uid: str) -> None:
        await self._files.remove(uid)
        self._book.remove(uid)  # last: until then a retry finds what is left
        self._state.rescan.request()

    def is_worked_on(self, uid: str) -> bool:
        """Whether a claim is being prepared or taken back."""
        lock = self._locks.get(uid)
        return uid in self._running or (lock is not None and lock.locked())

    async def _commit(self, entry: ClaimEntry) -> tuple[GivenDevice, ...]:
        given, entry = self._files.describe(entry)
        await self._files.write(entry)
        self.commit(entry)  # after it: the claim's containers may start then
        return given

    def commit(self, entry: ClaimEntry) -> None:
        """Note that a claim is prepared, and that its file is there."""
        self._book.commit(entry)
        self._state.rescan.request()

    def _begin(self, claim: ClaimRef) -> "_Work":
        work = self._running[claim.uid] = _Work()
        work.task = asyncio.create_task(self._prepare(claim, work))
        return work

    def _end(self, uid: str, work: "_Work") -> None:
        """End the work on a claim."""
        work.task.cancel()
        # Calls that come before it has ended begin again, and wait for its lock.
        if self._running.get(uid) is work:
            del self._running[uid]

    def lock(self, uid: str) -> asyncio.Lock:
        """The lock for work on a claim."""
        return self._locks.setdefault(uid, asyncio.Lock())

    async def _prepare(self, ref: ClaimRef, work: "_Work") -> tuple[GivenDevice, ...]:
        async with self.lock(ref.uid):
            known = self._book.find(ref.uid)
            if known is not None and known.is_committed:
                answered = await self._answered(ref, known)
                if answered is not None:
                    return answered
            work.step = "its objects are read from the API server"
            claim = await self._read(ref)
            if known is not None:
                require_unchanged(known.wants, claim)
            wants = await self._check(claim)
            entry = await self._reserve(claim, wants, work)
            work.step = "its regions are made ready, which goes on"
            await self._make_all_ready(claim, wants)
            given = await self._commit(entry)
        log.info(
            "claim prepared",
            claim=str(ref),
            uid=ref.uid,
            devices=[device for want in wants for device in want.devices],
            functions=[each for want in wants for each in want.functions],
        )
        return given

    async def _answered(self, ref: ClaimRef, known: ClaimEntry) -> tuple[GivenDevice, ...] | None:
        """The answer to a claim that was committed; None if its functions aren't there."""
        # A kubelet that was restarted asks again. Containers may run, so what was committed counts,
        # also while the API server is away.
        wants = located(known.wants, self._state.ledger.by_name)
        if not await self._are_ready(wants):
            return None
        try:
            require_unchanged(wants, await self._read(ref))
        except ClusterError as error:
            if not (is_outage(error) or will_pass(error)):
                raise
        # Always: without the file no container starts, and it may be gone since, as after a reboot
        # (kubernetes/kubernetes#141433).
        return await self._commit(msgspec.structs.replace(known, wants=wants))

    # 1. check

    async def _read(self, ref: ClaimRef) -> AllocatedClaim:
        body = await self._source.get_claim(ref.namespace, ref.name)
        return read_claim(body, ref, pool=self._settings.node_name)

    async def _check(self, claim: AllocatedClaim) -> tuple[Want, ...]:
        devices, enforce = self._state.ledger.by_name, self._settings.enforce_mappings
        owner = await self._owner(claim)
        try:
            return decide(claim, devices, owner=owner, mappings=None, enforce=enforce)
        except MappingsNeeded:
            mappings = await self._source.mappings(claim.ref.namespace)
        return decide(claim, devices, owner=owner, mappings=mappings, enforce=enforce)

    async def _owner(self, claim: AllocatedClaim) -> StartingPod | None:
        ref = claim.owner
        if ref is None:
            return None
        body = await self._source.get_pod(ref.namespace, ref.name)
        return confirm_pod(body, ref, node=self._settings.node_name)

    # 2. reserve

    async def _reserve(
        self, claim: AllocatedClaim, wants: tuple[Want, ...], work: "_Work"
    ) -> ClaimEntry:
        """Reserve devices, once nobody else has them."""
        # The scheduler hands a device out again as soon as its claim is deleted, which may be
        # before the containers end.
        while True:
            async with self._reserving:
                holders = await self._holders(claim.ref, wants)
                if not holders:
                    pods = tuple(each.uid for each in claim.pods if each.uid)
                    self._state.rescan.request()
                    return self._book.reserve(claim.ref, wants, pods, claim.pod_claim)
            work.step = f"others still have {listing(holders[:8])}"
            if self.ends:  # they can't be taken back until the next one serves
                raise DeviceBusy(f"{work.step}, and the driver ends; {RETRIES}")
            await asyncio.sleep(POLL_SECONDS)

    async def _holders(self, ref: ClaimRef, wants: tuple[Want, ...]) -> list[str]:
        """Who else has devices that a claim wants for itself."""
        own = Counter[str]()
        for part in held(wants):
            own[part.device] += part.share.amount
        if not own:
            return []
        holders, devices = await self._plugin.read(), self._state.ledger.by_name
        plugin = own.keys() & held_by_plugin(devices.values(), holders.keys())
        others = self._book.others(ref.uid, own, devices)
        return [
            *(f"{device} (of {other})" for device, other in sorted(others.items())),
            *(f"{device} (of a pod of the device plugin)" for device in sorted(plugin)),
            *(f"{device} ({why})" for device, why in sorted(withheld(own, devices).items())),
        ]

    # 3. work

    async def _make_all_ready(self, claim: AllocatedClaim, wants: tuple[Want, ...]) -> None:
        """Make all regions ready at the same time."""
        each_ready = [self._make_ready(claim, want) for want in wants]
        # All are waited for, so that an error leaves no other region at work.
        for failed in filter(None, await asyncio.gather(*each_ready, return_exceptions=True)):
            raise failed

    async def _make_ready(self, claim: AllocatedClaim, want: Want) -> None:
        if want.kind is Kind.NEVER:
            # What a call that gave up has left at work may yet change the content.
            await self._regions.settle(want.ids)
        if want.interface_id:
            require_regions(want, await self._regions.read())
        if want.kind is Kind.PROGRAM:
            await self._program(claim, want)
        elif want.kind is Kind.DEVELOP:
            # Before the workload begins: nobody knows what it loads.
            await self._regions.empty(want.ids)

    async def _program(self, claim: AllocatedClaim, want: Want) -> None:
        if not self._settings.programs:
            await self._regions.verify(want.wanted, want.ids)
            return
        record = partial(record_programming, self._events, claim.pod, str(claim.ref))
        try:
            record(await self._regions.prepare(want.wanted, want.ids))
        except DeviceHung as error:
            late = DeviceHung(f"{error}; the work goes on, and {RETRIES}")
            record(late)
            raise late from error
        except AccelbindError as error:
            record(error)
            raise

    async def _are_ready(self, wants: tuple[Want, ...]) -> bool:
        """Whether the regions of a committed claim still carry its functions."""
        for want in wants:
            if want.interface_id:
                require_regions(want, await self._regions.read())
            if want.kind is Kind.PROGRAM and not await self._regions.is_ready(
                want.wanted, want.ids
            ):
                return False
        return True


@dataclass(slots=True)
class _Work:
    """The work on a claim, what it waits for now, and how many calls wait for it."""

    task: asyncio.Task[tuple[GivenDevice, ...]] = field(init=False)
    step: str = "it is looked up"
    calls: int = 0


def require_regions(want: Want, found: RegionContents) -> None:
    """Refuse a claim whose regions are those of other cards, or lack what isn't programmed."""
    for part in want.parts():
        name, key = part.device, part.id
        region = found.regions.get(key)
        # A driver that is loaded again may number its regions otherwise; `locate` follows.
        address = region.card.address if region else ""
        if address and fpga_name(address) != name:
            raise ExternalFailure(
                f"{want.who}: {plain(key)} is on card {address} now, and {name} isn't:"
                " Kubernetes retries"
            )
        if want.kind is not Kind.NEVER:
            continue
        if region is None or not region.ports:
            raise ExternalFailure(f"{plain(name)} ({plain(key)}) is gone or can't be read")
        _require_there(want, name, region, found.contents)


def _require_there(want: Want, name: str, region: Region, contents: Contents) -> None:
    function = want.functions[0]
    for port in region.ports:
        if disabled := unusable(port):
            raise ExternalFailure(f"{want.who}: {disabled}")
        programmed = contents.get(port.name)
        if programmed == "":
            content = "nothing that is known, since programming it has not succeeded"
        elif function in (port.afu_id, programmed):  # only our record tells OpenCL programs apart
            continue
        else:
            content = f"AFU {plain(port.afu_id, 48)}" if port.afu_id else "no known function"
        raise NotAllowed(
            f"{want.who}: {name} has {content} in {port.name}, and not AFU {function}, which"
            " its class wants there without programming: delete the pod; a new one gets"
            " another device"
        )
