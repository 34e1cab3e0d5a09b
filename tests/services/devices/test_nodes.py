"""Nodes that a container may get, and those that nobody gets."""

import pytest

from services.devices.model import DeviceNode
from services.devices.nodes import (
    SETTINGS,
    FoundNode,
    Number,
    check_allowed,
    check_node,
    denial,
    denied_examples,
    denied_name,
    described_node,
    is_name,
)
from services.process.problem import Problem

BY_SUBSYSTEM = (
    *("mem", "block", "scsi_generic", "bsg", "nvme", "nvme-generic", "mtd", "msr", "tpm", "tpmrm"),
    *("watchdog", "input", "vfio", "fpga_manager", "xrt_mgmt", "vduse", "scsi_tape", "dax", "uio"),
    *("remoteproc", "cuse", "infiniband_mad", "mei", "switchtec", "hidraw", "usbmon"),
)
BY_NUMBER = (
    *((1, 1), (1, 3), (21, 0), (13, 64), (90, 0), (136, 0), (162, 1), (202, 1), (4, 0), (5, 1)),
    *((10, each) for each in (1, 130, 137, 196, 203, 222, 223, 224, 236, 240)),
)
BY_NAME = (
    *("vfio/1", "ubi0_0", "usbmon1", "dfl-fme.0", "intel-fpga-port.0", "xclmgmt5", "ublk-control"),
    *("zfs", "st0", "nst0l", "dax0.0", "uio0", "cuse", "infiniband/umad0", "mei0", "hidraw3"),
)
OTHER = (243, 1)


@pytest.mark.parametrize(
    ("subsystem", "number", "name"),
    [
        *((each, OTHER, "x") for each in BY_SUBSYSTEM),
        *(("", each, "x") for each in BY_NUMBER),
        *(("", OTHER, each) for each in BY_NAME),
    ],
)
def test_denied_nodes_are_denied(subsystem: str, number: Number, name: str) -> None:
    refusal = denial(subsystem, number, name)
    assert "never handed out: " in refusal or "handed out with --allow-nodes=" in refusal
    answer = check_node(FoundNode(name, number, subsystem))
    assert isinstance(answer, Problem)
    assert answer.code == "node-denied"


@pytest.mark.parametrize(
    ("subsystem", "number", "name"),
    [
        ("misc", (10, 183), "hwrng"),
        ("accel", (261, 0), "accel/accel0"),
        ("drm", (226, 128), "dri/renderD128"),
        ("tty", (4, 64), "ttyS0"),
        ("tty", (188, 0), "ttyUSB0"),
        ("ve", (238, 0), "ve0"),
        ("usb", (189, 5), "bus/usb/001/006"),
        # of class misc what is listed
        ("misc", (10, 229), "fuse"),
        ("misc", (10, 122), "mali0"),
        ("", (10, 229), "fuse"),
        ("tty", (10, 99), "x"),
    ],
)
def test_others_are_given_as_sysfs_has_them(subsystem: str, number: Number, name: str) -> None:
    answer = check_node(FoundNode(name, number, subsystem), permissions="r")
    assert answer == DeviceNode(name, "r", number)


@pytest.mark.parametrize(
    ("name", "target", "reason"),
    [
        ("zigbee", "ttyUSB0", ""),
        ("zigbee", "serial/by-id/x", ""),
        ("zigbee", "dfl-port.0", "node-denied"),
        ("zigbee", "usbmon1", "node-denied"),
        ("usbmon1", "zigbee", "node-denied"),
        ("zigbee", "/run/tty", "node-missing"),
        ("zigbee", "a\udcff", "node-missing"),
    ],
)
def test_a_link_is_judged_by_its_name_and_its_target(name: str, target: str, reason: str) -> None:
    answer = check_node(FoundNode(name, OTHER, "", actual=OTHER, target=target))
    if reason:
        assert isinstance(answer, Problem)
        assert answer.code == reason
        assert f"/dev/{name}" in answer.text
    else:
        assert answer == DeviceNode(name, "rw", OTHER, target)


def test_the_node_has_to_be_the_device() -> None:
    def reason(problem: Problem | None, actual: Number | None) -> str:
        answer = check_node(FoundNode("ve0", (238, 0), "ve", problem, actual))
        return answer.code if isinstance(answer, Problem) else ""

    assert reason(None, (238, 0)) == ""
    assert reason(None, (238, 1)) == "node-other-number"
    assert reason(Problem("node-missing", ""), None) == "node-missing"


@pytest.mark.parametrize(
    ("uevent", "described"),
    [
        ("MAJOR=238\nMINOR=2\nDEVNAME=ve2\nDEVMODE=0666", ("ve2", (238, 2))),
        ("DEVNAME=/dev/ve2\nMAJOR=238\nMINOR=2", ("ve2", (238, 2))),
        ("DRIVER=ve_drv", ("", None)),
        ("MAJOR=x\nMINOR=2\nDEVNAME=../../etc/shadow", ("../../etc/shadow", None)),
    ],
)
def test_uevents_describe_nodes(uevent: str, described: tuple[str, Number | None]) -> None:
    assert described_node(uevent) == described
    name, number = described
    missing = check_node(FoundNode(name, number, ""))
    assert isinstance(missing, Problem) is (number is None)


@pytest.mark.parametrize("subsystem", ["misc", ""])
def test_of_class_misc_other_nodes_need_the_setting(subsystem: str) -> None:
    rfkill = subsystem, (10, 242), "rfkill"
    assert denial(*rfkill).endswith("--allow-nodes=rfkill allows it")
    assert denial(*rfkill, ["rfkill"]) == ""
    assert denial("misc", (10, 237), "rfkill", ["rfkill"]) != ""  # it is the loop devices' number


@pytest.mark.parametrize(
    ("word", "subsystem", "number", "name"),
    [
        ("input", "input", (13, 64), "input/event0"),
        ("hidraw", "hidraw", OTHER, "hidraw0"),
        ("hidraw", "usbmisc", (180, 96), "usb/hiddev0"),
        ("tpm", "tpm", (10, 224), "tpm0"),
        ("tpm", "", (10, 224), "tpm0"),
        ("tpm", "tpmrm", OTHER, "tpmrm0"),
    ],
)
def test_the_setting_allows_some_classes(
    word: str, subsystem: str, number: Number, name: str
) -> None:
    others = [each for each in SETTINGS if each != word]
    assert f"--allow-nodes={word}" in denial(subsystem, number, name, others)
    assert denial(subsystem, number, name, [word]) == ""
    assert "never" in denial(subsystem, (1, 1), name, [word])
    assert "never" in denial("mem", number, name, [word])


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("hidraw", ""),
        ("rfkill", ""),
        ("uio", "never handed out"),
        ("mem", "never handed out"),
        ("tpm0", "--allow-nodes=tpm only"),
        ("../x", "is no name"),
        ("HIDRAW", "is no name of a node: write input, hidraw"),
    ],
)
def test_the_setting_can_not_allow_what_is_never_handed_out(word: str, why: str) -> None:
    assert why in check_allowed(word)
    assert bool(check_allowed(word)) is bool(why)


def test_names_stay_below_dev() -> None:
    bent = ["", ".", "..", "../mem", "a/../mem", "/mem", "a//b", "a b", "x" * 129, "a/b/c/d/e/f"]
    assert [each for each in bent if is_name(each)] == []
    assert all(map(denied_name, denied_examples()))
