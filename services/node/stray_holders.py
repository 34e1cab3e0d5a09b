"""Finds ports that a process holds although no pod has them: their devices become unhealthy.

A pod can pass an open port to another pod over a shared volume. In mode region such a port cannot
be programmed, and in mode af two pods would share it. The driver knows: it refuses to open a port
exclusively (O_EXCL) that is open already.

The check never disturbs a legitimate start. It locks the cards first, then asks the kubelet which
containers have devices, and only opens ports without a holder, for an instant.
`PreStartContainer` of mode region waits for the lock. A port counts as held when it was busy twice
in a row, and as free once it can be opened or a container has it. Closing a port resets it, which
harms no function that nobody uses. A process that may not open device nodes (it is not privileged)
finds nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from services.containers.holders import Holders
from services.devices.model import Card, Inventory, Port, Problem
from services.devices.port_owners import free_ports, held_problems, lock_of
from services.process.blocking import BlockingCalls
from services.process.deadline import deadline
from services.process.errors import AccelbindError, DeviceBusy, HardwareError, KubeletError
from services.programming.ioctls import KERNEL, DriverCalls
from services.programming.lock import card_lock
from services.programming.port import PortPlace
from services.programming.port_session import held_by

INTERVAL_SECONDS: Final = 30.0
"""Between two rounds while nothing is held."""

SOON_SECONDS: Final = 5.0
"""Between two rounds while something is."""

ANSWER_SECONDS: Final = 2.0
"""For the kubelet to say which containers have devices: the cards are locked meanwhile."""

OPEN_SECONDS: Final = 5.0
"""For opening all ports once."""

log = structlog.get_logger(component="plugin")


class StrayHolders:
    """Finds ports that are held by processes outside their pods.

    `holders` reads which containers have devices; no container is missing.
    """

    def __init__(
        self,
        root: Path,
        *,
        locks: Path,
        holders: Callable[[], Awaitable[Holders]],
        calls: BlockingCalls,
        request_rescan: Callable[[], None],
        driver_calls: DriverCalls = KERNEL,
    ) -> None:
        self._root = root
        self._driver_calls = driver_calls
        self._locks = locks
        self._holders = holders
        self._calls = calls
        self._request_rescan = request_rescan
        self._inventory = Inventory()
        self._busy: dict[str, str] = {}
        """What the driver said of the ports that were busy in the last round."""
        self._held: frozenset[str] = frozenset()
        self._error = ""

    def on_scan(self, inventory: Inventory) -> None:
        """Check the ports of these cards from now on."""
        self._inventory = inventory

    def problems(self) -> Mapping[str, Problem]:
        """The problems of the held ports, by port; in any thread."""
        return held_problems(self._held)

    async def check_forever(self) -> None:
        """Check in the background, until cancelled."""
        await asyncio.sleep(SOON_SECONDS)
        while True:
            await self.run_once()
            await asyncio.sleep(SOON_SECONDS if self._busy else INTERVAL_SECONDS)

    async def run_once(self) -> None:
        """Check once."""
        inventory, error_text = self._inventory, ""
        busy: dict[str, str] = {}
        try:
            with ExitStack() as locks:
                free = await self._free(inventory, locks)
                if free:
                    busy = await self._calls.run(
                        "open ports",
                        partial(self._open, free),
                        timeout=OPEN_SECONDS,
                        what="opening free ports",
                    )
        except AccelbindError as error:
            error_text = str(error)
        if error_text and error_text != self._error:
            log.info("ports held by processes outside pods can't be found", reason=error_text)
        self._error = error_text
        if not error_text:
            self._update_held(busy)

    async def _free(self, inventory: Inventory, locks: ExitStack) -> list[tuple[Card, Port]]:
        """The ports without a holder, of the cards that nobody works on; locks these cards."""
        locked = set()
        for key in sorted({lock_of(card) for card in inventory.cards if card.ports}):
            try:
                locks.enter_context(card_lock(self._locks, key, seconds=0.0))
            except DeviceBusy:
                continue
            locked.add(key)
        if not locked:
            return []
        slow = f"the kubelet takes more than {ANSWER_SECONDS:g} s"
        async with deadline(ANSWER_SECONDS, KubeletError(slow)):
            holders = await self._holders()
        free = free_ports(inventory, {key for _, key in holders})
        return [(card, port) for card, port in free if lock_of(card) in locked]

    def _open(self, free: list[tuple[Card, Port]]) -> dict[str, str]:
        """In a thread of its own.

        Raises:
            HardwareError: None of the ports can be opened.
        """
        busy: dict[str, str] = {}
        failures: list[HardwareError] = []
        for card, port in free:
            try:
                held = held_by(self._root, PortPlace(card, port, None), self._driver_calls)
            except HardwareError as error:
                failures.append(error)
                continue
            if held:
                busy[port.name] = held
        if len(failures) == len(free):
            raise failures[0]
        return busy

    def _update_held(self, busy: dict[str, str]) -> None:
        held = frozenset(busy) & frozenset(self._busy)
        for name in sorted(held - self._held):
            log.warning("a process outside its pod holds a port", port=name, reason=busy[name])
        for name in sorted(self._held - held):
            log.info("port no longer held by a process outside its pod", port=name)
        is_new, self._held, self._busy = held != self._held, held, busy
        if is_new:
            self._request_rescan()
