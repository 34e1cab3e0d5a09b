"""Putting a function into a port, and seeing that it is there.

`Programmer.ensure` is the whole of it, in this order:

1. the card is locked, against other processes and threads (`card_lock`);
2. the port is opened alone: its driver refuses while somebody else has it, and nobody can open it
   meanwhile (`port_session`);
3. the bitstream must fit the region: its interface id is the engine's;
4. if the function is there already, the port is reset, and that is all. An OpenCL program is there
   if it was recorded (`records`), since all show one id. What the port shows does not count while
   the content of the port is recorded as unknown;
5. the user clock is set (`user_clock`), and the engine reconfigures (`ioctls`). Until step 7 it is
   recorded that the content of the port is unknown: hardware that refuses may have begun;
6. the port must show the function's id within a moment, or it is not what was asked for;
7. what was programmed is recorded, and the port is reset.

All of it is synchronous and may hang in the driver: it is for a thread that can be left behind
(`card_threads`). Whatever goes wrong is an error that says what, where, and what to do; if the port
has gone meanwhile, that is what is said.
"""

import errno
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from services.bitstreams.model import Bitstream
from services.devices.hardware.scan import scan
from services.devices.health import no_fme
from services.devices.model import Inventory
from services.names import OPENCL_AFU, canonical_id
from services.process.errors import DeviceGone, DeviceRefused, HardwareError, InvalidBitstream
from services.process.text import quote
from services.programming.clock import UserClock, asked_clock
from services.programming.clock_registers import ClockPolicy, set_user_clock
from services.programming.ioctls import (
    KERNEL,
    MAX_PORT,
    DriverCalls,
    DriverNode,
    ProgrammingFailed,
)
from services.programming.lock import LOCKS, card_lock
from services.programming.port import DeviceFiles, EnginePlace, PortPlace, find_engine, find_port
from services.programming.port_holders import who_has
from services.programming.port_session import (
    PortSession,
    busy,
    opened_node,
    port_session,
    translated,
)
from services.programming.records import FOLDER, UNKNOWN, Records
from services.programming.refusals import why_refused

STATE_DIR: Final = Path("/run/accelbind")
"""Where locks and records are: on the host, shared by all who program there."""

VERIFY_SECONDS: Final = 2.0
"""Within which a port shows what has been programmed; the drivers read it from the hardware."""

LOCK_SECONDS: Final = 10.0
"""How long to wait while somebody else works on a card, which takes seconds; whoever waits for us
waits longer than that and the work itself."""

_LOOK_EVERY: Final = 0.01

_NOT_BEGUN: Final = frozenset(
    {
        errno.EACCES,
        errno.EBUSY,
        errno.EFAULT,
        errno.EINVAL,
        errno.ENOMEM,
        errno.ENOSYS,
        errno.ENOTTY,
        errno.EPERM,
    }
)
"""What a driver answers before it touches the hardware; after anything else the port may be half
programmed (`fme_pr` in `drivers/fpga/dfl-fme-pr.c`, `fpga_region_program_fpga`)."""


@dataclass(frozen=True, slots=True)
class Image:
    """What to put into a port.

    Args:
        interface_id: What the region must have, 32 hex digits.
        afu_id: What the port shows then, 32 hex digits.
        data: Gives the raw bitstream, once it is needed.
        clock: The user clock that it asks for.
        record: The id of the OpenCL program that it is, which the port can't show.
    """

    interface_id: str
    afu_id: str
    data: "Callable[[], array[int]]"
    clock: UserClock | None = None
    record: str | None = None

    @classmethod
    def of(cls, bitstream: Bitstream) -> "Image":
        """The image in a bitstream file."""
        metadata, opencl = bitstream.metadata, bitstream.opencl
        return cls(
            metadata.interface_id,
            metadata.afu_id,
            bitstream.raw,
            asked_clock(metadata.clock_high, metadata.clock_low),
            opencl.program_id if opencl else None,
        )


