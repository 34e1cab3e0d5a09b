"""Reads the cards' sensors beside discovery: for metrics, and to check the configured limits."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NoReturn

import structlog

from services.devices.hardware.sensor_reader import SENSORS_HUNG, SensorReader
from services.devices.limits import Limits, limit_problems
from services.devices.model import Card, Inventory, Problem
from services.devices.sensors import CardSensors
from services.node.state import NodeState
from services.process.due import Due
from services.process.errors import HardwareError
from services.process.outage import Outage

START_SECONDS: Final = 1.0
"""Before the first read, where no limit depends on it: registering comes first."""

SPACING_SECONDS: Final = 2.0
"""Between two reads at least, however often cards come and go."""

HUNG_SECONDS: Final = 4.0
"""Between two reads while sensors don't answer: slow or hanging, the next read shows it."""

log = structlog.get_logger(component="node")


class Sensing:
    """Reads sensors in the background, every `interval` seconds."""

    def __init__(
        self,
        reader: SensorReader,
        *,
        limits: Limits,
        interval: float,
        request_rescan: Callable[[], None],
    ) -> None:
        self._reader = reader
        self._limits = limits
        self._interval = interval
        self._request_rescan = request_rescan
        self._cards: tuple[Card, ...] = ()
        self._read: tuple[tuple[str, str], ...] = ()
        self._due = Due()
        self._readings: tuple[CardSensors, ...] = ()
        self._over: Mapping[str, Problem] = {}
        self._outage = Outage(log, "sensors can't be read", "sensors can be read again")
        self._are_silent = False
        """Whether the sensors of a card didn't answer last."""

    @property
    def readings(self) -> tuple[CardSensors, ...]:
        """The last values of the sensors of the present cards."""
        here = {_key(card) for card in self._cards}
        return tuple(each for each in self._readings if (each.card, each.address) in here)

    @property
    def hanging(self) -> int:
        """How many cards' sensors hang now."""
        return len(self._reader.hanging)

    def on_scan(self, state: NodeState) -> None:
        """Read soon if cards have come or gone."""
        self._cards = state.inventory.cards if state.inventory else ()
        if self._read != tuple(map(_key, self._cards)):
            self._due.request()

    def problems(self, _inventory: Inventory) -> Mapping[str, Problem]:
        """The problems of cards that exceed limits or hang, by card."""
        return self._over

    async def read_forever(self) -> NoReturn:
        """Read until cancelled."""
        if not self._limits.measure:
            await asyncio.sleep(min(START_SECONDS, self._interval))
        spacing = min(SPACING_SECONDS, self._interval)
        await self._due.run_forever(self.run_once, interval=self._pause, spacing=spacing)

    def _pause(self) -> float:
        return min(self._interval, HUNG_SECONDS) if self._are_silent else self._interval

    async def run_once(self) -> None:
        """Read all cards once."""
        cards = self._cards
        self._read = tuple(map(_key, cards))
        before = frozenset(self._reader.hanging)
        try:
            readings = await self._reader.read(cards)
        except HardwareError as error:
            self._update((), [str(error)], {})
            return
        hung = {
            each.card: each.problem
            for each in readings
            if each.problem is not None and each.problem.reason == SENSORS_HUNG
        }
        self._are_silent = bool(hung)
        # A board's controller answers slowly at times, so only the second round that hangs makes
        # its card unhealthy. A limit that was exceeded stays so meanwhile.
        held = {
            card: self._over.get(card, problem)
            for card, problem in hung.items()
            if card in self._over or card in before
        }
        self._update(readings, [problem.message for problem in hung.values()], held)

    def _update(
        self,
        readings: tuple[CardSensors, ...],
        errors: Iterable[str],
        held: Mapping[str, Problem],
    ) -> None:
        self._outage.update("; ".join(errors))
        self._readings = readings
        over = {**limit_problems(readings, self._limits, self._over), **held}
        if over != self._over:
            self._over = over
            self._request_rescan()


def _key(card: Card) -> tuple[str, str]:
    return card.name, card.address
