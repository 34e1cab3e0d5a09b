"""Putting a function into a port, and verifying that it is there.

All of it is synchronous and may hang in the driver: call it in a thread that can be left behind
(`services.process.blocking`).
"""

import contextlib
import errno
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final

from services.bitstreams.model import UserClock
from services.devices.hardware.scan import scan
from services.devices.health import PORT_WITHOUT_DRIVER
from services.devices.model import Card, Inventory, PciFunction
from services.names import canonical_id
from services.process.errors import (
    DeviceBusy,
    DeviceGone,
    DeviceRefused,
    HardwareError,
)
from services.process.text import quote
from services.programming import rebinding
from services.programming.clock import ClockCheck, check_user_clock
from services.programming.error_registers import why_refused
from services.programming.host_state import HostState, PortRecord
from services.programming.image import Image, Programmed, fitting_engine
from services.programming.ioctls import (
    MAX_PORT,
    DriverCalls,
    DriverNode,
    ProgrammingFailed,
    holders_of,
)
from services.programming.port import (
    DeviceFiles,
    EnginePlace,
    PortPlace,
    PortSession,
    busy,
    check_not_released,
    device_name,
    find_card,
    find_engine,
    find_port,
    opened_node,
    port_session,
    translated,
)

VERIFY_SECONDS: Final = 2.0
"""Within which a port shows what has been programmed; the drivers read it from the hardware."""

LOCK_SECONDS: Final = 10.0
"""How long to wait while somebody else works on a card, which takes seconds. Whoever waits for this
process waits longer than for the lock and the work itself."""

_VERIFY_INTERVAL: Final = 0.01

Require = Callable[[Inventory], None]
"""Raises if a port must be left alone, with the cards as they are now."""