@dataclass(frozen=True, slots=True)
class Programmed:
    """What has been done.

    Args:
        port: The port's name.
        interface_id: That of its region.
        afu_id: What the port shows now.
        before: What it showed before, empty if nothing usable.
        programmed: Whether it was reconfigured; if not, the function was there.
        seconds: How long it took, once the card was free.
        remarks: What isn't as it should be, but was no obstacle.
    """

    port: str
    interface_id: str
    afu_id: str
    before: str
    programmed: bool
    seconds: float = 0.0
    remarks: tuple[str, ...] = ()


Say = Callable[[str], None]
"""Told what is being done, for whoever watches."""


def _quiet(_: str) -> None:
    """Tells nobody."""


class Programmer:
    """Programs the ports of a node. Several threads may use one at once.

    Args:
        root: Folder below which `sys/` and `dev/` are.
        state_dir: Holds locks and records; shared by all who program on this host.
        lasting: Holds what should survive a reboot (`records`); by default `state_dir`.
        clock: What to do where a user clock can't be had.
        look: Gives the node's cards as they are now.
        calls: Makes the ioctls of the drivers.
        lock_seconds: How long to wait while somebody else works on a card.
        verify_seconds: How long to wait until a port shows its function.
    """

    def __init__(
        self,
        root: Path,
        state_dir: Path = STATE_DIR,
        *,
        lasting: Path | None = None,
        clock: ClockPolicy = ClockPolicy.REQUIRE,
        look: Callable[[], Inventory] | None = None,
        calls: DriverCalls = KERNEL,
        lock_seconds: float = LOCK_SECONDS,
        verify_seconds: float = VERIFY_SECONDS,
    ) -> None:
        self._root = root
        self._locks = state_dir / LOCKS
        self._records = Records(state_dir / FOLDER, lasting=lasting)
        self._clock = clock
        self._look = look or partial(scan, root)
        self._calls = calls
        self._lock_seconds = lock_seconds
        self._verify_seconds = verify_seconds

    def recorded(self, inventory: Inventory) -> dict[str, str]:
        """The OpenCL program in each port that has one, by the port's name.

        It is `UNKNOWN` for a port whose content is unknown.

        Args:
            inventory: The node's cards, as they are now.
        """
        found: dict[str, str] = {}
        names = [port.name for card in inventory.cards for port in card.ports]
        for name in names if self._records.has_any() else ():
            place = find_port(inventory, name)
            try:
                program = self._recorded(place, DeviceFiles(self._root, place))
            except HardwareError:
                continue  # gone meanwhile: nothing is known to be in it
            if program is not None:
                found[name] = program
        return found

    def check(self, port: str, image: Image, *, force: bool = False) -> Programmed:
        """What `ensure` would do; nothing is opened and nothing is changed.

        Raises:
            InvalidBitstream: The bitstream doesn't fit the region.
            DeviceBusy: A process that can be seen from here has the port.
            DeviceGone: There is no such port.
            HardwareError: It can't be programmed.
        """
        place = find_port(self._look(), port)
        _engine(place)
        _check_fits(place, image)
        files = DeviceFiles(self._root, place)
        if holders := who_has(files.node()):
            raise busy(place, holders)
        programmed = force or not self._is_there(place, files, image)
        if programmed:
            _check_not_released(place)
        return _outcome(place, image, programmed=programmed)

    def ensure(
        self, port: str, image: Image, *, force: bool = False, say: Say = _quiet
    ) -> Programmed:
        """Sees that a function is in a port, freshly reset.

        Args:
            port: The port's name.
            image: The function.
            force: Whether to program it even if it is there.
            say: Told what is being done.

        Raises:
            InvalidBitstream: The bitstream doesn't fit the region.
            DeviceBusy: Somebody else has the port, or works on the card.
            DeviceGone: There is no such port, or not any more.
            DeviceRefused: The hardware refused, or doesn't show the function afterwards.
            HardwareError: Something else of the card or its files.
        """
        say("waiting for the card")
        with self._locked(_card(find_port(self._look(), port))):
            place = find_port(self._look(), port)  # as who had the lock before has left it
            engine = _engine(place)
            _check_fits(place, image)
            with port_session(self._root, place, self._calls) as session:
                began = time.monotonic()
                there = self._is_there(place, session.files, image) and not force
                remarks = () if there else self._program(session, engine, image, say)
                say("resetting the port")
                session.reset()
                seconds = time.monotonic() - began
        done = _outcome(place, image, programmed=not there)
        return replace(done, remarks=remarks, seconds=seconds)

    def _program(
        self, session: PortSession, engine: EnginePlace, image: Image, say: Say
    ) -> tuple[str, ...]:
        _check_not_released(session.place)
        remarks = [*filter(None, [session.check_version()])]
        if image.clock is not None and self._clock is not ClockPolicy.LEAVE:
            say("setting the user clock")
            remarks += self._set_clock(session, image.clock)
        data = image.data()
        say(f"programming {len(data)} bytes")
        self._reconfigure(session, engine, image, data)
        say("verifying")
        self._verify(session, image)
        remarks += self._record(session, image)
        return tuple(remarks)

    def _record(self, session: PortSession, image: Image) -> Iterator[str]:
        key = _record_key(session.place)
        try:
            self._records.write(key, session.files.inode, image.afu_id, image.record)
        except HardwareError as error:
            yield f"{error}; it will be programmed again although it is there"

    def _set_clock(self, session: PortSession, clock: UserClock) -> Iterator[str]:
        try:
            set_user_clock(session.files, clock)
        except (DeviceRefused, InvalidBitstream) as error:
            if self._clock is ClockPolicy.REQUIRE or not session.files.is_there:
                raise
            yield f"{error}; programmed all the same"

    def _reconfigure(
        self, session: PortSession, engine: EnginePlace, image: Image, data: "array[int]"
    ) -> None:
        place = session.place
        files = DeviceFiles(self._root, engine)
        what = f"{place.name} can't be programmed with AFU {image.afu_id}"
        with opened_node(files.node(), f"{what}: {engine.name}", engine, calls=self._calls) as node:
            key, saved = _record_key(place), self._records.save(_record_key(place))
            self._records.distrust(key, session.files.inode, place.port.afu_id)
            try:
                node.program_port(_number(place), data)
            except ProgrammingFailed as error:
                if error.errno in _NOT_BEGUN:
                    self._records.restore(key, saved)
                if error.errno not in (errno.EIO, errno.ETIMEDOUT):
                    raise translated(error, what) from error
                said = why_refused(files, error.status) or "it doesn't say why"
                raise DeviceRefused(
                    f"{what}: the hardware refused ({error.strerror}; {said}); is the bitstream"
                    " whole and made for this card? The port must be programmed anew"
                ) from error

    def _verify(self, session: PortSession, image: Image) -> None:
        """Looks until the port shows the function; reading it while it comes up fails (EBUSY)."""
        deadline = time.monotonic() + self._verify_seconds
        while True:
            shown = canonical_id(session.files.text("afu_id"))
            if shown == image.afu_id:
                return
            if not session.files.is_there or time.monotonic() > deadline:
                break
            time.sleep(_LOOK_EVERY)
        raise DeviceRefused(
            f"{session.place.name} shows AFU {quote(shown, 48)} and not {image.afu_id} after it was"
            " programmed: the bitstream's metadata may name another function than is in it"
        )

    def _is_there(self, place: PortPlace, files: DeviceFiles, image: Image) -> bool:
        if place.port.afu_id != image.afu_id:
            return False
        recorded = self._recorded(place, files)
        if image.record is None:
            return recorded is None and image.afu_id != OPENCL_AFU
        return recorded == image.record

    def _recorded(self, place: PortPlace, files: DeviceFiles) -> str | None:
        if place.port.number is None:  # so its record cannot be found
            return UNKNOWN if self._records.has_any() else None
        return self._records.read(_record_key(place), files.inode, place.port.afu_id)

    def reset(self, port: str) -> None:
        """Resets a port and the function in it, if nobody has it.

        Raises:
            DeviceBusy: Somebody else has the port, or works on the card.
            DeviceGone: There is no such port, or not any more.
            DeviceRefused: The driver refused.
        """
        place = find_port(self._look(), port)
        with (
            self._locked(_card(place)),
            port_session(self._root, place, self._calls) as session,
        ):
            session.reset()

    def release(self, engine: str, port: int) -> None:
        """Takes a port from the physical function, so that a virtual one can have it.

        Args:
            engine: Name of the card's engine.
            port: The port's number within the card.

        Raises:
            DeviceBusy: The port is in use, or somebody works on the card.
            DeviceGone: There is no such engine, or not any more.
            DeviceRefused: The driver refused: there is no such port, or it is released already.
        """
        self._move(engine, port, DriverNode.release_port, "released")

    def assign(self, engine: str, port: int) -> None:
        """Gives a port back to the physical function; raises as `release`."""
        self._move(engine, port, DriverNode.assign_port, "assigned")

    def _move(
        self, engine: str, port: int, call: Callable[[DriverNode, int], None], word: str
    ) -> None:
        place = find_engine(self._look(), engine)
        what = f"port {port} of {place.name} can't be {word}"
        if port > MAX_PORT:
            raise DeviceGone(f"{what}: no port has a number beyond {MAX_PORT}")
        with self._locked(place.key):
            path = DeviceFiles(self._root, place).node()
            with opened_node(path, what, place, calls=self._calls) as node:
                try:
                    call(node, port)
                except OSError as error:
                    raise translated(error, what) from error

    def _locked(self, card: str) -> AbstractContextManager[None]:
        return card_lock(self._locks, card, seconds=self._lock_seconds)


