"""Programming by the driver's real ioctl, and what it leaves behind when it fails."""

import errno
from functools import partial

import pytest

from simulator.bitstreams import gbs_metadata, gbs_of, make_gbs
from simulator.cards import A10_INTERFACE, NLB0, NLB3
from simulator.driver import raw_bitstream
from simulator.registers.cards import PAC_A10, TWO_PORTS, DflCard
from simulator.registers.features import Reconfiguration
from tests.kernel.bed import DRIVER, Bed, Done

CARDS = (PAC_A10, TWO_PORTS)

STATE = ("--state-dir", "/run/state")
NO_KUBELET = ("--kubelet-dir", "/run/none")
AFU_ID = "/sys/class/fpga_region/region0/dfl-port.0/afu_id"
BUSY = "OSError 16"
RELEASE, ASSIGN = 0x4004_B681, 0x4004_B682


def program(bed: Bed, afu_id: str, port: str = "dfl-port.0", *flags: str) -> Done:
    """Have the command program a function by force."""
    file = f"/run/{afu_id}.gbs"
    bed.call("create", file, make_gbs(A10_INTERFACE, afu_id, raw_bitstream(afu_id)))
    return bed.accelbind("fpga", "program", port, file, "--force", *STATE, *flags)


def rebind(bed: Bed, device: str = "dfl-port.0", *flags: str) -> Done:
    return bed.accelbind("fpga", "rebind", device, "--force", *STATE, *flags)


def test_the_card_gets_every_word_and_shows_the_function(bed: Bed, card: DflCard) -> None:
    done = program(bed, NLB3)
    assert (done.code, done.stderr) == (0, "")
    assert card.reconfiguration.programmed == [(0, raw_bitstream(NLB3))]
    assert bed.call("read", AFU_ID) == NLB3
    assert bed.reasons("dfl-port.0") == set()
    assert card.ports[0].resets >= 3  # at its start, after the programming, and when it is closed


@pytest.mark.parametrize(
    ("fault", "value", "words"),
    [
        ("refusal", Reconfiguration.OPERATION, "reconfig operation error"),
        ("refusal", Reconfiguration.CRC, "reconfig CRC error"),
        ("refusal", Reconfiguration.INCOMPATIBLE, "reconfig incompatible image"),
        ("refusal", Reconfiguration.PROTOCOL, "reconfig IP protocol error"),
        ("refusal", Reconfiguration.OVERFLOW, "reconfig fifo overflow error"),
        ("completes", False, "Connection timed out"),
        ("seconds", 20, "Connection timed out"),
    ],
)
def test_a_failure_is_explained_and_leaves_the_port_disabled(
    bed: Bed, card: DflCard, fault: str, value: int, words: str
) -> None:
    setattr(card.reconfiguration, fault, value)
    done = program(bed, NLB3)
    assert done.code == 1
    assert "the hardware refused (" in done.stderr
    assert words in done.stderr
    assert "Its driver keeps the port disabled now" in done.stderr
    assert "accelbind fpga rebind dfl-port.0" in done.stderr
    assert bed.call("read", AFU_ID) == BUSY
    assert bed.reasons("dfl-port.0") == {"port-disabled"}


def test_a_disabled_port_is_reported_until_its_driver_is_rebound(bed: Bed, card: DflCard) -> None:
    card.reconfiguration.refusal = Reconfiguration.CRC
    program(bed, NLB3)
    card.reconfiguration.refusal = 0
    done = program(bed, NLB3)
    assert done.code == 1
    assert "accelbind fpga rebind dfl-port.0, then program it" in done.stderr
    assert "metadata" not in done.stderr
    assert card.reconfiguration.programmed == []
    done = bed.accelbind("fpga", "reset", "dfl-port.0", *STATE)
    assert (done.code, "accelbind fpga rebind" in done.stderr) == (1, True)
    assert "accelbind fpga rebind" in bed.accelbind("fpga", "info", "dfl-port.0").stdout
    cards = bed.accelbind("doctor", "--node", "--only", "node.devices").stdout
    assert "accelbind fpga rebind dfl-port.0" in cards

    done = rebind(bed)
    assert (done.code, done.stderr) == (0, "")
    first, *_, last = done.stdout.splitlines()
    assert first.endswith("(0000:00:00.0) takes dfl-fme.0 and dfl-port.0 away for a moment")
    assert last == "the driver of dfl-port.0 is rebound: its ports are dfl-port.0"
    assert bed.reasons("dfl-port.0") == set()
    assert program(bed, NLB3).code == 0
    assert bed.call("read", AFU_ID) == NLB3


