import errno
import os
from pathlib import Path

import pytest

from services.devices.hardware.scan import scan
from services.devices.model import Inventory
from services.devices.stale_errors import Clearing, Tried, choose
from services.programming import errors_clear, port_session
from services.programming.errors_clear import REGISTER, Outcome, clear_errors
from services.programming.lock import card_lock
from simulator.card_faults import Fault
from simulator.cards import CardSpec, Rack, lay_out
from tests.support import holding

DRIVERS = ("opae", "dfl")


def rack_of(root: Path, driver: str) -> tuple[Rack, str]:
    rack = lay_out(root, [CardSpec(driver, faults=(Fault.PORT_ERRORS,))])
    return rack, rack.addresses[0]


def only_clearing(inventory: Inventory) -> Clearing:
    (clearing,), _ = choose(inventory, (), Tried())
    return clearing


def port_folder(root: Path, driver: str) -> Path:
    (folder,) = (root / "sys/devices").glob(
        "*/*/fpga/*/intel-fpga-port.*" if driver == "opae" else "*/*/fpga_region/*/dfl-port.*"
    )
    return folder


@pytest.mark.parametrize("driver", DRIVERS)
def test_errors_are_written_away_as_the_driver_wants_it(tmp_path: Path, driver: str) -> None:
    rack, address = rack_of(tmp_path, driver)
    folder = port_folder(tmp_path, driver)
    taking = folder / ("errors/clear" if driver == "opae" else "errors/errors")
    read = (folder / "errors/errors").read_text()
    if driver == "opae":
        taking.write_text("")
    clearing = only_clearing(scan(tmp_path))
    done = clear_errors(tmp_path, clearing, tmp_path / "locks")
    assert (done.clearing, done.outcome, done.detail) == (clearing, Outcome.CLEARED, "")
    assert int(taking.read_text(), 16) == int(read, 16) == clearing.value != 0
    rack.heal(address, Fault.PORT_ERRORS)  # as the driver does
    assert [port.problems for card in scan(tmp_path).cards for port in card.ports] == [()]


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize(
    ("content", "detail"),
    [
        ("0x80\n", "reads 0x80"),
        ("0x0\n", "has no errors any more"),
        ("garbage\n", "is no hex number"),
    ],
)
def test_errors_that_changed_meanwhile_are_not_cleared_unseen(
    tmp_path: Path, driver: str, content: str, detail: str
) -> None:
    rack_of(tmp_path, driver)
    clearing = only_clearing(scan(tmp_path))
    register = port_folder(tmp_path, driver) / "errors/errors"
    register.write_text(content)
    done = clear_errors(tmp_path, clearing, tmp_path / "locks")
    assert done.outcome is Outcome.CHANGED
    assert detail in done.detail
    assert register.read_text() == content


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_register_that_is_gone_is_a_changed_one(tmp_path: Path, driver: str) -> None:
    rack_of(tmp_path, driver)
    clearing = only_clearing(scan(tmp_path))
    (port_folder(tmp_path, driver) / "errors/errors").unlink()
    assert clear_errors(tmp_path, clearing, tmp_path / "locks").outcome is Outcome.CHANGED


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_port_that_is_gone_can_not_be_cleared(tmp_path: Path, driver: str) -> None:
    rack, address = rack_of(tmp_path, driver)
    clearing = only_clearing(scan(tmp_path))
    rack.remove_card(address)
    done = clear_errors(tmp_path, clearing, tmp_path / "locks")
    assert (done.outcome, done.detail) == (Outcome.FAILED, f"{clearing.port} is gone")


def test_a_driver_without_the_file_can_not_clear(tmp_path: Path) -> None:
    rack_of(tmp_path, "opae")
    (port_folder(tmp_path, "opae") / "errors/clear").unlink(missing_ok=True)
    (port_folder(tmp_path, "opae") / "errors/clear").symlink_to("nowhere/at/all")
    done = clear_errors(tmp_path, only_clearing(scan(tmp_path)), tmp_path / "locks")
    assert done.outcome is Outcome.FAILED
    assert "has no errors/clear" in done.detail


