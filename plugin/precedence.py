"""Waiting for another plugin of ours on this node to end, and clearing up after a dead one.

The kubelet keeps the plugin that registered last for a resource, and doesn't tell the other one
that it is out. So of two plugins on a node (a rolling update that overlaps, two DaemonSets by
accident) the second one waits until the first has gone.
"""

import asyncio
from pathlib import Path
from typing import Final

import structlog

from plugin.sockets import Swept, sweep
from plugin.worker import Worker
from services.domain.errors import HardwareError

LOOK_SECONDS: Final = 0.5
"""Between two looks."""

GONE_LOOKS: Final = 6
"""Looks in a row without the other one: a restarted kubelet removes its sockets for a moment."""

SWEEP_SECONDS: Final = 10.0
"""For one look through the folder."""

log = structlog.get_logger(room="plugin")


class Precedence:
    """Finds out whether this plugin is alone on its node.

    Args:
        folder: The kubelet's folder of device plugins.
        worker: Where to look through it.
        look_seconds: Time between two looks.
    """

    def __init__(self, folder: Path, worker: Worker, *, look_seconds: float = LOOK_SECONDS) -> None:
        self.waits_for = ""
        """What is waited for; empty if nothing is."""
        self._folder = folder
        self._worker = worker
        self._look_seconds = look_seconds

    async def wait(self) -> None:
        """Waits until no other plugin serves here; says so once."""
        alive = (await self._sweep()).alive
        if not alive:
            return
        self.waits_for = "another accelbind plugin serves on this node"
        log.warning(
            "another accelbind plugin serves on this node: waiting until it ends",
            sockets=list(alive),
        )
        absent = 0
        while absent < GONE_LOOKS:
            await asyncio.sleep(self._look_seconds)
            absent = 0 if (await self._sweep()).alive else absent + 1
        log.info("the other plugin has ended")
        self.waits_for = ""

    async def _sweep(self) -> Swept:
        folder = self._folder
        try:
            swept = await self._worker.run(
                lambda: sweep(folder), seconds=SWEEP_SECONDS, what=f"looking through {folder}"
            )
        except HardwareError as error:
            log.warning("sockets of a predecessor were not removed", reason=str(error))
            return Swept()
        if swept.removed:
            log.info("sockets of a predecessor removed", sockets=list(swept.removed))
        return swept
