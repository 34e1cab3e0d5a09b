"""Saying which permissions are missing: each once, when it is, and when it no longer is."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

import structlog
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.devices.model import Inventory, PluginMode
from services.node.permissions import Missing, Needs, missing
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError

LOOK_SECONDS: Final = 60.0
"""Between two looks: the kubelet makes its sockets anew, and people mend what they are told."""

DEADLINE_SECONDS: Final = 10.0

log = structlog.get_logger(room="plugin")


class AccessWatch(Collector):
    """Looks now and then at what this process may do; a collector of what it may not.

    Args:
        needs: What is needed.
        calls: Makes the calls that may hang.
        inventory: Gives what the last scan found.
        look_seconds: Between two looks.
    """

    def __init__(
        self,
        needs: Needs,
        *,
        calls: BlockingCalls,
        inventory: Callable[[], Inventory | None],
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self.missing: tuple[Missing, ...] = ()
        """What was missing at the last look."""
        self._needs = needs
        self._clears = needs.clear_errors
        self._calls = calls
        self._inventory = inventory
        self._look_seconds = look_seconds
        self._cards: frozenset[str] = frozenset()
        self._due = asyncio.Event()

    def notice(self, inventory: Inventory) -> None:
        """Takes what a scan found; new cards call for a look.

        Args:
            inventory: What the scan found.
        """
        cards = frozenset(card.name for card in inventory.cards)
        if not cards <= self._cards:
            self._due.set()
        self._cards = cards

    async def run(self, mode: PluginMode) -> None:
        """Looks until cancelled.

        Args:
            mode: The node's, as of now.
        """
        clears = self._clears and mode is not PluginMode.UNITS
        self._needs = replace(self._needs, mode=mode, clear_errors=clears)
        self._due.set()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._look_seconds):
                    await self._due.wait()
            self._due.clear()
            await self.run_once()

    async def run_once(self) -> None:
        """One look."""
        inventory = self._inventory() or Inventory()
        try:
            found = await self._calls.run(
                "permissions",
                lambda: missing(self._needs, inventory),
                timeout=DEADLINE_SECONDS,
                what="looking which permissions are missing",
            )
        except HardwareError as error:
            log.debug("permissions not looked at", reason=str(error))
            return
        self._say(found)
        self.missing = found

    def collect(self) -> Iterable[Metric]:
        """One family: what is missing."""
        family = GaugeMetricFamily(
            "accelbind_permission_missing",
            "Permissions that the plugin needs on its node and hasn't; always 1.",
            labels=("path", "permission"),
        )
        for each in self.missing:
            family.add_metric((each.path, each.permission), 1)
        yield family

    def _say(self, found: Iterable[Missing]) -> None:
        before = {(each.path, each.permission): each for each in self.missing}
        for each in found:
            if before.pop((each.path, each.permission), None) is None:
                log.warning(
                    "permission missing",
                    path=each.path,
                    permission=each.permission,
                    loss=each.loss,
                    remedy=each.remedy,
                    uid=each.uid,
                    gid=each.gid,
                )
        for each in before.values():
            log.info("permission no longer missing", path=each.path, permission=each.permission)
