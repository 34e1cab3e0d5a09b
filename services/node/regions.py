"""Makes regions ready for a container: every port carries what the container wants, and is reset.

`services.programming.assignment` plans the work for all regions together, from the cards as they
are at this moment. Then all cards work at once, each in its own thread. If one region fails, the
others stay ready: the kubelet asks again, and finished work is not repeated.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final, NoReturn, Protocol, TypeVar

import structlog

from services.bitstreams.model import Bitstream
from services.bitstreams.storage import BitstreamStorage
from services.containers.wanted import WantedFunctions
from services.devices.model import Inventory
from services.names import OPENCL_AFU
from services.node.busy_cards import card_key
from services.node.memory_budget import MemoryBudget, Reservation
from services.process.blocking import BlockingCalls
from services.process.errors import AccelbindError, BitstreamMissing, HardwareError, TooSlow
from services.process.text import listing
from services.programming.assignment import (
    Assignment,
    ProgrammingPlan,
    Region,
    plan,
    regions_of,
)
from services.programming.programmer import Image, Programmed

T = TypeVar("T")

SCAN_SECONDS: Final = 8.0
"""For reading the cards."""

LOAD_SECONDS: Final = 15.0
"""For reading a bitstream from the disk."""

WORK_SECONDS: Final = 20.0
"""For programming a card: the whole `PreStartContainer` has 25 s, the kubelet gives up at 30 s."""

BITSTREAM_MEMORY: Final = 600 * 1024 * 1024
"""Bytes of bitstreams in memory at once; the largest known cards need 70 to 100 MB (an AOCX is
there twice, once packed). A container that is killed for its memory is killed in the middle of
programming: the manifests' limit covers this, and the bitstreams of cards that hang.
"""

_OPENCL_LENGTH: Final = 40

log = structlog.get_logger(room="plugin")


class PortProgrammer(Protocol):
    """What programs ports; `services.programming.programmer.Programmer` does."""

    def ensure(self, port: str, image: Image) -> Programmed:
        """Makes a port carry a function, and resets it; may take long, or hang."""

    def recorded(self, inventory: Inventory) -> Mapping[str, str]:
        """The OpenCL program in each port that has one, by the port's name."""


class ProgrammingMetrics(Protocol):
    """Counts what is programmed."""

    def programmed(self, interface_id: str, function: str, seconds: float) -> None:
        """A function was programmed."""

    def programming_ended(self, outcome: str) -> None:
        """A region was made ready (`programmed`, `kept`), or couldn't be (`failed`)."""


