"""The facts that `accelbind fpga info` shows of an FME or a port."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from services.devices.hardware.scan import scan
from services.devices.hardware.sensor_reader import SensorReader
from services.process.blocking import BlockingCalls
from services.programming.clock import read_user_clock
from services.programming.error_registers import read_errors
from services.programming.ioctls import holders_of
from services.programming.port import DeviceFiles, EnginePlace, PortPlace, find_device

_FME_FILES = {
    "portsNum": "ports_num",
    "socketId": "socket_id",
    "bitstreamId": "bitstream_id",
    "bitstreamMetadata": "bitstream_metadata",
    "cacheSize": "cache_size",
    "version": "version",
}

SENSOR_SECONDS = 5.0
"""For the sensors of the card."""


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
