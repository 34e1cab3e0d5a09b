"""Programming from real processes, with drivers behind the nodes that take the real ioctls."""

import errno
import hashlib
import json
import os
import pty
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from services.programming.clock import IOPLL_KINDS, iopll_setting
from simulator.bitstreams import gbs_metadata, gbs_of, make_aocx
from simulator.cards import A10_INTERFACE, D5005_INTERFACE, NLB0, NLB3
from tests.support import (
    Process,
    Processes,
    accelbind_command,
    clean_environment,
    eventually,
)
from tests.umockdev.beds import TestBed, described

DRIVERS = ("opae", "dfl")
BASE = {"opae": 0xB500, "dfl": 0xB600}
RESET, PROGRAM = 0x40, 0x80
OPENCL_AFU = "18b79ffa2ee54aa096ef4230dafacb5f"
BUSY, GONE, HUNG = 3, 4, 5
"""Exit codes."""


@dataclass
class Host:
    """A bed with cards, and commands on it."""

    bed: TestBed
    processes: Processes
    folder: Path

    def start(self, *arguments: str | Path) -> Process:
        """Starts `accelbind fpga …`."""
        state = ("--state-dir", self.folder / "state") if arguments[0] in STATEFUL else ()
        return self.bed.accelbind(self.processes, "fpga", *arguments, *state)

    def fpga(self, *arguments: str | Path) -> tuple[int, str, str]:
        """Runs `accelbind fpga …`: exit code and what it said."""
        process = self.start(*arguments)
        code = process.wait(60)
        return code, process.stdout, process.stderr

    def done(self, *arguments: str | Path) -> Any:
        """What a command that works says as JSON."""
        code, out, err = self.fpga(*arguments, "-o", "json")
        assert (code, err) == (0, "")
        return json.loads(out)

    def gbs(self, afu_id: str, interface_id: str = A10_INTERFACE, **image: Any) -> Path:
        """A bitstream file whose raw bytes are those that `raw` gives."""
        metadata = gbs_metadata(interface_id, afu_id)
        metadata["afu-image"] |= {key.replace("_", "-"): value for key, value in image.items()}
        path = self.folder / f"{afu_id}-{len(list(self.folder.iterdir()))}.gbs"
        path.write_bytes(gbs_of(metadata, raw(afu_id)))
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
    told = host.done("program", card["ports"][1], host.gbs(NLB3))
    assert (told["outcome"], told["afuId"], told["before"]) == ("programmed", NLB3, NLB0)
    assert told["interfaceId"] == A10_INTERFACE
    assert told["remarks"] == []
    assert [afu_of(host, card, port) for port in (0, 1)] == [NLB0, NLB3]
    calls = host.bed.calls()
    assert numbers(calls, driver) == [("port", 0), ("fme", PROGRAM), ("port", RESET)]
    assert {call["node"] for call in calls} == {card["fme"], card["ports"][1]}
    size, content = (32 if driver == "opae" else 24), raw(NLB3)
    fields = [size, 0, 1, len(content), 0]  # argsz, flags, port, bytes; the address is ours
    assert calls[1]["fields"] == fields + ([0] if driver == "opae" else [])
    assert calls[1]["sha256"] == hashlib.sha256(content).hexdigest()


def test_what_is_there_already_is_not_programmed_again_but_reset(host: Host, driver: str) -> None:
    card = host.bed.add(driver=driver)
    port, bitstream = card["ports"][0], host.gbs(NLB0)
    assert host.done("program", port, bitstream)["outcome"] == "present"
    assert numbers(host.bed.calls(), driver) == [("port", RESET)]
    assert host.done("program", port, bitstream, "--force")["outcome"] == "programmed"
    assert ("fme", PROGRAM) in numbers(host.bed.calls(), driver)


def test_a_dry_run_checks_and_asks_the_driver_nothing(host: Host, driver: str) -> None:
    card = host.bed.add(driver=driver)
    port = card["ports"][0]
    told = host.done("program", port, host.gbs(NLB3), "--dry-run")
    assert told["outcome"] == "would-be-programmed"
    assert host.done("program", port, host.gbs(NLB0), "--dry-run")["outcome"] == "present"
    code, _, err = host.fpga("program", port, host.gbs(NLB3, D5005_INTERFACE), "--dry-run")
    assert (code, D5005_INTERFACE in err) == (2, True)
    assert host.bed.calls() == []
    assert not (host.folder / "state").exists()


