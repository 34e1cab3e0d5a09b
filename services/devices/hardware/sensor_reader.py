"""Reading what cards measure: below `thermal_mgmt`, `power_mgmt`, `hwmon` and `sensorN`.

Sensors are read apart from the scan: a controller answers in milliseconds, a register in
microseconds. A read that hangs holds up no other card (`services.process.blocking`).
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from services.devices.hardware.pci import address_in
from services.devices.hardware.scan import DRIVER_BY_NAME
from services.devices.hardware.sysfs import Sysfs
from services.devices.health import register_value
from services.devices.model import Card
from services.devices.sensors import (
    BusErrors,
    CardSensors,
    ErrorRegister,
    aer_total,
    board_watts,
    celsius,
    gauges,
    label,
    watts,
)
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError

MAX_FOLDERS: Final = 512
"""Folders below an engine that are searched; some sixty on an N6000."""

KEY: Final = "sensors"
"""The key under which sensors are read; that of a card has its path behind it."""

READ_SECONDS: Final = 1.0
"""For the sensors of all cards, which are read at the same time."""

_MONITOR = re.compile(r"hwmon[0-9]{1,9}")
_SENSOR = re.compile(r"sensor[0-9]{1,9}")
_CHANNEL = re.compile(r"(temp|power)[0-9]{1,4}_(?:input|average)")
_ERRORS = re.compile(r"(?!inject)(?:[a-z0-9]{1,32}_)?errors")

_MILLI_CELSIUS: Final[Callable[[str], float | None]] = partial(celsius, unit=1e-3)
_MICRO_WATTS: Final[Callable[[str], float | None]] = partial(watts, unit=1e-6)
_Measured = tuple[str, str, float | None]
"""`temp` or `power`, a sensor's label, and what it measures in °C or W."""


class SensorReader:
    """Reads cards' sensors repeatedly; `calls` make the reads."""

    def __init__(
        self, root: Path, calls: BlockingCalls, *, files: Callable[[Path], Sysfs] = Sysfs
    ) -> None:
        self._root = root
        self._calls = calls
        self._files = files

    async def read(
        self, cards: Iterable[Card], *, seconds: float = READ_SECONDS
    ) -> tuple[CardSensors, ...]:
        """The values of each card's sensors now, without cards that hang for so many seconds."""
        files = self._files(self._root)
        readable = [card for card in cards if card.failure is None]
        reads = [self._read_one(files, card, seconds) for card in readable]
        return tuple(filter(None, await asyncio.gather(*reads)))

    async def _read_one(self, files: Sysfs, card: Card, seconds: float) -> CardSensors | None:
        path = f"{DRIVER_BY_NAME[card.driver].folder}/{card.name}"
        try:
            return await self._calls.run(
                f"{KEY} {path}",
                partial(_read, files, path, card),
                timeout=seconds,
                what=f"reading the sensors of {path}",
            )
        except HardwareError:
            return None


def _read(files: Sysfs, path: str, card: Card) -> CardSensors | None:
    """The sensors of a card; in a thread that may be left behind."""
    entry = files.resolve(path)
    if entry is None:
        return None
    values: dict[str, list[tuple[str, float | None]]] = {"temp": [], "power": []}
    registers: list[ErrorRegister] = []
    if card.fme is not None:
        engine = f"{entry}/{card.fme.name}"
        for kind, name, value in _search(files, engine):
            values[kind].append((name, value))
        registers.extend(_engine_registers(files, engine, card.fme.name))
    for port in card.ports:
        file = f"{entry}/{port.name}/errors/errors"
        registers.extend(_registers(files, port.name, {"port_errors": file}))
    return CardSensors(
        card=card.name,
        address=card.address,
        temperatures=gauges(values["temp"]),
        powers=gauges(values["power"]),
        registers=tuple(registers),
        bus_errors=_bus_errors(files, address_in(entry)[1]),
    )


# Where the sensors are ---------------------------------------------------------------------------


def _search(files: Sysfs, engine: str) -> Iterator[_Measured]:
    """The sensors below an engine: its own first, then folder by folder in the order of names."""
    # The out-of-tree driver's, in °C and W.
    yield "temp", "thermal_mgmt", celsius(files.text(f"{engine}/thermal_mgmt/temperature"))
    yield "power", "power_mgmt", watts(files.text(f"{engine}/power_mgmt/consumed"))
    # The in-tree driver has hwmon folders. A board's management controller adds its own deeper
    # down, behind buses whose names vary: hwmon in tree, sensorN out of tree.
    todo = deque([engine])
    for _ in range(MAX_FOLDERS):
        if not todo:
            return
        folder = todo.popleft()
        for name in _shorter_first(files.folders(folder)):
            below = f"{folder}/{name}"
            if _MONITOR.fullmatch(name):
                yield from _monitor(files, below)
            elif _SENSOR.fullmatch(name):
                yield from _sensor(files, below)
            else:
                todo.append(below)


def _monitor(files: Sysfs, folder: str) -> Iterator[_Measured]:
    """A hwmon folder, in m°C and µW (Linux, `Documentation/hwmon/sysfs-interface.rst`)."""
    owner = files.text(f"{folder}/name")
    power = board_watts if "bmc" in owner else _MICRO_WATTS
    seen: set[str] = set()
    # So `_input` comes before `_average`.
    for name in _shorter_first(files.names_if_listable(folder)):
        match = _CHANNEL.fullmatch(name)
        channel = name.partition("_")[0]
        if match is None or channel in seen:
            continue
        seen.add(channel)
        own_label = label(files.text(f"{folder}/{channel}_label"))
        parse = _MILLI_CELSIUS if match[1] == "temp" else power
        yield match[1], own_label or label(owner, channel), parse(files.text(f"{folder}/{name}"))


def _sensor(files: Sysfs, folder: str) -> Iterator[_Measured]:
    """A folder of a board's controller under the out-of-tree driver, in m°C and mW."""
    kind = files.text(f"{folder}/type").lower()
    shown = label(files.text(f"{folder}/name")) or folder.rpartition("/")[2]
    if "temperature" in kind:
        yield "temp", shown, _MILLI_CELSIUS(files.text(f"{folder}/value"))
    elif "power" in kind:
        yield "power", shown, watts(files.text(f"{folder}/value"), unit=1e-3)


def _shorter_first(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (len(name), name))


# Registers and counters --------------------------------------------------------------------------


def _engine_registers(files: Sysfs, engine: str, name: str) -> Iterator[ErrorRegister]:
    folder = f"{engine}/errors"
    names = files.names_if_listable(folder)
    paths = {each: f"{folder}/{each}" for each in sorted(names) if _ERRORS.fullmatch(each)}
    if "fme-errors" in names:
        paths["fme_errors"] = f"{folder}/fme-errors/errors"
    yield from _registers(files, name, paths)


def _registers(files: Sysfs, part: str, paths: Mapping[str, str]) -> Iterator[ErrorRegister]:
    for name, path in paths.items():
        value = register_value(files.text(path))
        if value is not None:
            yield ErrorRegister(part, name, value)


def _bus_errors(files: Sysfs, function: str) -> BusErrors:
    """Error counts of the PCI core; its files ask nothing of the card."""
    if not function:
        return BusErrors()
    kinds = ("correctable", "nonfatal", "fatal")
    return BusErrors(*(aer_total(files.text(f"{function}/aer_dev_{kind}")) for kind in kinds))
