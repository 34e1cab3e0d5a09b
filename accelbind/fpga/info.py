"""What `accelbind fpga info` shows of an FME or a port."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from services.devices.hardware.pci import function_folder
from services.devices.hardware.scan import CLASSES, scan
from services.devices.hardware.sensor_reader import SensorReader
from services.devices.hardware.sysfs import Sysfs
from services.devices.model import Card, Problem
from services.process.errors import HardwareError
from services.programming.clock_registers import read_user_clock
from services.programming.error_registers import read_errors
from services.programming.ioctls import MAX_REGIONS, DriverNode
from services.programming.port import DeviceFiles, EnginePlace, PortPlace, find_device
from services.programming.port_session import opened_node, translated

_FME_FILES = {
    "portsNum": "ports_num",
    "socketId": "socket_id",
    "bitstreamId": "bitstream_id",
    "bitstreamMetadata": "bitstream_metadata",
    "cacheSize": "cache_size",
    "version": "version",
}
_PCI_FILES = {
    "vendor": "vendor",
    "device": "device",
    "class": "class",
    "localCpus": "local_cpulist",
    "virtualFunctions": "sriov_numvfs",
    "maxVirtualFunctions": "sriov_totalvfs",
}


def describe(root: Path, device: str) -> dict[str, Any]:
    """All that is known of a device, by its name or its node.

    Raises:
        DeviceGone: There is no such device.
        HardwareError: Its files can't be read.
    """
    inventory = scan(root)
    place = find_device(inventory, device)
    files = DeviceFiles(root, place)
    found = {
        "device": place.name,
        "kind": "fme" if isinstance(place, EnginePlace) else "port",
        "driver": place.card.driver,
        "card": place.card.name,
        "node": f"/dev/{place.name}",
        "sysfs": files.folder,
        "pci": _pci(root, place.card),
    }
    if isinstance(place, EnginePlace):
        found |= _engine(root, place, files)
    else:
        found |= _port(root, place, files)
    found["errors"] = {name: f"{value:#x}" for name, value in read_errors(files, place).items()}
    return found


def _pci(root: Path, card: Card) -> dict[str, Any]:
    pci = card.pci
    if pci is None:
        return {}
    files = Sysfs(root)
    entry = files.resolve(f"{CLASSES[card.driver]}/{card.name}") or ""
    _, folder = function_folder(files, entry)
    found = {"address": pci.address, "physicalFunction": pci.physfn, "numaNode": pci.numa_node}
    return found | {
        name: files.text(f"{folder}/{file}") if folder else "" for name, file in _PCI_FILES.items()
    }


def _engine(root: Path, place: EnginePlace, files: DeviceFiles) -> dict[str, Any]:
    found: dict[str, Any] = {"interfaceId": place.fme.interface_id}
    found |= {name: files.text(file) for name, file in _FME_FILES.items()}
    found |= _driver_answers(place, files)
    found |= _sensors(root, place)
    found["problems"] = _problems(place.fme.problems)
    return found


def _sensors(root: Path, engine: EnginePlace) -> dict[str, Any]:
    (sensors,) = SensorReader(root).read([engine.card])
    return {
        "temperatures": {each.label or "fme": each.value for each in sensors.temperatures},
        "powers": {each.label or "fme": each.value for each in sensors.powers},
    }


def _port(root: Path, place: PortPlace, files: DeviceFiles) -> dict[str, Any]:
    clock = read_user_clock(files)
    found: dict[str, Any] = {
        "fme": place.engine.name if place.engine else "",
        "number": place.port.number,
        "interfaceId": place.interface_id,
        "afuId": place.port.afu_id,
        "userClock": str(clock) if clock else "",
        "powerState": files.text("power_state"),
    }
    found |= _driver_answers(place, files)
    if place.engine is None:
        return found | {"problems": _problems(place.port.problems)}
    found["socketId"] = DeviceFiles(root, place.engine).text("socket_id")
    found |= _sensors(root, place.engine)
    found["problems"] = _problems((*place.engine.fme.problems, *place.port.problems))
    return found


def _problems(problems: tuple[Problem, ...]) -> list[dict[str, str]]:
    return [{"reason": each.reason, "message": each.message} for each in problems]


def _driver_answers(place: PortPlace | EnginePlace, files: DeviceFiles) -> dict[str, Any]:
    """The answers of the driver, or why it gives none."""
    try:
        with opened_node(files.node(), f"{place.name} can't be opened", place) as node:
            try:
                found: dict[str, Any] = {"apiVersion": node.api_version()}
                if isinstance(place, PortPlace):
                    found |= _regions(node)
                found["usedBy"] = node.calls.holders(node)
            except OSError as error:
                raise translated(error, f"{place.name} does not answer") from error
    except HardwareError as error:
        return {"driverSays": str(error)}
    return found


def _regions(node: DriverNode) -> dict[str, Any]:
    port = node.port_info()
    found: dict[str, Any] = {"umsgs": port.umsgs}
    if port.capability is not None:
        found |= {"capability": f"{port.capability:#x}", "interrupts": port.irqs}
    regions = [node.region_info(index) for index in range(min(port.regions, MAX_REGIONS))]
    found["regions"] = [
        {"index": each.index, "size": each.size, "offset": each.offset, "access": each.access}
        for each in regions
    ]
    return found


TITLES = {
    "device": "device",
    "kind": "kind",
    "driver": "driver",
    "card": "card",
    "node": "node",
    "sysfs": "sysfs folder",
    "fme": "FME",
    "number": "port number",
    "interfaceId": "interface id",
    "afuId": "AFU id",
    "apiVersion": "driver interface",
    "driverSays": "driver",
    "portsNum": "ports",
    "socketId": "socket",
    "bitstreamId": "bitstream id",
    "bitstreamMetadata": "bitstream metadata",
    "cacheSize": "cache size",
    "version": "version",
    "userClock": "user clock",
    "powerState": "power state",
    "umsgs": "unordered messages",
    "capability": "capability",
    "interrupts": "interrupts",
}
PCI_TITLES = {
    "address": "PCI address",
    "physicalFunction": "physical function",
    "class": "PCI class",
    "numaNode": "NUMA node",
    "localCpus": "local CPUs",
    "virtualFunctions": "virtual functions",
    "maxVirtualFunctions": "virtual functions at most",
}


def facts(found: dict[str, Any]) -> dict[str, str]:
    """The same for people: a title and a text for each fact."""
    return dict(_facts(found))


def _facts(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    pci = found["pci"]
    for key, title in TITLES.items():
        if key == "driverSays" and key in found:
            yield "not asked", found[key]
        elif key in found:
            yield title, _text(found[key])
        if key == "sysfs":
            yield from ((title, _text(pci.get(key))) for key, title in PCI_TITLES.items())
            yield "PCI device", f"{pci['vendor']}:{pci['device']}" if pci.get("vendor") else ""
    for each in found.get("regions", []):
        text = f"{each['size']} bytes at {each['offset']:#x}, {each['access']}"
        yield f"region {each['index']}", text
    for key, title, unit in (("temperatures", "temperature", "°C"), ("powers", "power", "W")):
        for name, value in found.get(key, {}).items():
            yield f"{title} {name}", f"{value:g} {unit}"
    yield from found["errors"].items()
    yield "used by", ", ".join(found.get("usedBy", []))
    yield "state", "; ".join(each["message"] for each in found["problems"]) or "ok"


def _text(value: object) -> str:
    return "" if value is None else str(value)
