"""Regions made ready for a container: what isn't there is programmed, and every port is reset.

What to do in which region is decided as a whole (`services.domain.programming`), from the cards as
they are at this moment; then all cards work at once, each in a thread of its own. A region that is
ready stays so if another one fails: the kubelet asks again, and what is there by then isn't done
again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final, NoReturn, Protocol, TypeVar

import structlog

from plugin.room import Part, Room
from plugin.worker import Worker
from services.domain.bitstreams import Bitstream
from services.domain.devices import Inventory
from services.domain.errors import AccelbindError, BitstreamMissing, HardwareError, TooSlow
from services.domain.names import OPENCL_AFU
from services.domain.programming import Assignment, Plan, plan
from services.domain.regions import Region, regions_of
from services.domain.startup import Wish
from services.hardware.bitstreams import BitstreamStorage
from services.hardware.card_threads import CardThreads
from services.hardware.programming import Image, Programmed

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
    """What programs ports; `services.hardware.programming.Programmer` does."""

    def ensure(self, port: str, image: Image) -> Programmed:
        """Sees that a function is in a port, freshly reset; may take long, or hang."""

    def reset(self, port: str) -> None:
        """Resets a port and the function in it, if nobody has it."""

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
        cards: Where to program.
        scan: Reads the cards.
        worker: Where to read cards.
        loads: Where to read bitstreams: a disk that hangs holds up nobody who needs none.
        node: This node's name.
        counts: What to count with.
        done: Told after each piece of work, so that what has changed is seen.
    """

    def __init__(
        self,
        *,
        programs: Programs,
        storage: BitstreamStorage,
        cards: CardThreads,
        scan: Callable[[], Inventory],
        worker: Worker,
        loads: Worker,
        node: str,
        counts: Counts,
        done: Callable[[], None],
    ) -> None:
        self._programs = programs
        self._storage = storage
        self._cards = cards
        self._scan = scan
        self._worker = worker
        self._loads = loads
        self._node = node
        self._counts = counts
        self._done = done
        self._room = Room(ROOM)

    async def fulfil(
        self, wish: Wish, ids: Sequence[str], interface_id: str, *, until: float
    ) -> Plan:
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
        regions, recorded = await self._worker.run(
            self._look, seconds=_left(until, LOOK_SECONDS), what="reading the cards"
        )
        planned = plan(
            wish.functions, ids, regions, recorded, interface_id=interface_id, who=wish.who
        )
        work = [
            *(self._keep(regions[each.region], each, until) for each in planned.kept),
            *(self._programme(regions[each.region], each, until) for each in planned.programmed),
        ]
        try:
            await _all(work)
        finally:
            self._done()
        return planned

    def _look(self) -> tuple[dict[str, Region], Mapping[str, str]]:
        inventory = self._scan()
        return regions_of(inventory), self._programs.recorded(inventory)

    async def _keep(self, region: Region, what: Assignment, until: float) -> None:
        """Resets the ports of a region whose function is there."""
        await self._ensure(region, what, _image_there(region, what), until)

    async def _programme(self, region: Region, what: Assignment, until: float) -> None:
        with ExitStack() as held:
            try:
                bitstream = await self._load(held, region, what, until)
            except AccelbindError:
                self._counts.programming_ended("failed")
                raise
            await self._ensure(region, what, Image.of(bitstream), until)

    async def _load(
        self, held: ExitStack, region: Region, what: Assignment, until: float
    ) -> Bitstream:
        """A bitstream, and room for it until the stack ends.

        Raises:
            BitstreamMissing: There is none.
            TooSlow: There has been no room for it.
            AccelbindError: It can't be read, or used.
        """
        ids = (region.interface_id, what.function)
        part = await self._take(await self._read(partial(self._storage.weigh, *ids), until), until)
        held.callback(part.give_back)
        try:
            bitstream = await self._read(partial(self._storage.load, *ids), until)
        except BitstreamMissing as error:
            raise BitstreamMissing(
                f"{error} on node {self._node}; install it with: accelbind bitstream install FILE"
            ) from error
        part.keep(bitstream.memory)
        return bitstream

    async def _read(self, call: Callable[[], T], until: float) -> T:
        what = f"reading a bitstream from {self._storage.folder}"
        return await self._loads.run(call, seconds=_left(until, LOAD_SECONDS), what=what)

    async def _take(self, size: int, until: float) -> Part:
        try:
            async with asyncio.timeout_at(until):
                return await self._room.take(size)
        except TimeoutError as error:
            raise TooSlow(
                "other regions were being programmed all the time, whose bitstreams take the memory"
                f" that there is for them ({ROOM >> 20} MiB); the kubelet will try again"
            ) from error

    def _do(self, region: Region, port: str, image: Image) -> Programmed:
        """In the card's thread: the container gets all ports of its region, so all are reset."""
        done = self._programs.ensure(port, image)
        for other in region.ports:
            if other.name != port:
                self._programs.reset(other.name)
        return done

    async def _ensure(self, region: Region, what: Assignment, image: Image, until: float) -> None:
        try:
            found = await self._work_on(region, what.port, image, until)
        except AccelbindError:
            self._counts.programming_ended("failed")
            raise
        if found.programmed:
            self._counts.programmed(region.interface_id, what.function, found.seconds)
        self._counts.programming_ended("programmed" if found.programmed else "kept")
        say = log.warning if found.remarks else log.info
        say(
            "region programmed" if found.programmed else "region has its function",
            region=region.name,
            port=what.port,
            interface=region.interface_id,
            function=what.function,
            seconds=round(found.seconds, 3),
            remarks=list(found.remarks),
        )

    async def _work_on(self, region: Region, port: str, image: Image, until: float) -> Programmed:
        """What comes of the card's work; without the time for it, that goes on, and isn't a hang.

        Raises:
            TooSlow: The start's time is up.
        """
        limit = asyncio.timeout_at(until)
        began = asyncio.get_running_loop().time()
        try:
            async with limit:
                return await self._cards.run_async(
                    region.address or region.card,
                    lambda: self._do(region, port, image),
                    seconds=WORK_SECONDS,
                    what=f"programming {port}",
                )
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TooSlow(
                f"the time for this start is up, with {max(0.0, until - began):.0f} s left when"
                f" {port} was begun with, which goes on; the kubelet will try again"
            ) from error


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