def test_a_bitstream_for_another_interface_is_refused_before_anything_is_done(
    host: Host, driver: str
) -> None:
    card = host.bed.add(driver=driver)
    code, out, err = host.fpga("program", card["ports"][0], host.gbs(NLB3, D5005_INTERFACE))
    assert (code, out) == (2, "")
    assert f"for regions with interface id {D5005_INTERFACE}" in err
    assert f"{card['ports'][0]} has {A10_INTERFACE}" in err
    assert host.bed.calls() == []


REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "opae": (
        {"status": 0b10, "registers": {"errors/fme-errors/errors": "0x40\n"}},
        ["CRC error", "errors/fme-errors/errors of intel-fpga-fme.0 reads 0x40"],
    ),
    "dfl": (
        {
            "registers": {
                "errors/fme_errors": "0x40\n",
                "dfl-fme-mgr.0/fpga_manager/fpga0/status": "reconfig CRC error\n",
            }
        },
        ["reconfig CRC error", "errors/fme_errors of dfl-fme.0 reads 0x40"],
    ),
}


def test_a_refusal_by_the_hardware_shows_what_it_says(host: Host, driver: str) -> None:
    card = host.bed.add(driver=driver)
    behaviour, said = REFUSED[driver]
    host.bed.ask("behave", address=card["address"], what="refuse", **behaviour)
    code, out, err = host.fpga("program", card["ports"][0], host.gbs(NLB3))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "the hardware refused (Input/output error;" in err
    assert [words for words in said if words not in err] == []
    assert len(host.bed.calls(BASE[driver] + PROGRAM)) == 1


def test_another_function_afterwards_than_was_asked_for_is_an_error(
    host: Host, driver: str
) -> None:
    card = host.bed.add(driver=driver)
    host.bed.ask("behave", address=card["address"], what="ok", afu_id=OPENCL_AFU)
    code, _, err = host.fpga("program", card["ports"][0], host.gbs(NLB3))
    assert code == 1
    assert f'shows AFU "{OPENCL_AFU}" and not {NLB3}' in err


@pytest.mark.parametrize("says", [errno.ENODEV, errno.EIO, errno.EBUSY])
def test_a_card_that_vanishes_in_the_middle_is_said_to_have(
    host: Host, driver: str, says: int
) -> None:
    card = host.bed.add(driver=driver)
    host.bed.ask("behave", address=card["address"], what="vanish", errno=says)
    code, _, err = host.fpga("program", card["ports"][0], host.gbs(NLB3))
    assert code == GONE
    assert f"{card['ports'][0]} has vanished while it was worked on" in err
    assert card["address"] in err


HOLDING = """
import os, signal, sys
os.open(sys.argv[1], os.O_RDWR)
print("open", flush=True)
signal.pause()
"""


def test_a_port_that_another_process_has_open_is_refused_and_that_process_named(
    host: Host, driver: str
) -> None:
    card = host.bed.add(driver=driver)
    port = card["ports"][0]
    holder = host.processes.start(
        [sys.executable, "-c", HOLDING, f"/dev/{port}"], env=host.bed.environment
    )
    holder.wait_for_output("open")
    code, _, err = host.fpga("program", port, host.gbs(NLB3))
    assert code == BUSY
    assert f"{port} is in use by process {holder.pid} (python" in err
    assert host.bed.calls() == []
    assert f"process {holder.pid}" in host.done("info", port)["usedBy"][0]
    holder.kill()
    assert host.done("program", port, host.gbs(NLB3))["outcome"] == "programmed"


@pytest.mark.parametrize("request_", [PROGRAM, RESET])
def test_a_driver_that_says_busy_is_believed(host: Host, driver: str, request_: int) -> None:
    card = host.bed.add(driver=driver)
    node = card["fme"] if request_ == PROGRAM else card["ports"][0]
    answers = {f"{node}:{BASE[driver] + request_:#x}": errno.EBUSY}
    host.bed.ask("answer", answers=answers)
    code, _, err = host.fpga("program", card["ports"][0], host.gbs(NLB3))
    assert code == BUSY
    assert "somebody else uses it" in err


