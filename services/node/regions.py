"""Regions made ready for a container: every port carries what the container wants, and is reset.

What to do in which region is decided as a whole (`services.programming.assignment`), from the cards
as they are at this moment; then all cards work at once, each in a thread of its own. A region that
is ready stays so if another one fails: the kubelet asks again, and what is there by then isn't done
again.
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
from services.containers.identity import Wish
from services.devices.model import Inventory
from services.names import OPENCL_AFU
from services.node.room import Part, Room
from services.node.steady import card_key
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
from services.programming.image import Image, Programmed

T = TypeVar("T")

LOOK_SECONDS: Final = 8.0
"""For reading the cards."""

LOAD_SECONDS: Final = 15.0
"""For reading a bitstream from the disk."""

WORK_SECONDS: Final = 20.0
"""For a card to be programmed: the whole `PreStartContainer` has 25, the kubelet gives it 30."""

ROOM: Final = 600 * 1024 * 1024
"""Bytes of bitstreams in memory at once; the largest known cards need 70 to 100 MB (an AOCX is
there twice, once packed). A container that is killed for its memory is killed in the middle of
programming: the manifests' limit has room for these, and for what a card that hangs holds besides.
"""

_OPENCL_LENGTH: Final = 40

log = structlog.get_logger(room="plugin")


class Programs(Protocol):
    """What programs ports; `services.programming.programmer.Programmer` does."""

    def ensure(self, port: str, image: Image) -> Programmed:
        """Sees that a function is in a port, freshly reset; may take long, or hang."""

    def recorded(self, inventory: Inventory) -> Mapping[str, str]:
        """The OpenCL program in each port that has one, by the port's name."""


class Counts(Protocol):
    """What is counted of programming."""

    def programmed(self, interface_id: str, function: str, seconds: float) -> None:
        """A function was programmed."""

    def programming_ended(self, outcome: str) -> None:
        """A region was made ready (`programmed`, `kept`), or couldn't be (`failed`)."""


