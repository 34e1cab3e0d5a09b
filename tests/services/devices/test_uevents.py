import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.devices.uevents import MAX_MESSAGE, Uevent, is_relevant, may_matter, parse

DEVPATH = "/devices/pci0000:5d/0000:5d:00.0/0000:5e:00.0/fpga_region/region0"
PAIRS = (
    f"ACTION=add\0DEVPATH={DEVPATH}\0SUBSYSTEM=fpga_region\0SEQNUM=4711\0".encode()
)  # as the kernel orders them
KERNEL = f"add@{DEVPATH}\0".encode() + PAIRS
ADDED = Uevent("add", DEVPATH, "fpga_region")


def udev(
    pairs: bytes = PAIRS,
    *,
    magic: int = 0xFEEDCAFE,
    header: int = 40,
    offset: int = 40,
    length: int | None = None,
) -> bytes:
    """A message as udev's monitor sends it: the structure and what stands behind it."""
    start = struct.pack(">8sI", b"libudev\0", magic)
    there = struct.pack("=III", header, offset, len(pairs) if length is None else length)
    return start + there + bytes(16) + pairs


def test_an_event_of_the_kernels_is_read() -> None:
    assert parse(KERNEL) == ADDED


def test_an_event_of_udevs_is_read() -> None:
    assert len(udev(b"")) == 40
    assert parse(udev()) == ADDED


def test_pairs_may_stand_further_behind_udevs_header() -> None:
    assert parse(udev(b"later" + PAIRS, offset=45, length=len(PAIRS))) == ADDED


@pytest.mark.parametrize(
    "message",
    [
        b"remove@/devices/x\0ACTION=remove\0DEVPATH=/devices/x\0SUBSYSTEM=pci\0",
        b"remove@/devices/x\0SUBSYSTEM=pci\0DEVPATH=/devices/x\0ACTION=remove",
        b"remove@/devices/x\0ACTION=remove\0\0=\0x\0DEVPATH=/devices/x\0SUBSYSTEM=pci\0cut of",
    ],
)
def test_order_and_stray_bytes_do_not_matter(message: bytes) -> None:
    assert parse(message) == Uevent("remove", "/devices/x", "pci")


def test_an_event_without_subsystem_is_one() -> None:
    assert parse(b"add@/module/dfl\0ACTION=add\0DEVPATH=/module/dfl\0") == Uevent(
        "add", "/module/dfl"
    )


def test_bytes_that_are_no_text_are_replaced() -> None:
    event = parse(b"add@/x\0ACTION=add\0DEVPATH=/x\xff\0SUBSYSTEM=fpga\xfe\0")
    assert event == Uevent("add", "/x\ufffd", "fpga\ufffd")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0",
        b"libudev\0",
        b"libudev\0" + bytes(12),
        b"libudev",
        KERNEL.replace(b"@", b"#"),
        KERNEL[: KERNEL.index(b"\0")],
        b"add@/x\0ACTION=\0DEVPATH=/x\0",
        b"add@/x\0ACTION=add\0DEVPATH=x\0",
        b"add@/x\0ACTION=add\0",
        PAIRS,
        udev(magic=0xCAFEFEED),
        udev(header=0),
        udev(header=41),
        udev(offset=23),
        udev(offset=2**32 - 1),
        udev(length=0),
        udev()[:39],
        udev(header=2**32 - 1, offset=2**32 - 1),
    ],
)
def test_what_is_no_event_is_none(message: bytes) -> None:
    assert parse(message) is None


def test_a_length_is_not_believed() -> None:
    assert parse(udev(length=2**32 - 1)) == ADDED


@given(st.binary(max_size=200))
def test_any_bytes_are_answered(rest: bytes) -> None:
    for start in (b"", b"libudev\0", b"libudev\0\xfe\xed\xca\xfe", b"a@/\0"):
        event = parse(start + rest)
        assert event is None or event.devpath.startswith("/")


@given(st.data())
def test_damaged_messages_are_answered(data: st.DataObject) -> None:
    message = bytearray(data.draw(st.sampled_from([KERNEL, udev()])))
    for _ in range(data.draw(st.integers(1, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    event = parse(bytes(message))
    assert event is None or event.action


@pytest.mark.parametrize("filler", [b"\0", b"=", b"a=b\0", b"ACTION=add\0", b"\xff"])
def test_the_longest_message_without_a_device_tells_nothing(filler: bytes) -> None:
    message = (b"add@/x\0" + filler * MAX_MESSAGE)[:MAX_MESSAGE]
    assert parse(message) is None


@pytest.mark.parametrize(
    ("subsystem", "devpath", "relevant"),
    [
        ("fpga", "/devices/pci0000:00/0000:05:00.0/fpga/intel-fpga-dev.0", True),
        ("fpga_region", f"{DEVPATH}", True),
        ("fpga_manager", f"{DEVPATH}/dfl-fme.0/dfl-fme-mgr.1/fpga_manager/fpga0", True),
        ("dfl", "/devices/pci0000:5d/0000:5e:00.0/dfl_dev.0", True),
        ("pci", "/devices/pci0000:5d/0000:5e:00.0", True),
        ("platform", f"{DEVPATH}/dfl-port.0", True),
        ("platform", f"{DEVPATH}/dfl-fme.0", True),
        (
            "platform",
            "/devices/pci0000:00/0000:05:00.0/fpga/intel-fpga-dev.0/intel-fpga-port.0",
            True,
        ),
        ("platform", "/devices/platform/i8042", False),
        ("platform", "/devices/platform/dfl-port.0/rtc", False),
        ("net", "/devices/virtual/net/veth0", False),
        ("block", "/devices/virtual/block/loop0", False),
        ("queues", f"{DEVPATH}/x", False),
        ("", "/module/dfl_pci", False),
    ],
)
def test_only_what_may_be_about_a_card_matters(
    subsystem: str, devpath: str, relevant: bool
) -> None:
    assert is_relevant(Uevent("add", devpath, subsystem)) is relevant
    assert is_relevant(Uevent("whatever", devpath, subsystem)) is relevant


@pytest.mark.parametrize(
    ("subsystem", "worth"),
    [
        *((each, True) for each in ("fpga", "fpga_region", "fpga_manager", "fpga_bridge")),
        *((each, True) for each in ("dfl", "pci", "platform")),
        *((each, False) for each in ("net", "block", "queues", "")),
    ],
)
def test_what_may_be_about_a_card_is_worth_parsing(subsystem: str, worth: bool) -> None:
    pairs = f"ACTION=add\0DEVPATH=/devices/x\0SUBSYSTEM={subsystem}\0".encode()
    assert may_matter(b"add@/devices/x\0" + pairs) is worth
    assert may_matter(udev(pairs)) is worth


@given(st.text(max_size=20), st.text(max_size=20))
def test_whatever_is_relevant_is_worth_parsing(name: str, subsystem: str) -> None:
    pairs = f"ACTION=add\0DEVPATH=/{name}\0SUBSYSTEM={subsystem}\0".encode()
    event = parse(b"add@/x\0" + pairs)
    assert event is None or not is_relevant(event) or may_matter(pairs)