def test_a_hang_is_given_up_and_other_cards_work_on(host: Host, driver: str) -> None:
    hanging, other = host.bed.add(driver=driver), host.bed.add(driver=driver)
    host.bed.ask("behave", address=hanging["address"], what="hang")
    bitstream = host.gbs(NLB3)
    stuck = host.start("program", hanging["ports"][0], bitstream, "--timeout", "20")
    eventually(lambda: host.bed.calls(BASE[driver] + PROGRAM))
    assert host.done("program", other["ports"][0], bitstream)["outcome"] == "programmed"
    code, _, err = host.fpga("program", hanging["ports"][0], bitstream, "--timeout", "1")
    assert code == BUSY
    assert f"process {stuck.pid} works on it" in err
    stuck.kill()
    code, _, err = host.fpga("program", hanging["ports"][0], bitstream, "--timeout", "2")
    assert code == HUNG
    assert "hangs: no answer within 2 s" in err
    host.bed.ask("let_go", done=False)
    host.bed.ask("behave", address=hanging["address"], what="ok")
    assert host.done("program", hanging["ports"][0], bitstream)["outcome"] == "programmed"


IN_ONE_PROCESS = """
import sys
from array import array
from pathlib import Path
from services.process.errors import DeviceHung
from services.process.blocking import BlockingCalls
from services.programming.image import Image
from services.programming.programmer import Programmer

goes_on, state, interface, afu, *ports = sys.argv[1:]
hanging, other = zip(ports[::2], ports[1::2])
programmer, cards = Programmer(Path("/"), Path(state)), BlockingCalls()
image = Image(interface, afu, lambda: array("B", bytes.fromhex(afu) + bytes(1000)))

def ensure(where, seconds):
    port, card = where
    call = lambda: programmer.ensure(port, image)
    return cards.run_sync(card, call, timeout=seconds, what=f"programming {port}")

for attempt in range(2):
    try:
        ensure(hanging, 1)
    except DeviceHung as error:
        print(f"hung: {error}", flush=True)
print("other:", ensure(other, 20).programmed, flush=True)
print("stuck:", *cards.abandoned, flush=True)
open(goes_on).read()
while cards.abandoned:
    pass
print("again:", ensure(hanging, 20).programmed, *cards.abandoned, flush=True)
"""


def test_in_one_process_a_card_that_hangs_is_marked_and_others_work_on(
    host: Host, driver: str
) -> None:
    hanging, other = host.bed.add(driver=driver), host.bed.add(driver=driver)
    host.bed.ask("behave", address=hanging["address"], what="hang")
    goes_on = host.folder / "goes-on"
    os.mkfifo(goes_on)
    names = [word for card in (hanging, other) for word in (card["ports"][0], card["address"])]
    given = (goes_on, host.folder / "state", A10_INTERFACE, NLB3, *names)
    process = host.processes.start(
        [sys.executable, "-c", IN_ONE_PROCESS, *given], env=host.bed.environment
    )
    process.wait_for_output("stuck:")
    first, second, third, fourth = process.stdout.splitlines()
    assert "hangs: no answer within 1 s" in first
    assert second == first
    assert third == "other: True"
    assert fourth == f"stuck: {hanging['address']}"
    assert host.bed.ask("let_go") == 1
    goes_on.write_text("")
    process.wait_for_output("again:")
    assert process.stdout.splitlines()[-1] == "again: False"
    assert afu_of(host, hanging) == NLB3


def test_two_processes_take_turns_on_a_card(host: Host, driver: str) -> None:
    card = host.bed.add(driver=driver, ports=2)
    files = [host.gbs(NLB3), host.gbs(OPENCL_AFU)]
    both = [
        host.start("program", port, file, "--force")
        for port, file in zip(card["ports"], files, strict=True)
    ]
    assert [process.wait(60) for process in both] == [0, 0]
    assert [afu_of(host, card, port) for port in (0, 1)] == [NLB3, OPENCL_AFU]
    ports = [call["node"] for call in host.bed.calls() if call["node"] != card["fme"]]
    assert ports in ([card["ports"][n]] * 2 + [card["ports"][1 - n]] * 2 for n in (0, 1))


