"""What is in the regions of a claim."""

import msgspec
import pytest

from plugin.dra.contents import require_regions
from plugin.dra.wants import Kind, Want
from services.devices.model import Inventory
from services.node.regions import RegionContents
from services.process.errors import ExternalFailure
from services.programming.assignment import regions_of
from tests.services.cards import card

X = "fpga.intel.com/x"
WANT = Want("r", Kind.PROGRAM, ("fpga-0000-5e-00-0",), ("dfl-fme.0",), ((),), X, X)


def test_a_region_that_is_another_cards_now_is_left_alone() -> None:
    found = RegionContents(regions_of(Inventory((card(0), card(1)))), {})
    require_regions(WANT, found)
    # `plan` says that it is gone.
    require_regions(msgspec.structs.replace(WANT, ids=("dfl-fme.7",)), found)
    with pytest.raises(ExternalFailure, match=r"dfl-fme\.1 is on card 0000:5f:00\.0 now"):
        require_regions(msgspec.structs.replace(WANT, ids=("dfl-fme.1",)), found)
