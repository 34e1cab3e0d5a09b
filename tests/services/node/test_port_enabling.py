"""Disabled ports: which are enabled, and when they are tried again."""

import pytest

from services.containers.holders import Holder, Holders
from services.devices.model import Card, Fme, Inventory, PciFunction, PluginMode, Port, Problem
from services.node.port_enabling import PortEnabling
from services.process.blocking import BlockingCalls
from services.process.errors import DeviceBusy, DeviceRefused, KubeletError
from tests.services.node.support import scanned, set_state

pytestmark = pytest.mark.anyio

PCI = PciFunction("0000:5e:00.0")


def inventory(*reasons: str) -> Inventory:
    problems = tuple(Problem(each, each) for each in reasons)
    ports = (Port("dfl-port.0", 0, "", problems, PCI), Port("dfl-port.1", 1, "1" * 32, (), PCI))
    return Inventory((Card("dfl", "region0", PCI, Fme("dfl-fme.0", "2" * 32), ports),))


class Node:
    """A node in mode region with one card of two ports, the first of which is disabled."""

    def __init__(self) -> None:
        self.state = scanned(mode=PluginMode.REGION)
        self.holders: Holders | KubeletError = {}
        self.error: Exception | None = None
        self.enabled: list[str] = []
        self.enabling = PortEnabling(
            enable=self._enable,
            holders=self._read,
            calls=BlockingCalls(),
            request_rescan=lambda: None,
        )

    def _enable(self, port: str) -> bool:
        self.enabled.append(port)
        if self.error is not None:
            raise self.error
        return True

    async def _read(self) -> Holders:
        if isinstance(self.holders, KubeletError):
            raise self.holders
        return self.holders

    async def scan(self, *reasons: str) -> list[str]:
        """Scan, and enable; the ports that were tried."""
        self.enabled.clear()
        set_state(self.state, inventory(*reasons))
        self.enabling.on_scan(self.state)
        await self.enabling.run_once()
        return list(self.enabled)


async def test_a_disabled_port_is_enabled_once_each_time() -> None:
    node = Node()
    assert await node.scan("port-errors") == []
    assert await node.scan("port-disabled") == ["dfl-port.0"]
    assert await node.scan("port-disabled") == []
    assert await node.scan() == []
    assert await node.scan("port-disabled") == ["dfl-port.0"]


@pytest.mark.parametrize("device", ["dfl-fme.0", "dfl-port.1"])
async def test_a_card_of_which_a_container_has_a_part_is_left_alone(device: str) -> None:
    node = Node()
    node.holders = {("fpga.intel.com/region-x", device): (Holder("a", "b", "c"),)}
    assert await node.scan("port-disabled") == []
    node.holders = {}
    assert await node.scan("port-disabled") == ["dfl-port.0"]


async def test_nothing_is_done_while_the_holders_are_unknown() -> None:
    node = Node()
    node.holders = KubeletError("unknown")
    assert await node.scan("port-disabled") == []


async def test_a_busy_card_is_tried_again_and_one_that_refuses_is_not() -> None:
    node = Node()
    node.error = DeviceBusy("open")
    assert await node.scan("port-disabled") == ["dfl-port.0"]
    node.error = DeviceRefused("no")
    assert await node.scan("port-disabled") == ["dfl-port.0"]
    assert await node.scan("port-disabled") == []
