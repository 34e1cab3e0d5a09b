"""Output of `accelbind fpga`: FMEs, ports and results."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

import msgspec

from accelbind.fpga.held import Interruption
from services.devices.model import Card, Inventory, Port, VirtualFunction
from services.process.problem import Problem
from services.process.text import count, listing
from services.programming.error_registers import ClearedRegister
from services.programming.image import Programmed

HEADINGS: Final = ("DEVICE", "KIND", "CARD", "PCI", "NUMA", "INTERFACE", "AFU", "STATE")


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
    """Say what binding a card's driver anew interrupts, for people."""
    if found.devices:  # a card without a driver has none
        yield (
            f"binding the driver of card {found.card} ({found.address}) anew takes"
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
    """The result of binding a card's driver anew, for JSON."""
    interrupted = asdict(found)
    return {"device": card, "outcome": "rebound", "ports": [*ports], "interrupted": interrupted}


def rebind_sentence(card: str, ports: Sequence[str]) -> str:
    """The result of binding a card's driver anew, for people."""
    now = f"its ports are {listing(ports)}" if ports else "it has no port"
    return f"the driver of {card} is bound anew: {now}"


def cleared_register(device: str, register: ClearedRegister) -> dict[str, Any]:
    """An error register that was cleared."""
    return {
        "device": device,
        "register": register.register,
        "value": f"{register.value:#x}",
        "now": None if register.now is None else f"{register.now:#x}",
    }