class Programmer:
    """Programs the ports of a node. Several threads may use one at once."""

    def __init__(
        self,
        root: Path,
        state_dir: Path,
        *,
        clocks: ClockCheck = ClockCheck.CHECK,
        scan_cards: Callable[[], Inventory] | None = None,
        calls: DriverCalls,
        lock_seconds: float = LOCK_SECONDS,
        rebinds: bool = False,
    ) -> None:
        """Take what is needed; `rebinds` lets `ensure` rebind the driver of a disabled port."""
        self._root = root
        self._host = HostState(state_dir)
        self._records = self._host.records
        self._clocks = clocks
        self._scan = scan_cards or partial(scan, root)
        self._calls = calls
        self._lock_seconds = lock_seconds
        self._rebinds = rebinds

    def ensure(
        self,
        port: str,
        image: Image,
        *,
        force: bool = False,
        require: Require = lambda _: None,
    ) -> Programmed:
        """Make a port carry a function, freshly reset; `force` programs it even if it is there.

        `require` is called under the card's lock, before the port is opened.

        Raises:
            InvalidBitstream: The bitstream doesn't fit the region.
            DeviceBusy: Somebody else has the port, or works on the card.
            DeviceGone: The port does not exist or was removed.
            DeviceRefused: The hardware refused, or doesn't show the function afterwards.
            HardwareError: Something else of the card or its files.
        """
        with self._locked(find_port(self._scan(), port).card):
            inventory = self._scan()  # the holder of the lock may have changed it
            require(inventory)
            place = self._enabled(find_port(inventory, port))
            engine = fitting_engine(place, image)
            with port_session(self._root, place, self._calls) as session:
                started = time.monotonic()
                record = self._record(place, session.files)
                is_there = image.is_in(record) and not force
                clock = record.clock if record and is_there else image.clock
                slow_clock = self._compare_clock(session.files, clock)
                remarks = () if is_there else self._program(session, engine, image)
                session.reset()
                seconds = time.monotonic() - started
        return Programmed(
            place.name,
            place.interface_id,
            image.afu_id,
            before=place.port.afu_id,
            programmed=not is_there,
            seconds=seconds,
            slow_clock=slow_clock,
            remarks=remarks,
        )

    def _enabled(self, place: PortPlace) -> PortPlace:
        """A port that its driver does not keep disabled; rebind the driver if it does."""
        if not (unusable := DeviceFiles(self._root, place).unusable):
            return place
        if not self._rebinds:
            raise DeviceRefused(f"{unusable}, then program it")
        try:
            ports = self._rebind(place.card)
        except HardwareError as error:
            raise type(error)(f"{unusable}; {error}") from error
        for each in ports:
            if each.record_key == place.record_key and each.name == place.name:
                rebinding.require_enabled(self._root, each)
                return each
        raise DeviceGone(
            f"{place.name} has another name since its driver was rebound: if a pod was given it"
            " by its resource, delete the pod; a claim is prepared under the new name"
        )

    def enable(self, port: str) -> bool:
        """Rebind a card's driver if it keeps this port disabled; whether it did."""
        with self._locked(find_port(self._scan(), port).card):
            place = find_port(self._scan(), port)
            if not DeviceFiles(self._root, place).unusable:
                return False
            for each in self._rebind(place.card):
                if each.record_key == place.record_key:
                    rebinding.require_enabled(self._root, each)
            return True

    def rebind(
        self,
        device: str,
        *,
        withdraw: Callable[[Card], None] = lambda _: None,
        require: Require = lambda _: None,
    ) -> tuple[str, ...]:
        """Rebind the driver of a device's card; return the names of its ports now.

        `withdraw` and then `require` are called under the card's lock, once those who offer the
        card can know of it. A card without a driver, given by its address, is bound. Raises errors
        as `ensure`.
        """
        inventory, address = self._scan(), device_name(device)
        if rebinding.is_unbound(self._root, inventory, address):
            unbound = Card("", address, PciFunction(address), fme=None)
            with self._locked(unbound):
                rebinding.bind_card(self._root, address)
                ports = rebinding.ports_afterwards(self._scan, unbound, 1)
                return rebinding.enabled_ports(self._root, ports)
        card = find_card(inventory, device)
        rebinding.require_no_virtual_functions(self._root, card)
        try:
            with self._locked(card, rebinding=True):
                rebinding.announce_change(self._root, card)
                withdraw(card)
                inventory = self._scan()
                require(inventory)
                found = find_card(inventory, device)
                return rebinding.enabled_ports(self._root, self._rebind(found))
        finally:
            rebinding.announce_change(self._root, card)  # it leaves no longer

    def _rebind(self, card: Card) -> list[PortPlace]:
        rebinding.rebind_card(self._root, self._scan(), card, self._calls)
        return rebinding.ports_afterwards(self._scan, card, len(card.ports))

    def _program(self, session: PortSession, engine: EnginePlace, image: Image) -> tuple[str, ...]:
        check_not_released(session.place, engine)
        self._reconfigure(session, engine, image)
        self._verify(session, image)
        key, inode = session.place.record_key, session.files.inode
        try:
            self._records.write(key, inode, image.afu_id, image.function, image.clock)
        except HardwareError as error:
            return (f"{error}; it will be programmed again although it is there",)
        return ()

    def _reconfigure(self, session: PortSession, engine: EnginePlace, image: Image) -> None:
        place, data = session.place, image.data()
        files = DeviceFiles(self._root, engine)
        failed = f"{place.name} can't be programmed with AFU {image.afu_id}"
        opened = opened_node(files.node(), f"{failed}: {engine.name}", engine, calls=self._calls)
        with opened as node:
            if place.port.number is None:
                raise HardwareError(
                    f"{place.name} doesn't report its number, which programming needs"
                )
            self._records.empty(place.record_key)  # until the port shows the function
            try:
                node.program_port(place.port.number, data)
            except ProgrammingFailed as error:
                if not error.refused_by_hardware:
                    raise translated(error, failed) from error
                reason = why_refused(files, error.status) or "it doesn't say why"
                left = "The port must be reprogrammed"
                if session.files.is_disabled:
                    left = f"Its driver keeps the port disabled now: {_rebind_advice(place)}"
                # Who does not answer in time has not looked at the bitstream's end.
                doubt = "; is the bitstream whole and made for this card?"
                doubt = doubt if error.errno == errno.EIO else "."
                raise DeviceRefused(
                    f"{failed}: the hardware refused ({error.strerror}; {reason}){doubt} {left}"
                ) from error

    def _verify(self, session: PortSession, image: Image) -> None:
        deadline = time.monotonic() + VERIFY_SECONDS
        while True:
            # Reading it while the function comes up fails (EBUSY).
            shown = canonical_id(session.files.text("afu_id"))
            if shown == image.afu_id:
                return
            if not session.files.is_there or time.monotonic() > deadline:
                break
            time.sleep(_VERIFY_INTERVAL)
        if session.files.is_disabled:
            raise DeviceRefused(
                f"{session.place.name} is still disabled after it was programmed, so AFU"
                f" {image.afu_id} can't be reached: {_rebind_advice(session.place)}"
            )
        raise DeviceRefused(
            f"{session.place.name} shows AFU {quote(shown, 48)} and not {image.afu_id} after it was"
            " programmed: the bitstream's metadata may name another function than is in it"
        )

    def check(
        self,
        port: str,
        image: Image,
        *,
        force: bool = False,
        require: Require = lambda _: None,
    ) -> Programmed:
        """Predict what `ensure` does; nothing is opened or changed. Raises the same errors."""
        inventory = self._scan()
        require(inventory)
        place = find_port(inventory, port)
        engine = fitting_engine(place, image)
        files = DeviceFiles(self._root, place)
        if files.unusable:
            raise DeviceRefused(f"{files.unusable}, then program it")
        if holders := holders_of(files.node()):
            raise busy(place, holders)
        programmed = force or not image.is_in(self._record(place, files))
        if programmed:
            check_not_released(place, engine)
        return Programmed(
            place.name, place.interface_id, image.afu_id, place.port.afu_id, programmed=programmed
        )

    def contents(self, inventory: Inventory) -> dict[str, str]:
        """By port name: the function in it, if its record counts; empty if the record is."""
        unfinished = self._records.unfinished()
        contents = {}
        for card in inventory.cards:
            for port in card.ports:
                place = PortPlace(card, port, None)
                if place.record_key in unfinished:
                    contents[port.name] = ""
                    continue
                with contextlib.suppress(DeviceGone):
                    record = self._record(place, DeviceFiles(self._root, place))
                    if record and record.function:
                        contents[port.name] = record.function
        return contents

    def empty(self, engine: str) -> None:
        """Empty the records of a region's ports: from now on, its workload programs them."""
        with self._locked(find_engine(self._scan(), engine).card):
            inventory = self._scan()
            place = find_engine(inventory, engine)
            for card in inventory.members(place.card):
                for port in card.ports:
                    self._records.empty(PortPlace(card, port, place).record_key)

    def settle(self, engine: str) -> None:
        """Wait until nobody works on the card of a region."""
        with self._locked(find_engine(self._scan(), engine).card):
            pass

    def check_clock(self, port: str) -> str:
        """Compare the user clock of a port with what the function in it asks for, as `ensure`."""
        place = find_port(self._scan(), port)
        files = DeviceFiles(self._root, place)
        record = self._record(place, files)
        return self._compare_clock(files, record.clock if record else None)

    def _compare_clock(self, files: DeviceFiles, requested: UserClock | None) -> str:
        if requested is None or self._clocks is ClockCheck.LEAVE:
            return ""
        return check_user_clock(files, requested)

    def _record(self, place: PortPlace, files: DeviceFiles) -> PortRecord | None:
        if place.port.number is None:
            return None
        return self._records.read(place.record_key, files.inode, place.port.afu_id)

    def reset(self, port: str) -> None:
        """Reset a port and the function in it, if nobody has it; raises errors as `ensure`."""
        with self._locked(find_port(self._scan(), port).card):
            place = find_port(self._scan(), port)
            if unusable := DeviceFiles(self._root, place).unusable:
                raise DeviceRefused(f"{unusable}; a reset would leave it as it is")
            with port_session(self._root, place, self._calls) as session:
                session.reset()

    def release(self, engine: str, port: int) -> None:
        """Take a port from the physical function, so that a virtual one can have it.

        The engine is given by name, the port by its number within the card.
        """
        self._move(engine, port, DriverNode.release_port, "released")

    def assign(self, engine: str, port: int) -> str:
        """Give a port back to the physical function; a sentence if no driver serves it then.

        Raises errors as `release`.
        """
        self._move(engine, port, DriverNode.assign_port, "assigned")
        ports = find_engine(self._scan(), engine).card.ports
        problems = (each for port in ports for each in port.problems)
        return next((each.text for each in problems if each.code == PORT_WITHOUT_DRIVER), "")

    def _move(
        self, engine: str, port: int, call: Callable[[DriverNode, int], None], word: str
    ) -> None:
        place = find_engine(self._scan(), engine)
        failed = f"port {port} of {place.name} can't be {word}"
        if port > MAX_PORT:
            raise DeviceGone(f"{failed}: no port has a number beyond {MAX_PORT}")
        with self._locked(place.card):
            place = find_engine(self._scan(), engine)  # the lock's holder may have changed it
            path = DeviceFiles(self._root, place).node()
            with opened_node(path, failed, place, calls=self._calls) as node:
                try:
                    call(node, port)
                except OSError as error:
                    if error.errno == errno.EBUSY:
                        text = f"{failed}: it is {word} already, or a process has it open"
                        raise DeviceBusy(f"{text} ({error.strerror})") from error
                    raise translated(error, failed) from error

    def _locked(self, card: Card, *, rebinding: bool = False) -> AbstractContextManager[None]:
        seconds = self._lock_seconds
        return self._host.lock_card(card.lock, seconds=seconds, rebinding=rebinding)


def _rebind_advice(place: PortPlace) -> str:
    return f"rebind it with accelbind fpga rebind {place.name}, then program the port"
