"""Programming from a real process, with drivers behind the nodes that take the real ioctls."""

import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from simulator.bitstreams import make_gbs
from simulator.cards import A10_INTERFACE, NLB0, NLB3
from tests.recorded import write_checkpoint
from tests.support import Processes
from tests.umockdev.beds import TestBed

BASE = {"opae": 0xB500, "dfl": 0xB600}
MOVES = {"opae": [0xB581, 0xB582], "dfl": [0x4004B681, 0x4004B682]}
RESET, PROGRAM = 0x40, 0x80

COMMANDS = """
import contextlib, io, json, sys
from accelbind.cli import main
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = main(["fpga", *command, "-o", "json"])
    print(json.dumps({"code": code} | json.loads(out.getvalue())))
"""
"""Runs commands in one process; a line of JSON for each."""


@dataclass
class Host:
    """A bed with cards, and commands on it."""

    bed: TestBed
    processes: Processes
    folder: Path

    def fpga(self, *commands: tuple[str, ...]) -> list[dict[str, Any]]:
        """What each command says as JSON; all must work."""
        write_checkpoint(self.folder / "kubelet")
        process = self.processes.start(
            [sys.executable, "-c", COMMANDS, json.dumps(commands)],
            env=self.bed.environment
            | {
                "ACCELBIND_STATE_DIR": str(self.folder / "state"),
                "ACCELBIND_KUBELET_DIR": str(self.folder / "kubelet"),
            },
        )
        assert (process.wait(), process.stderr) == (0, "")
        said = [json.loads(line) for line in process.stdout.splitlines()]
        assert [(each.pop("code"), each.pop("version")) for each in said] == [(0, 1)] * len(
            commands
        )
        return said

    def gbs(self, afu_id: str) -> str:
        """A bitstream file whose raw bytes are those that `raw` gives."""
        path = self.folder / f"{afu_id}.gbs"
        path.write_bytes(make_gbs(A10_INTERFACE, afu_id, raw(afu_id)))
        return str(path)


def raw(afu_id: str) -> bytes:
    """A raw bitstream of a function; its length is no multiple of anything."""
    return bytes.fromhex(afu_id) + hashlib.shake_256(afu_id.encode()).digest(150_001)


@pytest.fixture
def host(bed: TestBed, processes: Processes, tmp_path: Path) -> Host:
    return Host(bed, processes, tmp_path)


def numbers(calls: list[dict[str, Any]], driver: str) -> list[tuple[str, int]]:
    """Which ioctls came on which kind of node, without the driver's own part of the number."""
    kinds = [call["node"].split(".")[0].rpartition("-")[2] for call in calls]
    return list(zip(kinds, [call["request"] - BASE[driver] for call in calls], strict=True))


def afu_of(host: Host, card: dict[str, Any], port: int) -> str:
    return host.bed.file(card, f"{card['ports'][port]}/afu_id").read_text().strip()


@pytest.mark.parametrize("driver", ["opae", "dfl"])
def test_cards_are_programmed_and_moved_by_the_drivers_own_ioctls(host: Host, driver: str) -> None:
    card = host.bed.add(driver=driver, ports=2)
    fme, port, bitstream = card["fme"], card["ports"][1], host.gbs(NLB3)
    program = ("program", port, bitstream)
    shown, again, *moved = host.fpga(
        program,
        program,
        ("reset", port),
        ("release", fme, "--port", "1"),
        ("assign", fme, "--port", "1"),
    )
    assert (shown["outcome"], shown["afuId"], shown["before"]) == ("programmed", NLB3, NLB0)
    assert (shown["interfaceId"], shown["remarks"]) == (A10_INTERFACE, [])
    assert [afu_of(host, card, number) for number in (0, 1)] == [NLB0, NLB3]
    assert again["outcome"] == "present"
    assert moved == [
        {"device": port, "outcome": "reset"},
        {"device": fme, "port": 1, "outcome": "released"},
        {"device": fme, "port": 1, "outcome": "assigned"},
    ]
    calls = host.bed.calls()
    assert numbers(calls[:4], driver) == [("fme", PROGRAM), *[("port", RESET)] * 3]
    assert {call["node"] for call in calls[:4]} == {fme, port}
    size, content = (32 if driver == "opae" else 24), raw(NLB3)
    fields = [size, 0, 1, len(content), 0]  # argsz, flags, port, bytes; the address is ours
    assert calls[0]["fields"] == fields + ([0] if driver == "opae" else [])
    assert calls[0]["sha256"] == hashlib.sha256(content).hexdigest()
    assert [call["request"] for call in calls[4:]] == MOVES[driver]
    for call in calls[4:]:
        assert call["fields"] == ([12, 0, 1] if driver == "opae" else [1])


def test_a_port_on_a_virtual_function_is_programmed_out_of_tree(host: Host) -> None:
    card = host.bed.add(driver="opae", ports=2)
    host.bed.ask("split", address=card["address"], port=1)
    (shown,) = host.fpga(("program", card["ports"][1], host.gbs(NLB3)))
    assert shown["outcome"] == "programmed"
    (call,) = host.bed.calls(BASE["opae"] + PROGRAM)
    assert (call["node"], call["fields"][2]) == (card["fme"], 1)
