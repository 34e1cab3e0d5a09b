import asyncio
import contextlib
import threading
from dataclasses import replace
from pathlib import Path

from services.containers.holders import Holders
from services.devices.hardware.afu_ids import AfuIds
from services.devices.model import Card, Inventory, PluginMode
from services.devices.port_owners import card_key
from services.node.fpga import HUNG_IN_DRIVER, FpgaProvider
from services.process.blocking import BlockingCalls
from services.process.errors import DeviceHung
from tests.services.cards import NLB0, NLB3, card, port, virtual
from tests.support import eventually


class Node:
    """Cards that a test changes."""

    def __init__(self, *cards: Card) -> None:
        self.cards = cards
        self.threads = BlockingCalls()
        self.provider = FpgaProvider(
            PluginMode.AF,
            units=1,
            scan=self.inventory,
            calls=self.threads,
            ignored_errors={},
            holders=self.holders,
            afu_ids=AfuIds(Path("/nowhere"), self.threads),
            observe_seconds=lambda _: None,
        )
        self.release = threading.Event()

    async def inventory(self) -> Inventory:
        return Inventory(self.cards)

    async def holders(self) -> Holders:
        return {}

    def scan(self) -> tuple[Card, ...]:
        return asyncio.run(self.provider.devices()).cards

    def work(self, key: str, seconds: float = 10) -> threading.Thread:
        """Keep a card busy until `release` is set."""

        def run() -> None:
            with contextlib.suppress(DeviceHung):
                asyncio.run(
                    self.threads.run(
                        card_key(key), self.release.wait, timeout=seconds, what="working"
                    )
                )

        thread = threading.Thread(target=run)
        thread.start()
        eventually(lambda: card_key(key) in self.threads.busy)
        return thread


def with_afu(afu_id: str) -> Card:
    return card(0, port("dfl-port.0", afu_id))


def test_a_card_that_is_worked_on_stays_as_it_was_seen_last() -> None:
    node = Node(with_afu(NLB0), card(1))
    first = node.scan()
    thread = node.work(node.cards[0].address)
    node.cards = (with_afu(""), replace(card(1), ports=()))
    during = node.scan()
    assert during[0] == first[0]
    assert during[1] == node.cards[1]
    node.release.set()
    thread.join()
    node.cards = (with_afu(NLB3), card(1))
    assert node.scan() == node.cards


def test_ports_on_virtual_functions_stay_with_their_physical_one() -> None:
    physical = card(0)
    split = virtual(physical, 1, port("dfl-port.7", NLB0))
    node = Node(physical, split)
    first = node.scan()
    thread = node.work(physical.address)
    node.cards = (physical, replace(split, ports=()))
    assert node.scan() == first
    node.release.set()
    thread.join()


def test_a_card_that_hangs_in_its_driver_is_unhealthy_until_it_comes_back() -> None:
    node = Node(with_afu(NLB0))
    node.scan()
    node.work(node.cards[0].address, seconds=1).join()
    failure = node.scan()[0].failure
    assert failure is not None
    assert failure.reason == HUNG_IN_DRIVER
    assert "given up" in failure.message
    node.release.set()
    eventually(lambda: not node.threads.busy)
    assert node.scan()[0].failure is None


def test_a_card_that_the_mode_before_still_works_on_is_not_offered() -> None:
    node = Node(with_afu(NLB0))
    thread = node.work(node.cards[0].address)
    for _ in range(2):
        failure = node.scan()[0].failure
        assert failure is not None
        assert failure.reason == HUNG_IN_DRIVER
    node.release.set()
    thread.join()
    assert node.scan() == node.cards
