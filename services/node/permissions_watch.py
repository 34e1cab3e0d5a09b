"""Logs which permissions are missing: each once, when it goes missing and when it is back."""

import asyncio
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import structlog
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.devices.model import Inventory, PluginMode
from services.node.permissions import Missing, Needs, missing
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError

CHECK_SECONDS: Final = 60.0
"""Between two checks: a kubelet that restarts makes new sockets, and people repair permissions."""

FIRST_SECONDS: Final = 1.0
"""Between two checks until the cards are known."""

DEADLINE_SECONDS: Final = 10.0

log = structlog.get_logger(room="plugin")


class PermissionWatch(Collector):
    """Checks now and then what this process may not do, and shows it as a metric."""

    def __init__(
        self,
        needs: Needs,
        *,
        calls: BlockingCalls,
        state: NodeState,
        check_seconds: float = CHECK_SECONDS,
    ) -> None:
        self.missing: tuple[Missing, ...] = ()
        """What was missing at the last check."""
        self._needs = needs
        self._calls = calls
        self._state = state
        self._check_seconds = check_seconds

    async def check_forever(self, mode: PluginMode) -> None:
        """Checks in the background, until cancelled."""
        self._needs = replace(self._needs, mode=mode)
        while True:
            await self.run_once()
            seconds = self._check_seconds if self._state.inventory else FIRST_SECONDS
            await asyncio.sleep(min(seconds, self._check_seconds))

    async def run_once(self) -> None:
        """Checks once."""
        inventory = self._state.inventory or Inventory()
        try:
            found = await self._calls.run(
                "permissions",
                lambda: missing(self._needs, inventory),
                timeout=DEADLINE_SECONDS,
                what="checking which permissions are missing",
            )
        except HardwareError as error:
            log.debug("permissions not checked", reason=str(error))
            return
        self._log_changes(found)
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

    def _log_changes(self, found: Iterable[Missing]) -> None:
        before = {(each.path, each.permission): each for each in self.missing}
        for each in found:
            if before.pop((each.path, each.permission), None) is None:
                log.warning(
                    "permission missing",
                    path=each.path,
                    permission=each.permission,
                    loss=each.loss,
                    remedy=each.remedy,
                    uid=os.geteuid(),
                    gid=os.getegid(),
                )
        for each in before.values():
            log.info("permission no longer missing", path=each.path, permission=each.permission)
