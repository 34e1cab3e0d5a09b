"""Makes regions ready for a container: each port carries what it should, and is reset."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final, NoReturn, TypeVar

import structlog

from services.bitstreams.model import Bitstream
from services.bitstreams.storage import BitstreamStorage
from services.containers.holders import PodRef
from services.containers.wanted import WantedFunctions
from services.devices.hardware.scan import Scanner
from services.devices.health import unusable
from services.devices.model import Contents, Inventory
from services.kube.events import EventRecorder
from services.node.events import EventReason
from services.node.metrics import NodeMetrics
from services.process.blocking import BlockingCalls
from services.process.errors import (
    AccelbindError,
    BitstreamMissing,
    DeviceRefused,
    HardwareError,
    NotAllowed,
    TooSlow,
)
from services.process.text import listing, plain
from services.process.waits import Due, deadline
from services.programming.assignment import (
    Assignment,
    Region,
    RegionPlan,
    plan,
    regions_of,
)
from services.programming.image import Image, Programmed
from services.programming.programmer import Programmer

T = TypeVar("T")

RECORDS_SECONDS: Final = 8.0
"""For reading the records of all ports."""

LOAD_SECONDS: Final = 15.0
"""For reading a bitstream from the disk, and for waiting until there is memory for it."""

WORK_SECONDS: Final = 20.0
"""For programming a card: the whole `PreStartContainer` has 25 s, the kubelet gives up at 30 s."""

BITSTREAM_MEMORY: Final = 600 * 1024 * 1024
"""Bytes of bitstreams in memory at once; the largest known cards need 70 to 100 MB (an AOCX is
there twice, once packed). A container that is killed for its memory is killed in the middle of
programming: the manifests' limit covers this, and the bitstreams of cards that hang.
"""

_SHOWN: Final = 8  # ports in a message before "and more"

log = structlog.get_logger(component="node")


@dataclass(frozen=True, slots=True)
class Readiness:
    """The way in which regions became ready for a container."""

    programmed: tuple[Assignment, ...]
    """What was programmed; the rest was there."""
    slow_clocks: tuple[str, ...]
    """A sentence for each port whose user clock is below what its function asks for."""


def record_programming(
    events: EventRecorder, pod: PodRef | None, who: str, done: Readiness | AccelbindError
) -> None:
    """Record what was programmed for a pod, or why that failed, as its Events.

    `who` is its container or claim. Nothing is recorded of an unknown pod.
    """
    if pod is None:
        return
    if isinstance(done, AccelbindError):
        happened = [(EventReason.PROGRAMMING_FAILED, str(done))]
    else:
        texts = [
            f"AFU {at.function} programmed into {at.region} ({at.port})" for at in done.programmed
        ]
        happened = [(EventReason.PROGRAMMED, text) for text in texts]
        happened += [(EventReason.USER_CLOCK_SLOW, sentence) for sentence in done.slow_clocks]
    for reason, text in happened:
        events.record_on_pod(pod, reason, f"{who}: {text}", warning=reason.warning)


@dataclass(frozen=True, slots=True)
class RegionContents:
    """The regions of a node, and what is in them."""

    regions: Mapping[str, Region]
    contents: Contents
    """What accelbind has programmed; empty if that has begun and has not succeeded."""


class RegionProgramming:
    """Makes a node's regions ready.

    After each attempt the node is scanned.
    """

    def __init__(
        self,
        *,
        programmer: Programmer,
        storage: BitstreamStorage,
        calls: BlockingCalls,
        scanner: Scanner,
        node: str,
        metrics: NodeMetrics,
        rescan: Due,
        work_seconds: float = WORK_SECONDS,
    ) -> None:
        self._programmer = programmer
        self._storage = storage
        self._calls = calls
        self._scanner = scanner
        self._node = node
        self._metrics = metrics
        self._rescan = rescan
        self._work_seconds = work_seconds
        self._memory = MemoryBudget(BITSTREAM_MEMORY)

    async def prepare(self, wanted: WantedFunctions, ids: Sequence[str]) -> Readiness:
        """Make a container's regions carry its functions.

        Raises:
            AccelbindError: A region isn't ready; of several, the reason of the first.
        """
        planned, _ = await self._plan(wanted, ids)
        try:
            # All cards work at once. If one fails, the regions of the others stay ready: the
            # kubelet asks again, and finished work is not repeated.
            slow_clocks = await _all(map(self._prepare, planned))
        finally:
            self._rescan.request()
        return Readiness(_programmed(planned), slow_clocks)

    async def verify(self, wanted: WantedFunctions, ids: Sequence[str]) -> Readiness:
        """Check that a container's regions carry its functions already, and no others.

        Raises:
            NotAllowed: A port would have to be programmed.
            DeviceRefused: A port is disabled, and can't be.
            ExternalFailure: A region is gone, or can't be read as a whole; or as `prepare`.
        """
        planned, contents = await self._plan(wanted, ids)
        wrong = [_mismatch(each, contents) for each in _programmed(planned)]
        if not wrong:
            return Readiness((), await _all(map(self._check_clocks, planned)))
        where = f"on node {plain(self._node, 120)}"
        ports = chain.from_iterable(each.region.ports for each in planned)
        if disabled := [*filter(None, map(unusable, ports))]:
            raise DeviceRefused(f"{where} {listing(disabled, most=_SHOWN)}, then program it")
        raise NotAllowed(
            f"{where} {listing(wrong, most=_SHOWN)}: {wanted.who} would get"
            " every port of its regions, and this plugin verifies functions and doesn't program"
            " them: program the region with accelbind fpga program, or ask for a function that it"
            " carries"
        )

    async def is_ready(self, wanted: WantedFunctions, ids: Sequence[str]) -> bool:
        """Whether a container's regions carry its functions already; raises as `verify`."""
        planned, _ = await self._plan(wanted, ids)
        return not _programmed(planned)

    async def read(self) -> RegionContents:
        """The current contents of the node's regions."""
        inventory = await self._scanner.scan()
        return RegionContents(regions_of(inventory), await self.contents(inventory))

    async def contents(self, inventory: Inventory) -> Contents:
        """The contents of ports, as accelbind programmed them; empty where it did not finish."""
        return await self._calls.run(
            "records",
            lambda: self._programmer.contents(inventory),
            timeout=RECORDS_SECONDS,
            what="reading what is in ports",
        )

    async def empty(self, ids: Sequence[str]) -> None:
        """Forget what is in regions, since their workload is about to program them."""
        await self._in_turn(ids, self._programmer.empty, "emptying the records of")
        self._rescan.request()

    async def settle(self, ids: Sequence[str]) -> None:
        """Wait until nobody works on regions: a caller that gave up may have left work behind."""
        await self._in_turn(ids, self._programmer.settle, "waiting for work on")

    async def _in_turn(self, ids: Sequence[str], call: Callable[[str], None], what: str) -> None:
        regions = (await self.read()).regions
        for each in ids:
            region = regions.get(each)
            key = region.card.work_key if region else each
            await self._calls.run(
                key, partial(call, each), timeout=self._work_seconds, what=f"{what} {plain(each)}"
            )

    async def _plan(
        self, wanted: WantedFunctions, ids: Sequence[str]
    ) -> tuple[tuple[RegionPlan, ...], Contents]:
        now = await self.read()
        planned = plan(
            wanted.functions,
            ids,
            now.regions,
            now.contents,
            interface_id=wanted.interface_id,
            who=wanted.who,
        )
        return planned, now.contents

    async def _check_clocks(self, planned: RegionPlan) -> list[str]:
        """Return a sentence for each port of a region whose user clock is slow."""
        ports = [each.port for each in planned.kept]
        clocks = await self._calls.run(
            planned.region.card.work_key,
            lambda: [self._programmer.check_clock(port) for port in ports],
            timeout=self._work_seconds,
            what=f"measuring the user clocks of {listing(ports)}",
        )
        return list(filter(None, clocks))

    async def _prepare(self, planned: RegionPlan) -> list[str]:
        """Make a region ready; return a sentence for each port whose user clock is slow."""
        # The ports that only need a reset come first: one that is in use stops this early.
        interface_id = planned.region.interface_id
        images = {each.port: _image_there(interface_id, each) for each in planned.kept}
        outcome, reserved = "failed", 0
        try:
            if planned.programmed:
                reserved = await self._reserve(planned)
                bitstream = await self._load(planned)
                self._memory.free(reserved - bitstream.memory)
                reserved = bitstream.memory
                image = Image.from_bitstream(bitstream)
                images |= {each.port: image for each in planned.programmed}
            # If the time of this start is over before, the work on the card goes on.
            results = await self._calls.run(
                planned.region.card.work_key,
                lambda: {port: self._programmer.ensure(port, images[port]) for port in images},
                timeout=self._work_seconds,
                what=f"programming {listing(list(images))}",
            )
            changed = any(each.programmed for each in results.values())
            outcome = "programmed" if changed else "kept"
        finally:
            self._memory.free(reserved)
            self._metrics.programmings.labels(outcome).inc()
        for each in (*planned.kept, *planned.programmed):
            self._report(each, interface_id, results[each.port])
        return [each.slow_clock for each in results.values() if each.slow_clock]

    async def _reserve(self, planned: RegionPlan) -> int:
        ids = (planned.region.interface_id, planned.programmed[0].function)
        size = await self._read(partial(self._storage.memory_needed, *ids))
        full = TooSlow(
            "the bitstreams of other regions that were being programmed took all the memory for"
            f" bitstreams ({BITSTREAM_MEMORY >> 20} MiB); the kubelet will try again"
        )
        async with deadline(LOAD_SECONDS, full):
            await self._memory.reserve(size)
        return size

    async def _load(self, planned: RegionPlan) -> Bitstream:
        ids = (planned.region.interface_id, planned.programmed[0].function)
        try:
            return await self._read(partial(self._storage.load, *ids))
        except BitstreamMissing as error:
            ports = listing([each.port for each in planned.programmed])
            raise BitstreamMissing(
                f"{error} on node {self._node} for {ports} of region {planned.region.name}; install"
                " it with: accelbind bitstream install FILE"
            ) from error

    async def _read(self, call: Callable[[], T]) -> T:
        what = f"reading a bitstream from {self._storage.folder}"
        return await self._calls.run("bitstreams", call, timeout=LOAD_SECONDS, what=what)

    def _report(self, what: Assignment, interface_id: str, result: Programmed) -> None:
        if result.programmed:
            labels = (interface_id, what.function)
            self._metrics.programming_seconds.labels(*labels).observe(result.seconds)
        remarks = [*filter(None, [result.slow_clock]), *result.remarks]
        write_log = log.warning if remarks else log.info
        write_log(
            "region programmed" if result.programmed else "region has its function",
            region=what.region,
            port=what.port,
            interface=interface_id,
            function=what.function,
            seconds=round(result.seconds, 3),
            remarks=remarks,
        )


