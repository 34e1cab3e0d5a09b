"""The discovery loop: asks the providers again and again, and keeps `NodeState` up to date."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NoReturn, TypeAlias

import structlog

from services.containers.holders import Holders, held_by_pods
from services.devices.damping import Damping, Health, damp
from services.devices.model import Inventory, Problem
from services.devices.provider import Found, Provider, merge
from services.devices.resources import with_reasons
from services.node.state import NodeState, OnScan
from services.process.errors import HardwareError
from services.process.outage import Outage

FindDeviceProblems: TypeAlias = Callable[[], Awaitable[Mapping[str, Problem]]]
"""Finds what is wrong with devices apart from their hardware, by id."""

log = structlog.get_logger(component="node")


async def no_problems() -> Mapping[str, Problem]:
    """Nothing is wrong."""
    return {}


class Discovery:
    """Finds out what this node has; every `interval` seconds, or on request.

    After each scan in which a provider answered, `on_scan` are called in their order.
    """

    def __init__(
        self,
        state: NodeState,
        providers: Sequence[Provider],
        *,
        interval: float,
        damping: Damping,
        holders: Callable[[], Awaitable[Holders]],
        problems: FindDeviceProblems = no_problems,
        on_scan: Sequence[OnScan] = (),
    ) -> None:
        self._state = state
        self._providers = providers
        self._interval = interval
        self._damping = damping
        self._health = Health()
        self._found: dict[str, Found] = {}
        """What each provider found last."""
        self._holders = holders
        self._problems = problems
        self._on_scan = on_scan
        self._outage = Outage(
            log,
            "scan failed, the last known devices stay offered",
            "scans answer again",
            level="error",
        )

    async def scan_forever(self) -> NoReturn:
        """Scan until cancelled, first at once."""
        self._state.rescan.request()
        await self._state.rescan.run_forever(self.run_once, interval=lambda: self._interval)

    async def run_once(self) -> None:
        """Scan once, update the state, and call who is interested."""
        state = self._state
        errors = [*filter(None, await asyncio.gather(*map(self._find, self._providers)))]
        holders: Holders | None = None
        try:
            holders = await self._holders()
        except HardwareError as error:
            errors.append(str(error))
        state.scan_error = "; ".join(dict.fromkeys(errors))
        self._outage.update(state.scan_error)
        if holders is None or len(errors) == len(self._providers):
            return
        # Of a provider that failed, what it found before stays.
        founds = [self._found.get(each.name, Found()) for each in self._providers]
        offer = merge(founds, held_by_pods(holders))
        offer = with_reasons(offer, await self._problems())
        advertised, self._health = damp(offer, self._health, self._damping, now=time.monotonic())
        if advertised != state.advertised:
            state.advertised = advertised
        state.inventory = Inventory(
            tuple(card for found in founds for card in found.cards),
            tuple(problem for found in founds for problem in found.problems),
        )
        state.scanned.set()
        for on_scan in self._on_scan:
            on_scan(state)

    async def _find(self, provider: Provider) -> str:
        """Ask a provider; return why it failed, or nothing."""
        try:
            self._found[provider.name] = await provider.devices()
        except HardwareError as error:
            return str(error)
        return ""