def _card(place: PortPlace) -> str:
    return place.engine.key if place.engine else place.card.address or place.card.name


def _record_key(place: PortPlace) -> str:
    return f"{_card(place)}-port{place.port.number}"


def _engine(place: PortPlace) -> EnginePlace:
    if place.engine is None:
        pci = place.card.pci
        raise HardwareError(no_fme(place.name, pci.physfn if pci else None).message)
    return place.engine


def _number(place: PortPlace) -> int:
    if place.port.number is None:
        raise HardwareError(f"{place.name} doesn't tell its number, which programming needs")
    return place.port.number


def _check_not_released(place: PortPlace) -> None:
    """Refuse a port that the physical function has released, under the in-tree driver.

    That driver programs through the port's device on the physical function. It deletes that device
    when the port is released, and does not check for it when it programs
    (`dfl_fpga_cdev_release_port` in `drivers/fpga/dfl.c`, `fme_bridge_enable_set` in
    `drivers/fpga/dfl-fme-br.c`). A port on a virtual function is always a released one.

    Raises:
        DeviceRefused: It is released.
    """
    physical = place.card.pci.physfn if place.card.pci else None
    if place.card.driver == "dfl" and physical:
        number = "N" if place.port.number is None else place.port.number
        engine = place.engine.name if place.engine else "FME"
        raise DeviceRefused(
            f"{place.name} can't be programmed: it is released to virtual function"
            f" {place.card.address}, and the in-tree driver programs only ports of the physical"
            f" function; set sriov_numvfs of {physical} to 0, then give the port back:"
            f" accelbind fpga assign {engine} --port {number}"
        )


def _check_fits(place: PortPlace, image: Image) -> None:
    found = place.interface_id
    if not found:
        problems = place.engine.fme.problems if place.engine else ()
        why = "; ".join(problem.message for problem in problems)
        raise HardwareError(f"the region of {place.name} has no usable interface id: {why}")
    if found != image.interface_id:
        raise InvalidBitstream(
            f"the bitstream of AFU {image.afu_id} is for regions with interface id"
            f" {image.interface_id}, and that of {place.name} has {found}: take one made for it"
        )


def _outcome(place: PortPlace, image: Image, *, programmed: bool) -> Programmed:
    return Programmed(
        place.name, place.interface_id, image.afu_id, place.port.afu_id, programmed=programmed
    )
