"""Faults of Linux's drivers that accelbind must not cause: each ends the kernel."""

import pytest

from simulator.registers.cards import PAC_A10
from tests.kernel.bed import DRIVER
from tests.kernel.conftest import booted

ADDRESS = "0000:00:00.0"


@pytest.mark.parametrize(
    "order", [(f"{DRIVER}/unbind", ADDRESS), (f"/sys/bus/pci/devices/{ADDRESS}/remove", "1")]
)
def test_linux_crashes_when_a_port_is_closed_whose_driver_is_gone(order: tuple[str, str]) -> None:
    with booted(PAC_A10) as bed:
        engine, port = (bed.call("hold", f"/dev/dfl-{each}.0") for each in ("fme", "port"))
        bed.call("write", *order)
        bed.call("let_go", engine)
        with pytest.raises(AssertionError, match="the kernel"):
            bed.call("let_go", port)
