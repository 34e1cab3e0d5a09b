"""What `accelbind fpga` shows: FMEs, ports, all that is known of one, and results."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import msgspec

from accelbind.fpga.held import Interruption
from services.devices.hardware.scan import scan
from services.devices.hardware.sensor_reader import SensorReader
from services.devices.model import Card, Inventory, Port, VirtualFunction
from services.process.blocking import BlockingCalls
from services.process.problem import Problem
from services.process.text import count, listing
from services.programming.clock import read_user_clock
from services.programming.error_registers import ClearedRegister, read_errors
from services.programming.image import Programmed
from services.programming.ioctls import holders_of
from services.programming.port import DeviceFiles, EnginePlace, PortPlace, find_device

HEADINGS: Final = ("DEVICE", "KIND", "CARD", "PCI", "NUMA", "INTERFACE", "AFU", "STATE")
_FME_FILES: Final = {
    "portsNum": "ports_num",
    "socketId": "socket_id",
    "bitstreamId": "bitstream_id",
    "bitstreamMetadata": "bitstream_metadata",
    "cacheSize": "cache_size",
    "version": "version",
}

SENSOR_SECONDS: Final = 5.0
"""For the sensors of the card."""


def list_devices(inventory: Inventory) -> list[dict[str, Any]]:
    """The FMEs, ports, virtual functions and broken cards of a node, for JSON."""
    rows = []
    for card in inventory.cards:
        if card.fme is not None:
            rows.append(
                _device(card, card.fme.name, "fme", card.fme.problems)
                | {"interfaceId": card.fme.interface_id}
            )
        rows += [_port(inventory, card, port) for port in card.ports]
        rows += [_function(card, each) for each in card.functions or ()]
        if card.failure is not None:
            rows.append(_device(card, "", "card", (card.failure,)))
    return rows


def _port(inventory: Inventory, card: Card, port: Port) -> dict[str, Any]:
    fme = inventory.physical(card).fme
    problems = (*(fme.problems if fme else ()), *port.problems)
    return _device(card, port.name, "port", problems) | {
        "fme": fme.name if fme else "",
        "number": port.number,
        "interfaceId": fme.interface_id if fme else "",
        "afuId": port.afu_id,
    }


def _function(card: Card, function: VirtualFunction) -> dict[str, Any]:
    row = _device(card, function.pci.address, "function", function.problems)
    return row | {
        "pciAddress": function.pci.address,
        "numaNode": function.pci.numa_node,
        "fme": card.fme.name if card.fme else "",
        "interfaceId": card.fme.interface_id if card.fme else "",
        "afuId": function.afu_id,
    }


def _device(card: Card, name: str, kind: str, problems: tuple[Problem, ...]) -> dict[str, Any]:
    return {
        "device": name,
        "kind": kind,
        "driver": card.driver,
        "card": card.name,
        "pciAddress": card.address,
        "numaNode": card.pci.numa_node if card.pci else None,
        "healthy": not problems,
        "problems": msgspec.to_builtins(problems),
    }


def row(device: dict[str, Any]) -> tuple[str, ...]:
    """A device as a row of the table."""
    numa = device["numaNode"]
    return (
        device["device"],
        device["kind"],
        device["card"],
        device["pciAddress"],
        "" if numa is None else str(numa),
        device.get("interfaceId", ""),
        device.get("afuId", ""),
        "; ".join(each["message"] for each in device["problems"]) or "ok",
    )


def describe(root: Path, device: str) -> dict[str, Any]:
    """All that is known of a device."""
    place = find_device(scan(root), device)
    files = DeviceFiles(root, place)
    engine = place if isinstance(place, EnginePlace) else place.engine
    pci = place.card.pci
    described: dict[str, Any] = {
        "device": place.name,
        "kind": "port" if isinstance(place, PortPlace) else "fme",
        "driver": place.card.driver,
        "card": place.card.name,
        "node": f"/dev/{place.name}",
        "sysfs": files.folder,
        "usedBy": holders_of(root / "dev" / place.name),
        "pci": {"address": pci.address, "physicalFunction": pci.physfn, "numaNode": pci.numa_node}
        if pci
        else {},
    }
    problems = engine.fme.problems if engine else ()
    if isinstance(place, PortPlace):
        clock = read_user_clock(files)
        described |= {
            "fme": engine.name if engine else "",
            "number": place.port.number,
            "interfaceId": place.interface_id,
            "afuId": place.port.afu_id,
            "userClock": str(clock) if clock else "",
            "powerState": files.text("power_state"),
        }
        problems += place.port.problems
        if engine:
            described["socketId"] = DeviceFiles(root, engine).text("socket_id")
    else:
        described["interfaceId"] = place.fme.interface_id
        described |= {name: files.text(file) for name, file in _FME_FILES.items()}
    if engine:
        read = SensorReader(root, BlockingCalls()).read([engine.card], seconds=SENSOR_SECONDS)
        for sensors in asyncio.run(read):
            for key, gauges in (("temperatures", sensors.temperatures), ("powers", sensors.powers)):
                described[key] = {each.label or "fme": each.value for each in gauges}
    errors = read_errors(files, place).items()
    return described | {
        "problems": msgspec.to_builtins(problems),
        "errors": {name: f"{value:#x}" for name, value in errors},
    }


def facts(described: dict[str, Any]) -> dict[str, Any]:
    """The same for people."""
    problems = "; ".join(each["message"] for each in described["problems"]) or "none"
    shown = described | {"problems": problems}
    for key, unit in (("temperatures", "°C"), ("powers", "W")):
        if key in described:
            shown[key] = {name: f"{value:g} {unit}" for name, value in described[key].items()}
    return shown


def program_result(result: Programmed, *, dry_run: bool) -> dict[str, Any]:
    """The result of programming, for scripts."""
    word = "programmed" if result.programmed else "present"
    return {
        "device": result.port,
        "outcome": f"would-be-{word}" if dry_run and result.programmed else word,
        "interfaceId": result.interface_id,
        "afuId": result.afu_id,
        "before": result.before,
        "seconds": round(result.seconds, 3),
        "remarks": list(result.remarks),
    }


def program_sentence(result: Programmed, *, dry_run: bool) -> str:
    """The result of programming, for people."""
    if dry_run:
        what = f"AFU {result.afu_id} fits {result.port}"
        if result.programmed:
            return (
                f"{what} and would be programmed; it shows {result.before or 'nothing usable'} now"
            )
        return f"{what} and is there already; the port would be reset"
    if result.programmed:
        return f"{result.port} has AFU {result.afu_id} now, programmed in {result.seconds:.1f} s"
    return f"{result.port} had AFU {result.afu_id} already, and was reset"


def interruption(found: Interruption) -> Iterator[str]:
    """Say what rebinding a card's driver interrupts, for people."""
    if found.devices:  # a card without a driver has none
        yield (
            f"rebinding the driver of card {found.card} ({found.address}) takes"
            f" {listing(found.devices)} away for a moment"
        )
    if found.unlisted:
        yield (
            f"{count(found.unlisted, 'port')} that the card says it has can't be seen: if released,"
            " it comes back"
        )
    if found.resources:
        yield f"this node offers less meanwhile: {listing(found.resources)}"
    if found.holders:
        yield f"who has a part of the card: {listing(found.holders)}"
    if found.unknown:
        yield found.unknown


def rebind_result(card: str, ports: Sequence[str], found: Interruption) -> dict[str, Any]:
    """The result of rebinding a card's driver, for JSON."""
    interrupted = asdict(found)
    return {"device": card, "outcome": "rebound", "ports": [*ports], "interrupted": interrupted}


def rebind_sentence(card: str, ports: Sequence[str]) -> str:
    """The result of rebinding a card's driver, for people."""
    now = f"its ports are {listing(ports)}" if ports else "it has no port"
    return f"the driver of {card} is rebound: {now}"


def cleared_register(device: str, register: ClearedRegister) -> dict[str, Any]:
    """An error register that was cleared."""
    return {
        "device": device,
        "register": register.register,
        "value": f"{register.value:#x}",
        "now": None if register.now is None else f"{register.now:#x}",
    }
