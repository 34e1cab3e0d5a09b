"""The stand-ins of cards and driver against Linux's driver: file by file, call by call."""

import errno
import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from services.programming.ioctls import IOCTLS, KERNEL, DriverNode
from simulator.cards import NLB3, CardSpec, lay_out
from simulator.driver import DriverStandIn, SimulatedCalls, raw_bitstream
from simulator.registers.cards import PAC_A10, DflCard
from tests.kernel import guest
from tests.kernel.bed import Bed

CARDS = (PAC_A10,)

Call = tuple[str, int, tuple[int, ...]]

SPEC: Final = CardSpec(afu_ids=PAC_A10.afu_ids, address="0000:00:00.0")  # type: ignore[arg-type]
_FUNCTION: Final = "devices/pci0000:00/0000:00:00.0"
_NOT_IN_THE_BED: Final = {
    f"{_FUNCTION}/{each}"
    for each in ("numa_node", "aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal")
}
"""Files of the PCI core: this kernel has neither NUMA nor AER."""
_SHAPES: Final = ((r"\b[0-9a-f]{32}\b", "ID"), (r"0x[0-9a-f]+", "HEX"), (r"-?\b[0-9]+\b", "N"))


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """The stand-in of the bed's card, with a driver."""
    lay_out(tmp_path, [SPEC])
    with DriverStandIn(tmp_path):
        yield tmp_path


def shape(content: str) -> str:
    for pattern, word in _SHAPES:
        content = re.sub(pattern, word, content)
    return content


def test_the_files_that_are_read_of_a_card_are_those_of_the_driver(bed: Bed, root: Path) -> None:
    real, ours = (
        {name: shape(text) for name, text in files.items()}
        for files in (bed.call("files_read", "/"), guest.files_read(str(root)))
    )
    assert {name: ours.pop(name) for name in set(ours) - set(real)}.keys() == _NOT_IN_THE_BED
    assert ours == real


def simulated(
    root: Path, name: str, request: int, words: tuple[int, ...], data: bytes = b""
) -> int:
    """The result of a call of the stand-in, or the negative errno."""
    node = DriverNode(-1, root / "dev" / name, IOCTLS["dfl"], KERNEL)
    argument = bytearray(array("I", words)) if words else 0
    try:
        return SimulatedCalls().ioctl(node, request, argument, array("B", data))
    except OSError as error:
        return -(error.errno or 1)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (("dfl-port.0", 0xB640, ()), 0),  # reset
        (("dfl-port.0", 0xB680, ()), -errno.EINVAL),  # programming is the engine's
        (("dfl-fme.0", 0xB640, ()), -errno.EINVAL),
        (("dfl-fme.0", 0xB680, (24, 0, 9, 4, 0, 0)), -errno.EINVAL),  # no such port
        (("dfl-fme.0", 0xB680, (24, 1, 0, 4, 0, 0)), -errno.EINVAL),  # flags
        (("dfl-fme.0", 0xB680, (4, 0, 0, 4, 0, 0)), -errno.EINVAL),  # too short
        (("dfl-fme.0", 0xB680, (24, 0, 0, 4, 0, 0)), -errno.EFAULT),  # no bitstream there
        (("dfl-fme.0", 0xB680, (24, 0, 0, 0, 0, 0)), -errno.ENOMEM),  # nothing to program
        (("dfl-fme.0", 0xB680, (24, 0, 0, 2**32 - 1, 0, 0)), -errno.ENOMEM),
    ],
)
def test_ioctls_are_answered_alike(bed: Bed, root: Path, call: Call, expected: int) -> None:
    node, *arguments = call
    assert bed.call("ioctl", f"/dev/{node}", *arguments) == expected
    assert simulated(root, *call) == expected


def test_programming_is_answered_alike(bed: Bed, root: Path, card: DflCard) -> None:
    for content, expected in ((raw_bitstream(NLB3), 0), (b"no bitstream at all.", -errno.EIO)):
        words = (24, 0, 0, len(content), 1, 0)
        assert simulated(root, "dfl-fme.0", 0xB680, words, content) == expected
        assert bed.call("program", "/dev/dfl-fme.0", 0, content) == expected
        shown = Path(root, "sys/class/fpga_region/region0/dfl-port.0/afu_id").read_text()
        assert shown == f"{NLB3}\n"
        assert card.reconfiguration.programmed == [(0, raw_bitstream(NLB3))]