def test_an_opencl_program_is_known_by_its_record(host: Host, driver: str) -> None:
    card = host.bed.add(driver=driver)
    port, first, second = card["ports"][0], host.folder / "1.aocx", host.folder / "2.aocx"
    first.write_bytes(make_aocx(A10_INTERFACE, "1" * 40, raw(OPENCL_AFU)))
    second.write_bytes(make_aocx(A10_INTERFACE, "2" * 40, raw(OPENCL_AFU)))
    outcomes = [host.done("program", port, each)["outcome"] for each in (first, first, second)]
    assert outcomes == ["programmed", "present", "programmed"]
    assert len(host.bed.calls(BASE[driver] + PROGRAM)) == 2
    host.bed.ask("behave", address=card["address"], what="refuse")
    assert host.fpga("program", port, first)[0] == 1
    host.bed.ask("behave", address=card["address"], what="ok")
    assert host.done("program", port, second)["outcome"] == "programmed"  # who knows what is there


def test_a_port_on_a_virtual_function_is_programmed_out_of_tree_only(
    host: Host, driver: str
) -> None:
    """The in-tree driver would go through the device that it deleted when the port was released."""
    card = host.bed.add(driver=driver, ports=2)
    host.bed.ask("split", address=card["address"], port=1)
    if driver == "dfl":
        code, _, err = host.fpga("program", card["ports"][1], host.gbs(NLB3))
        assert (code, "is released to virtual function" in err) == (1, True)
        assert host.bed.calls(BASE[driver] + PROGRAM) == []
        return
    assert host.done("program", card["ports"][1], host.gbs(NLB3))["outcome"] == "programmed"
    (call,) = host.bed.calls(BASE[driver] + PROGRAM)
    assert (call["node"], call["fields"][2]) == (card["fme"], 1)


def test_a_clock_that_a_port_has_already_is_fine(host: Host, driver: str) -> None:
    card = host.bed.add(driver=driver)
    port = card["ports"][0]
    bitstream = host.gbs(NLB3, clock_frequency_high=312, clock_frequency_low=156)
    assert host.done("program", port, bitstream)["remarks"] == []
    asked = host.bed.file(card, f"{port}/userclk_freqcntrcmd").read_text()
    assert asked == "0x0000000000000000\n"


