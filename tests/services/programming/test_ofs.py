from array import array
from pathlib import Path

import pytest

from services.process.errors import HardwareError
from services.programming.image import Image
from services.programming.ioctls import KERNEL
from services.programming.programmer import Programmer
from tests.services.ofs_cards import HE_MEM, INTERFACE, OfsNode


def test_the_port_of_an_ofs_card_is_not_programmed(tmp_path: Path) -> None:
    node = OfsNode(tmp_path / "root")
    node.add_card()
    image = Image(INTERFACE, HE_MEM, lambda: array("Q"))
    with pytest.raises(HardwareError, match="are behind its virtual functions; use fpgaconf"):
        Programmer(node.root, tmp_path / "state", calls=KERNEL).check("dfl-port.0", image)
