"""Faults of a card in its registers: the reasons, and the clearing of errors."""

from collections.abc import Callable

import pytest

from simulator.registers.cards import PAC_A10, DflCard
from tests.kernel.bed import DRIVER, Bed

CARDS = (PAC_A10,)

PORT = "/sys/class/fpga_region/region0/dfl-port.0"
ENGINE = "/sys/class/fpga_region/region0/dfl-fme.0"
ONES = 2**64 - 1

Fault = Callable[[DflCard], object]
FAULTS: dict[str, tuple[Fault, set[str]]] = {
    "port errors": (lambda card: card.ports[0].errors.report("errors", 0x40), {"port-errors"}),
    "FME errors": (lambda card: card.errors.report("fme_errors", 0x2), {"fme-errors"}),
    "fatal errors": (
        lambda card: card.errors.report("catfatal_errors", 0x800),
        {"fme-catfatal-errors"},
    ),
    "nonfatal errors": (
        lambda card: card.errors.report("nonfatal_errors", 0x10),
        {"fme-nonfatal-errors"},
    ),
    "PCIe errors": (lambda card: card.errors.report("pcie0_errors", 0x1), set()),
    "PCIe errors of the second link": (lambda card: card.errors.report("pcie1_errors", 0x1), set()),
    "the engine's first error": (lambda card: card.errors.report("first_error", 0x1), set()),
    "the port's first error": (lambda card: card.ports[0].errors.report("first_error", 0x1), set()),
    "AP6": (lambda card: card.ports[0].throttle(6), set()),
    "much power": (lambda card: card.power.draw(70), set()),
    "AP1": (lambda card: card.ports[0].throttle(1), {"ap1-event"}),
    "AP2": (lambda card: card.ports[0].throttle(2), {"ap2-event"}),
    "warm": (lambda card: card.thermal.heat(85), set()),
    "hot": (lambda card: card.thermal.heat(95), {"overheated"}),
    "crashed firmware": (lambda card: card.ports[0].registers.update({0x38: 1}), {"afu-id-all-f"}),
    "off the bus": (
        lambda card: setattr(card.function, "is_gone", True),
        {
            *("afu-id-all-f", "port-errors", "ap1-event", "ap2-event", "overheated"),
            *("fme-errors", "fme-catfatal-errors", "fme-nonfatal-errors"),
        },
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_has_its_reason_and_ends(bed: Bed, card: DflCard, name: str) -> None:
    break_it, reasons = FAULTS[name]
    files = f"grep -rs . {PORT} {ENGINE} --exclude-dir=power"
    before = bed.call("shell", files)
    break_it(card)
    assert bed.call("shell", files) != before, "also what is no reason is shown by the driver"
    assert bed.reasons("dfl-port.0") == reasons
    card.power_up()
    bed.call("ioctl", "/dev/dfl-port.0", 0xB640, ())
    assert bed.call("shell", files) == before
    assert bed.reasons("dfl-port.0") == set()


def test_errors_are_cleared_in_the_card(bed: Bed, card: DflCard) -> None:
    card.ports[0].errors.report("errors", 0x41)
    card.ports[0].errors.report("first_error", 0x1)
    card.errors.report("fme_errors", 0x2)
    card.errors.report("pcie1_errors", 0x4)
    assert bed.accelbind("fpga", "clear-errors", "dfl-port.0").stdout == (
        "errors/errors of dfl-port.0: 0x41 cleared\n"
    )
    done = bed.accelbind("fpga", "clear-errors", "dfl-fme.0")
    assert done.stdout.splitlines() == [
        "errors/fme_errors of dfl-fme.0: 0x2 cleared",
        "errors/pcie1_errors of dfl-fme.0: 0x4 cleared",
    ]
    assert bed.reasons("dfl-port.0") == set()
    assert card.ports[0].errors.read(0x18) == 0


def test_an_error_that_comes_back_is_shown(bed: Bed, card: DflCard) -> None:
    card.ports[0].errors.report("errors", 0x40)
    card.ports[0].errors.sticks = 0x40
    done = bed.accelbind("fpga", "clear-errors", "dfl-port.0")
    assert "errors/errors reads 0x40 again" in done.stderr


def test_errors_stay_while_the_port_is_throttled_to_nothing(bed: Bed, card: DflCard) -> None:
    card.ports[0].errors.report("errors", 0x40)
    card.ports[0].throttle(6)
    done = bed.accelbind("fpga", "clear-errors", "dfl-port.0")
    assert done.code == 3
    assert "can't be cleared in AFU power state 6 (AP6)" in done.stderr


def test_clearing_errors_and_closing_reset_the_port(bed: Bed, card: DflCard) -> None:
    port = card.ports[0]
    port.errors.report("errors", 0x40)
    before = port.resets
    assert bed.call("write", f"{PORT}/errors/errors", "0x40") == 0
    assert port.resets == before + 1
    held = bed.call("hold", "/dev/dfl-port.0")
    before = port.resets
    bed.call("let_go", held)
    assert port.resets == before + 1


@pytest.mark.parametrize(
    ("file", "text", "errno"),
    [
        (f"{PORT}/errors/errors", "0x41", 22),  # reads 0x40
        (f"{PORT}/errors/errors", "all", 22),
        (f"{PORT}/userclk_freqcntrcmd", "fast", 22),
        (f"{PORT}/userclk_freqcntrcmd", "0x0", 0),
        (f"{ENGINE}/errors/fme_errors", "0x1", 22),  # reads 0x2
        (f"{ENGINE}/errors/catfatal_errors", "0x1", 13),
        (f"{DRIVER}/bind", "0000:00:00.0", 16),  # is bound
        (f"{DRIVER}/bind", "0000:00:07.0", 19),
        (f"{DRIVER}/unbind", "0000:00:07.0", 19),
    ],
)
def test_the_driver_answers_writes_so(
    bed: Bed, card: DflCard, file: str, text: str, errno: int
) -> None:
    card.ports[0].errors.report("errors", 0x40)
    card.errors.report("fme_errors", 0x2)
    assert bed.call("write", file, text) == errno
    assert bed.reasons("dfl-port.0") == {"port-errors", "fme-errors"}


@pytest.mark.parametrize("command", ["clear-errors", "reset"])
def test_an_opened_port_is_left_alone(bed: Bed, card: DflCard, command: str) -> None:
    card.ports[0].errors.report("errors", 0x40)
    held = bed.call("hold", "/dev/dfl-port.0")
    try:
        done = bed.accelbind("fpga", command, "dfl-port.0", "--state-dir", "/run/state")
    finally:
        bed.call("let_go", held)
    assert done.code == 3
    assert "dfl-port.0 is in use by process 1 (python)" in done.stderr