class RegionProgramming:
    """Makes a node's regions ready.

    Args:
        programmer: Programs ports.
        storage: This node's bitstreams.
        calls: Makes the calls that may hang: under the key of a card, `scan`, and `bitstreams`.
        scan: Reads the cards.
        node: This node's name.
        metrics: Counts what is programmed.
        on_done: Called after each attempt, to see what has changed.
    """

    def __init__(
        self,
        *,
        programmer: PortProgrammer,
        storage: BitstreamStorage,
        calls: BlockingCalls,
        scan: Callable[[], Inventory],
        node: str,
        metrics: ProgrammingMetrics,
        on_done: Callable[[], None],
    ) -> None:
        self._programmer = programmer
        self._storage = storage
        self._calls = calls
        self._scan = scan
        self._node = node
        self._metrics = metrics
        self._on_done = on_done
        self._memory = MemoryBudget(BITSTREAM_MEMORY)

    async def prepare(
        self, wanted: WantedFunctions, ids: Sequence[str], interface_id: str, *, until: float
    ) -> ProgrammingPlan:
        """Makes a container's regions carry its functions.

        Args:
            wanted: What it wants and may have.
            ids: The regions that it was given.
            interface_id: Canonical interface id that they must have.
            until: When to give up, by the event loop's clock.

        Returns:
            What was there, and what was programmed.

        Raises:
            AccelbindError: A region isn't ready; of several, the reason of the first.
        """
        regions, recorded = await self._calls.run(
            "scan", self._read_regions, timeout=_left(until, SCAN_SECONDS), what="reading the cards"
        )
        planned = plan(
            wanted.functions, ids, regions, recorded, interface_id=interface_id, who=wanted.who
        )
        tasks = _tasks(planned, regions)
        try:
            await _all([self._prepare(each, until) for each in tasks])
        finally:
            self._on_done()
        return planned

    def _read_regions(self) -> tuple[dict[str, Region], Mapping[str, str]]:
        inventory = self._scan()
        return regions_of(inventory), self._programmer.recorded(inventory)

    async def _prepare(self, task: "_RegionTask", until: float) -> None:
        """Makes every port of a region carry what it should, freshly reset."""
        images = {each.port: _image_there(task.region, each) for each in task.kept}
        with ExitStack() as held:
            if task.programmed:
                try:
                    bitstream = await self._load(held, task, until)
                except AccelbindError:
                    self._metrics.programming_ended("failed")
                    raise
                image = Image.from_bitstream(bitstream)
                images |= {each.port: image for each in task.programmed}
            await self._ensure(task, images, until)

    async def _load(self, held: ExitStack, task: "_RegionTask", until: float) -> Bitstream:
        """The bitstream that a region needs, and memory for it until the stack ends.

        Raises:
            BitstreamMissing: There is none.
            TooSlow: There was no memory for it in time.
            AccelbindError: It can't be read, or used.
        """
        ids = (task.region.interface_id, task.programmed[0].function)
        size = await self._read(partial(self._storage.memory_needed, *ids), until)
        reservation = await self._reserve(size, until)
        held.callback(reservation.release)
        try:
            bitstream = await self._read(partial(self._storage.load, *ids), until)
        except BitstreamMissing as error:
            raise BitstreamMissing(
                f"{error} on node {self._node}{_needed_for(task)}; install it with: accelbind"
                " bitstream install FILE"
            ) from error
        reservation.resize(bitstream.memory)
        return bitstream

    async def _read(self, call: Callable[[], T], until: float) -> T:
        what = f"reading a bitstream from {self._storage.folder}"
        timeout = _left(until, LOAD_SECONDS)
        return await self._calls.run("bitstreams", call, timeout=timeout, what=what)

    async def _reserve(self, size: int, until: float) -> Reservation:
        try:
            async with asyncio.timeout_at(until):
                return await self._memory.reserve(size)
        except TimeoutError as error:
            raise TooSlow(
                "the bitstreams of other regions that were being programmed took all the memory for"
                f" bitstreams ({BITSTREAM_MEMORY >> 20} MiB); the kubelet will try again"
            ) from error

    def _program(self, images: Mapping[str, Image]) -> dict[str, Programmed]:
        """Makes all ports of a region ready, in the card's thread.

        The ports that only need a reset come first: one that is in use stops this early.
        """
        return {port: self._programmer.ensure(port, image) for port, image in images.items()}

    async def _ensure(self, task: "_RegionTask", images: Mapping[str, Image], until: float) -> None:
        try:
            found = await self._work_on(task.region, images, until)
        except AccelbindError:
            self._metrics.programming_ended("failed")
            raise
        changed = any(each.programmed for each in found.values())
        self._metrics.programming_ended("programmed" if changed else "kept")
        interface_id = task.region.interface_id
        for each in (*task.kept, *task.programmed):
            done = found[each.port]
            if done.programmed:
                self._metrics.programmed(interface_id, each.function, done.seconds)
            say = log.warning if done.remarks else log.info
            say(
                "region programmed" if done.programmed else "region has its function",
                region=task.region.name,
                port=each.port,
                interface=interface_id,
                function=each.function,
                seconds=round(done.seconds, 3),
                remarks=list(done.remarks),
            )

    async def _work_on(
        self, region: Region, images: Mapping[str, Image], until: float
    ) -> dict[str, Programmed]:
        """Programs a region; if the time of the start is up, the work goes on and isn't a hang.

        Raises:
            TooSlow: The time of the start is up.
        """
        ports = listing(list(images))
        limit = asyncio.timeout_at(until)
        started = asyncio.get_running_loop().time()
        try:
            async with limit:
                return await self._calls.run(
                    card_key(region.address or region.card),
                    lambda: self._program(images),
                    timeout=WORK_SECONDS,
                    what=f"programming {ports}",
                )
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TooSlow(
                f"the time for this start is up: programming {ports} began with"
                f" {max(0.0, until - started):.0f} s left, and goes on; the kubelet will try again"
            ) from error


@dataclass(frozen=True, slots=True)
class _RegionTask:
    """A region and what its ports need.

    Args:
        region: The region.
        kept: Its ports that carry a wanted function, and are only reset.
        programmed: Its ports to program, all with one function.
    """

    region: Region
    kept: tuple[Assignment, ...]
    programmed: tuple[Assignment, ...]


def _tasks(planned: ProgrammingPlan, regions: Mapping[str, Region]) -> list[_RegionTask]:
    """What each region of a plan needs; those that only need a reset come first."""
    kept, programmed = _by_region(planned.kept), _by_region(planned.programmed)
    names = [*(each for each in kept if each not in programmed), *programmed]
    return [
        _RegionTask(regions[each], tuple(kept.get(each, ())), tuple(programmed.get(each, ())))
        for each in names
    ]


def _by_region(assignments: Sequence[Assignment]) -> dict[str, list[Assignment]]:
    found: dict[str, list[Assignment]] = {}
    for each in assignments:
        found.setdefault(each.region, []).append(each)
    return found


def _needed_for(task: _RegionTask) -> str:
    """Why a region needs a bitstream although some of its ports carry what is wanted."""
    if not task.kept:
        return ""
    ports = listing([each.port for each in task.programmed])
    return (
        f" for {ports} of region {task.region.name}, since the container gets every port of the"
        " region"
    )


def _left(until: float, seconds: float) -> float:
    """So many seconds, or as many as are left."""
    return min(seconds, max(0.1, until - asyncio.get_running_loop().time()))


def _image_there(region: Region, what: Assignment) -> Image:
    """The image of a function that a port carries; its file need not be on this node."""
    opencl = len(what.function) == _OPENCL_LENGTH
    shown = next((port.afu_id for port in region.ports if port.name == what.port), OPENCL_AFU)

    def changed() -> NoReturn:
        raise HardwareError(
            f"the function of {what.port} has just changed: the kubelet will try again"
        )

    return Image(
        interface_id=region.interface_id,
        afu_id=shown if opencl else what.function,
        data=changed,
        record=what.function if opencl else None,
    )


async def _all(work: Sequence[Awaitable[None]]) -> None:
    """Waits for all, even if some fail, and raises the error of the first."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
