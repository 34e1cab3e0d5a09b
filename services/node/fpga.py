"""The provider of FPGAs: reads the cards, and makes devices of them as the node's mode says."""

from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter

from services.containers.holders import Holders
from services.devices.hardware.events import FPGA_SUBSYSTEMS
from services.devices.model import Device, Inventory, PluginMode
from services.devices.port_owners import with_held_ports
from services.devices.provider import Found
from services.devices.resources import OfferMemory, advertise
from services.node.card_reader import CardReader


class FpgaProvider:
    """Finds the devices of a node's cards in one mode.

    `holders` returns which containers have devices.
    """

    name = "fpga"
    subsystems = FPGA_SUBSYSTEMS

    def __init__(
        self,
        mode: PluginMode,
        *,
        units: int,
        cards: CardReader,
        holders: Callable[[], Awaitable[Holders]],
        observe_seconds: Callable[[float], None],
    ) -> None:
        self._mode = mode
        self._units = units
        self._cards = cards
        self._holders = holders
        self._observe_seconds = observe_seconds
        self._memory: OfferMemory | None = None

    async def devices(
        self,
        previous: Mapping[str, Device],  # noqa: ARG002 - remembers its own, by their places
    ) -> Found:
        """As `Provider` says."""
        inventory = await self._inventory()
        offer = advertise(inventory, self._mode, units=self._units, previous=self._memory)
        self._memory = offer.memory
        offer = with_held_ports(offer, inventory, await self._holders())
        devices = (*offer.devices(), *offer.not_offered)
        return Found(devices, inventory.problems, inventory.cards)

    async def _inventory(self) -> Inventory:
        if not self._mode.has_cards:
            return Inventory()
        started = perf_counter()
        inventory = await self._cards.read()
        self._observe_seconds(perf_counter() - started)
        return inventory