def test_the_driver_itself_keeps_the_port_disabled_whatever_is_programmed(
    bed: Bed, card: DflCard
) -> None:
    assert bed.call("program", "/dev/dfl-fme.0", 0, b"no bitstream at all.") == -5
    for _ in range(2):
        assert bed.call("program", "/dev/dfl-fme.0", 0, raw_bitstream(NLB3)) == 0
        assert bed.call("read", AFU_ID) == BUSY
    assert len(card.reconfiguration.programmed) == 2
    assert bed.call("ioctl", "/dev/dfl-port.0", 0xB640, ()) == 0
    assert card.ports[0].is_in_reset


def test_a_bitstream_with_another_function_is_to_blame_itself(bed: Bed, card: DflCard) -> None:
    metadata = gbs_metadata(A10_INTERFACE, NLB0)
    bed.call("create", "/run/other.gbs", gbs_of(metadata, raw_bitstream(NLB3)))
    done = bed.accelbind("fpga", "program", "dfl-port.0", "/run/other.gbs", "--force", *STATE)
    assert "the bitstream's metadata may name another function" in done.stderr
    assert card.reconfiguration.programmed


@pytest.mark.parametrize(
    "command",
    [
        ("program", "dfl-port.0", f"/run/{NLB3}.gbs", "--force", *STATE),
        ("reset", "dfl-port.0", *STATE),
        ("clear-errors", "dfl-port.0"),
    ],
)
def test_a_port_that_acknowledges_no_reset_is_disabled_too(
    bed: Bed, card: DflCard, command: tuple[str, ...]
) -> None:
    bed.call("create", f"/run/{NLB3}.gbs", make_gbs(A10_INTERFACE, NLB3, raw_bitstream(NLB3)))
    card.ports[0].acknowledges = False
    card.ports[0].errors.report("errors", 0x40)
    done = bed.accelbind("fpga", *command)
    assert done.code == 1
    assert "Connection timed out" in done.stderr
    assert "accelbind fpga rebind dfl-port.0" in done.stderr
    assert "bitstream" not in done.stderr
    for text in (rebind(bed).stderr, bed.call("ensure", "dfl-port.0", f"/run/{NLB3}.gbs")):
        assert "dfl-port.0 is still disabled after its driver was rebound" in text
    assert card.reconfiguration.programmed == []
    card.power_up()
    assert bed.reasons("dfl-port.0") == {"port-disabled"}


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize("node", ["dfl-port.0", "dfl-fme.0"])
def test_no_driver_is_rebound_while_a_part_of_its_card_is_open(bed: Bed, node: str) -> None:
    held = bed.call("hold", f"/dev/{node}")
    try:
        done = rebind(bed, "region0")
    finally:
        bed.call("let_go", held)
    assert done.code == 3
    assert "in use" in done.stderr
    assert len(bed.listed()) == 5
    assert rebind(bed, "region0").code == 0


@pytest.mark.usefixtures("card")
def test_no_driver_is_rebound_while_the_holders_are_unknown(bed: Bed) -> None:
    done = bed.accelbind("fpga", "rebind", "region0", *STATE, *NO_KUBELET)
    assert done.code == 3
    assert "whether a container has a part of card region0 is unknown" in done.stderr


@pytest.mark.usefixtures("card")
def test_of_two_ports_the_other_one_goes_on(bed: Bed) -> None:
    two = bed.cards[1]
    two.reconfiguration.refusal = Reconfiguration.CRC
    assert program(bed, NLB0, "dfl-port.2").code == 1
    assert bed.reasons("dfl-port.2") == {"port-disabled"}
    assert bed.reasons("dfl-port.1") == set()
    two.reconfiguration.refusal = 0
    assert program(bed, NLB3, "dfl-port.1").code == 0
    assert "dfl-port.1 and dfl-port.2" in rebind(bed, "0000:00:01.0").stdout
    assert program(bed, NLB0, "dfl-port.2").code == 0