class MemoryBudget:
    """Bytes that may be in use at once; who needs more than is free waits."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._reserved = 0
        self._freed = asyncio.Event()

    async def reserve(self, size: int) -> None:
        """Wait until so many bytes are free, and reserve them."""
        # What is larger than all of it waits until nothing else is reserved.
        while self._reserved and self._reserved + size > self._size:
            self._freed.clear()
            await self._freed.wait()
        self._reserved += size

    def free(self, size: int) -> None:
        """Free bytes; fewer than none are reserved at once."""
        self._reserved -= size
        self._freed.set()


def _programmed(planned: Iterable[RegionPlan]) -> tuple[Assignment, ...]:
    return tuple(chain.from_iterable(each.programmed for each in planned))


def _mismatch(what: Assignment, contents: Contents) -> str:
    name = plain(what.port)
    content = contents.get(what.port)
    carries = (
        f"AFU {content}"
        if content
        else f"an unknown function (the content of {name} is unknown until it is programmed:"
        f" accelbind fpga program {name} FILE)"
    )
    return (
        f"{name} of region {plain(what.region)} carries {carries} instead of AFU"
        f" {plain(what.function, 48)}"
    )


def _image_there(interface_id: str, what: Assignment) -> Image:
    # Without a bitstream, whose file need not be on this node. The port is only reset, so it
    # doesn't matter that with an OpenCL program it shows another id.
    def changed() -> NoReturn:
        raise HardwareError(
            f"the function of {what.port} has just changed: the kubelet will try again"
        )

    return Image(interface_id, what.function, data=changed)


async def _all(work: Iterable[Awaitable[list[str]]]) -> tuple[str, ...]:
    """Wait for all, even if some fail, and raise the error of the first."""
    sentences: list[str] = []
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        sentences += result
    return tuple(sentences)