def test_a_pipe_in_the_files_place_is_not_waited_for(tmp_path: Path) -> None:
    rack_of(tmp_path, "opae")
    pipe = port_folder(tmp_path, "opae") / "errors/clear"
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    clearing = only_clearing(scan(tmp_path))
    assert clear_errors(tmp_path, clearing, tmp_path / "locks").outcome is Outcome.FAILED
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        done = clear_errors(tmp_path, clearing, tmp_path / "locks")
        assert os.read(reader, 10) == b""
    finally:
        os.close(reader)
    assert done.outcome is Outcome.FAILED
    assert "not a regular file" in done.detail


def test_a_link_does_not_lead_out_of_the_root(tmp_path: Path) -> None:
    rack_of(tmp_path / "root", "opae")
    outside = tmp_path / "outside"
    outside.write_text("untouched")
    taking = port_folder(tmp_path / "root", "opae") / "errors/clear"
    taking.unlink(missing_ok=True)
    taking.symlink_to(outside)
    clearing = only_clearing(scan(tmp_path / "root"))
    done = clear_errors(tmp_path / "root", clearing, tmp_path / "locks")
    assert done.outcome is Outcome.FAILED
    assert outside.read_text() == "untouched"


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (errno.EACCES, Outcome.FORBIDDEN),
        (errno.EPERM, Outcome.FORBIDDEN),
        (errno.EROFS, Outcome.FORBIDDEN),
        (errno.EINVAL, Outcome.FAILED),
        (errno.EBUSY, Outcome.FAILED),
        (errno.EIO, Outcome.FAILED),
    ],
)
@pytest.mark.parametrize("driver", DRIVERS)
def test_what_the_system_says_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str, code: int, outcome: Outcome
) -> None:
    rack_of(tmp_path, driver)
    (port_folder(tmp_path, driver) / "errors/clear").write_text("")
    clearing = only_clearing(scan(tmp_path))

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(errors_clear, "_write", refuse)
    done = clear_errors(tmp_path, clearing, tmp_path / "locks")
    assert done.outcome is outcome
    assert os.strerror(code) in done.detail
    assert clearing.port in done.detail
    assert f"{clearing.value:#x}" in done.detail


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_port_that_a_process_has_is_not_reset(tmp_path: Path, driver: str) -> None:
    """The driver resets a port to clear its errors."""
    rack_of(tmp_path, driver)
    taking = port_folder(tmp_path, driver) / ("errors/clear" if driver == "opae" else REGISTER)
    taking.write_text(taking.read_text() if taking.exists() else "")
    before = taking.read_text()
    clearing = only_clearing(scan(tmp_path))
    with holding(tmp_path / "dev" / clearing.port) as pid:
        done = clear_errors(tmp_path, clearing, tmp_path / "locks")
    assert done.outcome is Outcome.BUSY
    assert str(pid) in done.detail
    assert taking.read_text() == before
    assert clear_errors(tmp_path, clearing, tmp_path / "locks").outcome is Outcome.CLEARED


def test_a_card_that_is_being_programmed_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, address = rack_of(tmp_path, "dfl")
    monkeypatch.setattr(errors_clear, "LOCK_SECONDS", 0.0)
    with card_lock(tmp_path / "locks", address, seconds=0.0):
        done = clear_errors(tmp_path, only_clearing(scan(tmp_path)), tmp_path / "locks")
    assert (done.outcome, "works on it" in done.detail) == (Outcome.BUSY, True)


def test_a_port_that_may_not_be_opened_is_not_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device rules of a container that is not privileged."""

    def denied(*_: object, **__: object) -> int:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    rack_of(tmp_path, "dfl")
    monkeypatch.setattr(port_session, "open_node", denied)
    done = clear_errors(tmp_path, only_clearing(scan(tmp_path)), tmp_path / "locks")
    assert done.outcome is Outcome.FORBIDDEN
    assert "has to be opened" in done.detail
