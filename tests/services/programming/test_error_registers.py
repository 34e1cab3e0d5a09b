import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from services.devices.hardware.scan import scan
from services.programming.error_registers import ClearResult, clear_errors, why_refused
from services.programming.host_state import HostState
from services.programming.ioctls import DriverCalls
from services.programming.port import DeviceFiles, find_engine
from simulator.card_faults import Fault
from simulator.cards import CardSpec, Rack, lay_out
from simulator.driver import SimulatedCalls

CALLS = SimulatedCalls()


class Node:
    """A rack with one card whose port has errors."""

    def __init__(self, folder: Path, driver: str) -> None:
        self.root = folder / "root"
        self.rack: Rack = lay_out(self.root, [CardSpec(driver, faults=(Fault.PORT_ERRORS,))])
        (self.port,) = (self.root / "sys/devices").glob(
            "*/*/fpga/*/intel-fpga-port.*" if driver == "opae" else "*/*/fpga_region/*/dfl-port.*"
        )
        self.register = self.port / "errors/errors"
        self.taking = self.port / "errors" / ("clear" if driver == "opae" else "errors")
        if driver == "opae":
            self.taking.write_text("")
        self.host = HostState(folder)
        (self.card,) = scan(self.root).cards
        self.errors = self.card.ports[0].errors or 0

    def clear(self, calls: DriverCalls = CALLS) -> tuple[str, str]:
        return clear_errors(self.root, self.card, self.card.ports[0], self.host, calls)


@pytest.fixture
def node(tmp_path: Path, driver: str) -> Node:
    return Node(tmp_path, driver)


def test_errors_are_cleared_as_the_driver_wants_it(node: Node) -> None:
    before = node.register.read_text()
    assert node.clear() == (ClearResult.CLEARED, "")
    assert int(node.taking.read_text(), 16) == int(before, 16) == node.errors != 0
    node.rack.heal(node.rack.addresses[0], Fault.PORT_ERRORS)  # as the driver does
    assert [port.problems for card in scan(node.root).cards for port in card.ports] == [()]


@pytest.mark.parametrize(
    ("content", "detail"), [("0x80\n", "reads 0x80 by now"), (None, "reads nothing by now")]
)
def test_errors_that_changed_meanwhile_are_not_cleared_unseen(
    node: Node, content: str | None, detail: str
) -> None:
    if content is None:
        node.register.unlink()
    else:
        node.register.write_text(content)
    outcome, found = node.clear()
    assert (outcome, detail in found) == (ClearResult.CHANGED, True)
    assert content is None or node.register.read_text() == content


def to_nowhere(taking: Path) -> None:
    taking.symlink_to("nowhere/at/all")


def to_outside(taking: Path) -> None:
    taking.symlink_to(taking.parents[9] / "outside")


@pytest.mark.parametrize(
    ("place", "words"), [(to_nowhere, "no errors/clear"), (to_outside, ""), (os.mkfifo, "")]
)
def test_links_and_pipes_in_place_of_a_register_are_not_written(
    tmp_path: Path, place: Callable[[Path], None], words: str
) -> None:
    node, outside = Node(tmp_path, "opae"), tmp_path / "outside"
    outside.write_text("untouched")
    node.taking.unlink()
    place(node.taking)
    outcome, detail = node.clear()
    assert (outcome, words in detail) == (ClearResult.FAILED, True)
    assert outside.read_text() == "untouched"


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (errno.EROFS, ClearResult.FORBIDDEN),
        (errno.EINVAL, ClearResult.FAILED),
        (errno.EBUSY, ClearResult.BUSY),  # the port is in power state AP6
    ],
)
def test_what_the_system_says_is_reported(
    node: Node, monkeypatch: pytest.MonkeyPatch, code: int, outcome: ClearResult
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "write", refuse)
    found, detail = node.clear()
    assert found is outcome
    for words in (os.strerror(code), node.port.name, f"{node.errors:#x}"):
        assert words in detail


def test_a_card_that_is_being_programmed_is_not_touched(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.programming.error_registers.LOCK_SECONDS", 0.0)
    with node.host.lock_card(node.rack.addresses[0], seconds=0.0):
        outcome, detail = node.clear()
    assert (outcome, "works on it" in detail) == (ClearResult.BUSY, True)


# Why the hardware refused ------------------------------------------------------------------------


def engine_files(root: Path, *faults: Fault, driver: str = "dfl") -> DeviceFiles:
    address = Rack(root).add_card(CardSpec(driver, faults=faults))
    return DeviceFiles(root, find_engine(scan(root), address))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, ""),
        (0b101, "operation error, incompatible bitstream"),
        (1 << 9 | 1 << 6, "secure load error, status 0x200"),
    ],
)
def test_a_status_is_shown_in_words_and_what_has_no_word_in_digits(
    tmp_path: Path, driver: str, status: int, words: str
) -> None:
    assert why_refused(engine_files(tmp_path, driver=driver), status) == words


def test_registers_and_managers_are_shown_and_can_not_mislead(tmp_path: Path) -> None:
    files = engine_files(tmp_path, Fault.FME_ERRORS, Fault.NONFATAL_ERRORS)
    manager = tmp_path / files.folder.lstrip("/") / "dfl-fme-mgr.0/fpga_manager/fpga0"
    manager.mkdir(parents=True)
    (manager / "status").write_text("reconfig CRC error\nreconfig \x1b[31mfirmware\n")
    reason = why_refused(files, 0)
    assert reason.startswith(r"reconfig CRC error, reconfig \x1b[31mfirmware; errors/")
    assert "errors/fme_errors of dfl-fme.0 reads 0x" in reason
    assert "errors/nonfatal_errors of dfl-fme.0 reads 0x" in reason
    (manager / "status").write_text("0\n")
    assert "reconfig" not in why_refused(files, 0)
    for number in range(12):
        (manager.parent / f"fpga{number}").mkdir(exist_ok=True)
        (manager.parent / f"fpga{number}/status").write_text("reconfig CRC error\n" * 9)
    assert len(why_refused(files, 0)) == 500  # the advice comes after it