@pytest.mark.parametrize("high", [400, 100, 800])
def test_another_clock_is_set_before_the_port_is_programmed(
    host: Host, driver: str, high: int
) -> None:
    card = host.bed.add(driver=driver)
    port = host.bed.file(card, card["ports"][0])
    host.bed.ask("pll", folder=str(port))
    bitstream = host.gbs(NLB3, clock_frequency_high=high, clock_frequency_low=high // 2)
    assert host.done("program", card["ports"][0], bitstream)["remarks"] == []
    assert len(host.bed.calls(BASE[driver] + PROGRAM)) == 1
    told = host.done("info", card["ports"][0])
    assert told["userClock"] == f"{high}/{high // 2} MHz"


@pytest.mark.parametrize(
    ("kind", "locks", "why"),
    [(7, True, "is of kind 7, without a reference of 100 MHz"), (5, False, "its PLL doesn't lock")],
)
def test_a_clock_that_can_not_be_made_is_refused(
    host: Host, driver: str, kind: int, *, locks: bool, why: str
) -> None:
    card = host.bed.add(driver=driver)
    port = host.bed.file(card, card["ports"][0])
    host.bed.ask("pll", folder=str(port), kind=kind, locks=locks)
    bitstream = host.gbs(NLB3, clock_frequency_high=400)
    code, _, err = host.fpga("program", card["ports"][0], bitstream, "--user-clock", "require")
    assert (code, why in err) == (1, True)
    assert host.bed.calls(BASE[driver] + PROGRAM) == []


def test_a_clock_that_can_not_be_had_is_told_or_refused_if_it_is_required(
    host: Host, driver: str
) -> None:
    card = host.bed.add(driver=driver)
    port, bitstream = card["ports"][0], host.gbs(NLB3, clock_frequency_high="400")
    code, _, err = host.fpga("program", port, bitstream, "--user-clock", "require")
    assert code == 1
    assert f"the user clock of {port} can't be set: its PLL doesn't answer" in err
    assert host.bed.calls(BASE[driver] + PROGRAM) == []
    code, out, err = host.fpga("program", port, bitstream)
    assert (code, f"warning: the user clock of {port} can't be set" in err) == (0, True)
    assert f"{port} has AFU {NLB3} now" in out
    assert host.fpga("program", port, bitstream, "--user-clock", "guess")[0] == 2


def test_a_port_without_a_clock_to_set_is_no_obstacle_unless_one_is_required(
    host: Host, driver: str
) -> None:
    card = host.bed.add(driver=driver)
    for file in host.bed.file(card, card["ports"][0]).glob("userclk_*"):
        file.unlink()
    bitstream = host.gbs(NLB3, clock_frequency_high=312)
    port, required = card["ports"][0], ("--user-clock", "require")
    code, _, err = host.fpga("program", port, bitstream, *required)
    assert (code, "312/156 MHz, and" in err, "has none to set" in err) == (1, True, True)
    assert host.done("program", port, host.gbs(NLB3), *required)["outcome"] == "programmed"
    code, _, err = host.fpga("program", port, bitstream, "--force")
    assert (code, "has none to set" in err) == (0, True)


@pytest.mark.parametrize("revision", [0, 1])
def test_the_clock_of_a_newer_card_is_set_before_it_is_programmed(
    host: Host, driver: str, revision: int
) -> None:
    card = host.bed.add(driver=driver)
    feature = host.bed.file(card, f"{card['ports'][0]}/dfl_dev.8")
    (feature / "userclk").mkdir(parents=True)
    (feature / "userclk/frequency").write_text("156250 312500\n")
    (feature / "feature_rev").write_text(f"{revision}\n")
    bitstream = host.gbs(NLB3, clock_frequency_high=400, clock_frequency_low=200)
    told = host.done("program", card["ports"][0], bitstream)
    assert told["outcome"] == "programmed"
    written = (feature / "userclk/frequency").read_bytes()
    assert written[:32] == iopll_setting(IOPLL_KINDS[revision], 200)
    assert struct.unpack_from("<I", written)[0] == 200_000


@pytest.mark.parametrize("word", ["release", "assign"])
def test_ports_are_moved_with_the_drivers_own_structure(host: Host, driver: str, word: str) -> None:
    card = host.bed.add(driver=driver, ports=2)
    told = host.done(word, card["fme"], "--port", "1")
    outcome = {"release": "released", "assign": "assigned"}[word]
    assert told == {"device": card["fme"], "port": 1, "outcome": outcome}
    (call,) = host.bed.calls()
    number = {("opae", "release"): 0xB581, ("opae", "assign"): 0xB582}
    number |= {("dfl", "release"): 0x4004B681, ("dfl", "assign"): 0x4004B682}
    assert call["request"] == number[driver, word]
    assert call["fields"] == ([12, 0, 1] if driver == "opae" else [1])
    answers = {f"{card['fme']}:{call['request']:#x}": errno.EINVAL}
    host.bed.ask("answer", answers=answers)
    code, _, err = host.fpga(word, card["fme"], "--port", "1")
    assert (code, "doesn't take that" in err) == (1, True)


def test_info_asks_a_port_for_its_regions(host: Host, driver: str) -> None:
    card = host.bed.add(driver=driver, numa_node=1)
    told = host.done("info", f"/dev/{card['ports'][0]}")
    assert told["regions"] == [
        {"index": 0, "size": 262144, "offset": 0, "access": "rwm"},
        {"index": 1, "size": 4096, "offset": 262144, "access": "rwm"},
    ]
    assert (told["fme"], told["number"], told["afuId"]) == (card["fme"], 0, NLB0)
    assert (told["apiVersion"], told["umsgs"]) == (0, 8)
    assert told.get("capability") == ("0x3" if driver == "opae" else None)
    assert (told["pci"]["address"], told["pci"]["numaNode"]) == (card["address"], 1)
    assert told["socketId"] == "0"
    assert [*told["temperatures"].values(), *told["powers"].values()] == [38, 23]
    assert [call["request"] - BASE[driver] for call in host.bed.calls()] == [0, 0x41, 0x42, 0x42]


def test_info_of_an_engine_has_ids_heat_and_power(host: Host, driver: str) -> None:
    card = host.bed.add(driver=driver)
    told = host.done("info", card["address"])
    assert (told["device"], told["kind"]) == (card["fme"], "fme")
    assert (told["interfaceId"], told["portsNum"], told["socketId"]) == (A10_INTERFACE, "1", "0")
    assert told["bitstreamId"] == "0x202000200000237"
    assert list(told["temperatures"].values()) == [38]
    assert list(told["powers"].values()) == [23]
    assert set(told["errors"].values()) == {"0x0"}
    code, out, _ = host.fpga("info", card["fme"])
    assert (code, "38 °C" in out, out.splitlines()[-1].split()) == (0, True, ["state", "ok"])


def test_a_reset_is_the_drivers_ioctl(host: Host, driver: str) -> None:
    card = host.bed.add(driver=driver)
    assert host.done("reset", card["address"]) == {"device": card["ports"][0], "outcome": "reset"}
    assert numbers(host.bed.calls(), driver) == [("port", RESET)]


def test_errors_are_cleared_as_the_driver_wants_it(host: Host, driver: str) -> None:
    card = host.bed.add(driver=driver, faults=["port-errors"])
    port = card["ports"][0]
    (cleared,) = host.done("clear-errors", port)["cleared"]
    taking = f"{port}/errors/{'clear' if driver == 'opae' else 'errors'}"
    assert host.bed.file(card, taking).read_text() == f"{cleared['value']}\n"
    assert int(cleared["value"], 16) > 0
    assert host.done("clear-errors", card["fme"])["cleared"] == []


def test_a_device_that_is_not_there_is_named_with_those_that_are(host: Host, driver: str) -> None:
    card = host.bed.add(driver=driver)
    code, _, err = host.fpga("reset", "dfl-port.7")
    assert code == GONE
    assert f"there is no port dfl-port.7 on this node; its ports are {card['ports'][0]}" in err


def test_the_list_has_every_device_and_what_is_wrong_with_it(host: Host) -> None:
    cards = [host.bed.add(driver=driver) for driver in DRIVERS]
    host.bed.add(driver="dfl", faults=["afu-all-f"])
    rows = host.done("list")
    assert {each["device"] for each in rows} >= {card["fme"] for card in cards}
    assert [each["device"] for each in rows if not each["healthy"]] == ["dfl-port.1"]
    code, out, _ = host.fpga("list")
    assert (code, out.count("\n"), "firmware has crashed" in out) == (0, 7, True)


def test_nodes_in_umockdevs_own_words_are_programmed(host: Host) -> None:
    """There a node is a link to a terminal, and only its own name has a driver."""
    card = "/devices/pci0000:00/0000:00:02.0/0000:05:00.0/fpga_region/region0"
    host.bed.ask("describe", text=described(card))
    nodes = {"dfl-fme.0": None, "dfl-port.0": 0}
    host.bed.ask("drivers", driver="dfl", address=f"sys{card}/dfl-port.0", nodes=nodes)
    holder = host.processes.start(
        [sys.executable, "-c", HOLDING, "/dev/dfl-port.0"], env=host.bed.environment
    )
    holder.wait_for_output("open")
    code, _, err = host.fpga("program", "dfl-port.0", host.gbs(NLB3))
    assert (code, f"in use by process {holder.pid}" in err) == (BUSY, True)
    holder.kill()
    assert host.done("program", "dfl-port.0", host.gbs(NLB3))["outcome"] == "programmed"
    (call,) = host.bed.calls(BASE["dfl"] + PROGRAM)
    assert call["sha256"] == hashlib.sha256(raw(NLB3)).hexdigest()


def test_on_a_terminal_it_is_shown_what_is_being_done(host: Host) -> None:
    card = host.bed.add()
    host.bed.ask("behave", address=card["address"], what="hang")
    ours, theirs = pty.openpty()
    state = ("--state-dir", str(host.folder / "state"))
    command = accelbind_command("fpga", "program", card["ports"][0], host.gbs(NLB3), *state)
    environment = clean_environment() | host.bed.environment | {"TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment) as shown:
        os.close(theirs)
        seen = b""
        while b"programming 150017 bytes" not in seen and shown.poll() is None:
            seen += os.read(ours, 4096)
        host.bed.ask("let_go")
        out, _ = shown.communicate(timeout=60)
    os.close(ours)
    assert shown.returncode == 0
    assert b"dfl-port.0: programming 150017 bytes" in seen
    assert f"dfl-port.0 has AFU {NLB3} now".encode() in out