class RegionWork:
    """Makes a node's regions ready.

    Args:
        programs: Programs ports.
        storage: This node's bitstreams.
        calls: Makes the calls that may hang: under the key of a card, `scan`, and `bitstreams`.
        scan: Reads the cards.
        node: This node's name.
        counts: What to count with.
        done: Told after each piece of work, so that what has changed is seen.
    """

    def __init__(
        self,
        *,
        programs: Programs,
        storage: BitstreamStorage,
        calls: BlockingCalls,
        scan: Callable[[], Inventory],
        node: str,
        counts: Counts,
        done: Callable[[], None],
    ) -> None:
        self._programs = programs
        self._storage = storage
        self._calls = calls
        self._scan = scan
        self._node = node
        self._counts = counts
        self._done = done
        self._room = Room(ROOM)

    async def fulfil(
        self, wish: Wish, ids: Sequence[str], interface_id: str, *, until: float
    ) -> ProgrammingPlan:
        """Sees that a container's functions are in its regions.

        Args:
            wish: What it wants and may have.
            ids: The regions that it was given.
            interface_id: Canonical interface id that they must have.
            until: When to give up, by the event loop's clock.

        Returns:
            What was there, and what was programmed.

        Raises:
            AccelbindError: One of them isn't ready; of several, the first one's reason.
        """
        regions, recorded = await self._calls.run(
            "scan", self._look, timeout=_left(until, LOOK_SECONDS), what="reading the cards"
        )
        planned = plan(
            wish.functions, ids, regions, recorded, interface_id=interface_id, who=wish.who
        )
        tasks = _tasks(planned, regions)
        try:
            await _all([self._prepare(each, until) for each in tasks])
        finally:
            self._done()
        return planned

    def _look(self) -> tuple[dict[str, Region], Mapping[str, str]]:
        inventory = self._scan()
        return regions_of(inventory), self._programs.recorded(inventory)

    async def _prepare(self, task: "_RegionTask", until: float) -> None:
        """Makes every port of a region carry what it should, freshly reset."""
        images = {each.port: _image_there(task.region, each) for each in task.kept}
        with ExitStack() as held:
            if task.programmed:
                try:
                    bitstream = await self._load(held, task, until)
                except AccelbindError:
                    self._counts.programming_ended("failed")
                    raise
                image = Image.of(bitstream)
                images |= {each.port: image for each in task.programmed}
            await self._ensure(task, images, until)

    async def _load(self, held: ExitStack, task: "_RegionTask", until: float) -> Bitstream:
        """The bitstream that a region needs, and room for it until the stack ends.

        Raises:
            BitstreamMissing: There is none.
            TooSlow: There has been no room for it.
            AccelbindError: It can't be read, or used.
        """
        ids = (task.region.interface_id, task.programmed[0].function)
        size = await self._read(partial(self._storage.memory_needed, *ids), until)
        part = await self._take(size, until)
        held.callback(part.give_back)
        try:
            bitstream = await self._read(partial(self._storage.load, *ids), until)
        except BitstreamMissing as error:
            raise BitstreamMissing(
                f"{error} on node {self._node}{_needed_for(task)}; install it with: accelbind"
                " bitstream install FILE"
            ) from error
        part.keep(bitstream.memory)
        return bitstream

    async def _read(self, call: Callable[[], T], until: float) -> T:
        what = f"reading a bitstream from {self._storage.folder}"
        timeout = _left(until, LOAD_SECONDS)
        return await self._calls.run("bitstreams", call, timeout=timeout, what=what)

    async def _take(self, size: int, until: float) -> Part:
        try:
            async with asyncio.timeout_at(until):
                return await self._room.take(size)
        except TimeoutError as error:
            raise TooSlow(
                "other regions were being programmed all the time, whose bitstreams take the memory"
                f" that there is for them ({ROOM >> 20} MiB); the kubelet will try again"
            ) from error

    def _do(self, images: Mapping[str, Image]) -> dict[str, Programmed]:
        """In the card's thread: the container gets all ports of its region, so each is seen to.

        The ports that only need a reset come first: one that is in use stops this early.
        """
        return {port: self._programs.ensure(port, image) for port, image in images.items()}

    async def _ensure(self, task: "_RegionTask", images: Mapping[str, Image], until: float) -> None:
        try:
            found = await self._work_on(task.region, images, until)
        except AccelbindError:
            self._counts.programming_ended("failed")
            raise
        changed = any(each.programmed for each in found.values())
        self._counts.programming_ended("programmed" if changed else "kept")
        interface_id = task.region.interface_id
        for each in (*task.kept, *task.programmed):
            done = found[each.port]
            if done.programmed:
                self._counts.programmed(interface_id, each.function, done.seconds)
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
        """What comes of the card's work; without the time for it, that goes on, and isn't a hang.

        Raises:
            TooSlow: The start's time is up.
        """
        ports = listing(list(images))
        limit = asyncio.timeout_at(until)
        began = asyncio.get_running_loop().time()
        try:
            async with limit:
                return await self._calls.run(
                    card_key(region.address or region.card),
                    lambda: self._do(images),
                    timeout=WORK_SECONDS,
                    what=f"programming {ports}",
                )
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TooSlow(
                f"the time for this start is up, with {max(0.0, until - began):.0f} s left when"
                f" {ports} was begun with, which goes on; the kubelet will try again"
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
    """What each region of a plan needs, those first that only need a reset."""
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
    """Why a bitstream is needed for a region of which other ports carry what is wanted."""
    if not task.kept:
        return ""
    ports = listing([each.port for each in task.programmed])
    return (
        f" for {ports} of region {task.region.name}, since the container gets every port of the"
        " region"
    )


def _left(until: float, seconds: float) -> float:
    """As many seconds, or as many as are left."""
    return min(seconds, max(0.1, until - asyncio.get_running_loop().time()))


def _image_there(region: Region, what: Assignment) -> Image:
    """A function that a port carries: its file isn't needed, and need not be on this node."""
    opencl = len(what.function) == _OPENCL_LENGTH
    shown = next((port.afu_id for port in region.ports if port.name == what.port), OPENCL_AFU)

    def changed() -> NoReturn:
        raise HardwareError(
            f"{what.port} has just been given another function: the kubelet will try again"
        )

    return Image(
        interface_id=region.interface_id,
        afu_id=shown if opencl else what.function,
        data=changed,
        record=what.function if opencl else None,
    )


async def _all(work: Sequence[Awaitable[None]]) -> None:
    """Waits for all, whatever comes of each, and raises what the first of them did."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