@pytest.mark.usefixtures("card")
def test_a_released_port_is_not_programmed_and_comes_back(bed: Bed) -> None:
    engine = ("dfl-fme.0", "--port", "0", *STATE)
    moves = [partial(bed.call, "ioctl", "/dev/dfl-fme.0", each) for each in (RELEASE, ASSIGN)]
    assert [move((9,)) for move in moves] == [-errno.EINVAL, -errno.EINVAL]
    assert bed.accelbind("fpga", "release", *engine).code == 0
    assert not [each for each in bed.listed() if each["device"] == "dfl-port.0"]
    # The driver would program it all the same, and says nothing.
    assert bed.call("program", "/dev/dfl-fme.0", 0, raw_bitstream(NLB3)) == 0
    assert moves[0]((0,)) == -errno.EBUSY
    # Linux gives a device that is added a second time no driver.
    done = bed.accelbind("fpga", "assign", *engine)
    assert (done.code, "accelbind fpga rebind dfl-port.0" in done.stderr) == (0, True)
    assert moves[1]((0,)) == -errno.EBUSY
    assert bed.reasons("dfl-port.0") == {"port-without-driver"}
    assert "has no driver" in bed.accelbind("fpga", "reset", "dfl-port.0", *STATE).stderr
    assert rebind(bed).code == 0
    assert bed.reasons("dfl-port.0") == set()


@pytest.mark.usefixtures("card")
def test_a_released_port_comes_back_when_the_driver_is_rebound(bed: Bed) -> None:
    release = ("fpga", "release", "dfl-fme.1", "--port", "0", *STATE)
    assert bed.accelbind(*release).code == 0
    assert "it is released already" in bed.accelbind(*release).stderr
    done = rebind(bed, "dfl-port.2")
    assert (done.code, "1 port that the card says it has can't be seen" in done.stdout) == (0, True)
    assert "dfl-port.1 and dfl-port.2" in done.stdout


@pytest.mark.usefixtures("card")
def test_a_card_that_is_meant_for_another_driver_is_not_lost(bed: Bed) -> None:
    address = "0000:00:00.0"
    override = f"/sys/bus/pci/devices/{address}/driver_override"
    bed.call("write", override, "vfio-pci\n")
    kept = rebind(bed, "region0")
    bed.call("write", f"{DRIVER}/unbind", address)
    lost = rebind(bed, address)
    bed.call("write", override, "\n")
    for each in (kept, lost):
        assert (
            f"its driver_override is vfio-pci; clear that first: echo > {override}" in each.stderr
        )
    assert rebind(bed, address).code == 0
    assert bed.reasons("dfl-port.0") == set()


def test_a_start_rebinds_the_driver_before_it_programs(bed: Bed, card: DflCard) -> None:
    card.reconfiguration.refusal = Reconfiguration.CRC
    program(bed, NLB3)
    file = f"/run/{NLB3}.gbs"
    assert "the hardware refused" in bed.call("ensure", "dfl-port.0", file)
    assert bed.call("read", AFU_ID) == BUSY
    card.reconfiguration.refusal = 0
    held = bed.call("hold", "/dev/dfl-fme.0")
    assert "can't be rebound: dfl-fme.0" in bed.call("ensure", "dfl-port.0", file)
    bed.call("let_go", held)
    assert bed.call("ensure", "dfl-port.0", file) == "programmed"
    assert bed.call("ensure", "dfl-port.0", file) == "there already"
    assert len(card.reconfiguration.programmed) == 1
    assert bed.call("read", AFU_ID) == NLB3


def test_a_start_that_may_not_write_sysfs_names_the_command(bed: Bed, card: DflCard) -> None:
    card.reconfiguration.refusal = Reconfiguration.CRC
    program(bed, NLB3)
    bed.call("shell", "mount -o remount,ro /sys")
    refusal = bed.call("ensure", "dfl-port.0", f"/run/{NLB3}.gbs")
    bed.call("shell", "mount -o remount,rw /sys")
    assert refusal.startswith("dfl-port.0 is disabled")
    assert "(Read-only file system); as root on the node: accelbind fpga rebind region0" in refusal
