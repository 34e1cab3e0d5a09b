"""Programming from real processes, with drivers behind the nodes that take the real ioctls."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from simulator.bitstreams import make_gbs
from simulator.cards import A10_INTERFACE, NLB0, NLB3
from tests.recorded import write_checkpoint
from tests.support import Processes
from tests.umockdev.beds import TestBed

DRIVERS = ("opae", "dfl")
BASE = {"opae": 0xB500, "dfl": 0xB600}
RESET, PROGRAM = 0x40, 0x80


@dataclass
class Host:
    """A bed with cards, and commands on it."""

    bed: TestBed
    processes: Processes
    folder: Path

    def flags(self, command: str) -> tuple[str | Path, ...]:
        """Flags that keep records out of this machine's own folders."""
        state = ("--state-dir", self.folder / "state") if command in STATEFUL else ()
        if command != "program":
            return state
        kubelet = self.folder / "kubelet"
        write_checkpoint(kubelet)
        return (*state, "--kubelet-dir", kubelet)

    def fpga(self, *arguments: str | Path) -> tuple[int, str, str]:
        """Run `accelbind fpga …`: exit code and what it said."""
        flags = self.flags(str(arguments[0]))
        process = self.bed.accelbind(self.processes, "fpga", *arguments, *flags)
        code = process.wait(60)
        return code, process.stdout, process.stderr

    def done(self, *arguments: str | Path) -> Any:
        """What a command that works says as JSON."""
        code, out, err = self.fpga(*arguments, "-o", "json")
        assert (code, err) == (0, "")
        document = json.loads(out)
        assert document.pop("version") == 1
        return document

    def gbs(self, afu_id: str) -> Path:
        """A bitstream file whose raw bytes are those that `raw` gives."""
        path = self.folder / f"{afu_id}.gbs"
        path.write_bytes(make_gbs(A10_INTERFACE, afu_id, raw(afu_id)))
        return path


STATEFUL = {"program", "reset", "release", "assign"}


def raw(afu_id: str) -> bytes:
    """A raw bitstream of a function; its length is no multiple of anything."""
    return bytes.fromhex(afu_id) + hashlib.shake_256(afu_id.encode()).digest(150_001)


@pytest.fixture
def host(bed: TestBed, processes: Processes, tmp_path: Path) -> Host:
    return Host(bed, processes, tmp_path)


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def numbers(calls: list[dict[str, Any]], driver: str) -> list[tuple[str, int]]:
    """Which ioctls came on which kind of node, without the driver's own part of the number."""
    kinds = [call["node"].split(".")[0].rpartition("-")[2] for call in calls]
    return list(zip(kinds, [call["request"] - BASE[driver] for call in calls], strict=True))


def afu_of(host: Host, card: dict[str, Any], port: int = 0) -> str:
    return host.bed.file(card, f"{card['ports'][port]}/afu_id").read_text().strip()


def test_a_function_is_programmed_by_the_drivers_own_ioctl(host: Host, driver: str) -> None:
    card = host.bed.add(driver=driver, ports=2)
    port, bitstream = card["ports"][1], host.gbs(NLB3)
    shown = host.done("program", port, bitstream)
    assert (shown["outcome"], shown["afuId"], shown["before"]) == ("programmed", NLB3, NLB0)
    assert (shown["interfaceId"], shown["remarks"]) == (A10_INTERFACE, [])
    assert [afu_of(host, card, port) for port in (0, 1)] == [NLB0, NLB3]
    calls = host.bed.calls()
    assert numbers(calls, driver) == [("fme", PROGRAM), ("port", RESET)]
    assert {call["node"] for call in calls} == {card["fme"], port}
    size, content = (32 if driver == "opae" else 24), raw(NLB3)
    fields = [size, 0, 1, len(content), 0]  # argsz, flags, port, bytes; the address is ours
    assert calls[0]["fields"] == fields + ([0] if driver == "opae" else [])
    assert calls[0]["sha256"] == hashlib.sha256(content).hexdigest()
    assert host.done("program", port, bitstream)["outcome"] == "present"
    assert numbers(host.bed.calls(), driver) == [("port", RESET)]
    assert host.done("reset", port) == {"device": port, "outcome": "reset"}
    assert numbers(host.bed.calls(), driver) == [("port", RESET)]


def test_ports_are_moved_and_described_with_the_drivers_own_structures(
    host: Host, driver: str
) -> None:
    card = host.bed.add(driver=driver, ports=2, numa_node=1)
    requests = {"opae": (0xB581, 0xB582), "dfl": (0x4004B681, 0x4004B682)}[driver]
    words = (("release", "released"), ("assign", "assigned"))
    for (word, outcome), request in zip(words, requests, strict=True):
        shown = host.done(word, card["fme"], "--port", "1")
        assert shown == {"device": card["fme"], "port": 1, "outcome": outcome}
        (call,) = host.bed.calls()
        assert call["request"] == request
        assert call["fields"] == ([12, 0, 1] if driver == "opae" else [1])
    shown = host.done("info", f"/dev/{card['ports'][0]}")
    assert [call["request"] - BASE[driver] for call in host.bed.calls()] == [0, 0x41, 0x42, 0x42]
    assert shown["regions"] == [
        {"index": 0, "size": 262144, "offset": 0, "access": "rwm"},
        {"index": 1, "size": 4096, "offset": 262144, "access": "rwm"},
    ]
    assert (shown["fme"], shown["number"], shown["afuId"]) == (card["fme"], 0, NLB0)
    assert (shown["apiVersion"], shown["umsgs"]) == (0, 8)
    assert shown.get("capability") == ("0x3" if driver == "opae" else None)
    assert (shown["pci"]["address"], shown["pci"]["numaNode"]) == (card["address"], 1)


def test_a_port_on_a_virtual_function_is_programmed_out_of_tree(host: Host) -> None:
    card = host.bed.add(driver="opae", ports=2)
    host.bed.ask("split", address=card["address"], port=1)
    assert host.done("program", card["ports"][1], host.gbs(NLB3))["outcome"] == "programmed"
    (call,) = host.bed.calls(BASE["opae"] + PROGRAM)
    assert (call["node"], call["fields"][2]) == (card["fme"], 1)
