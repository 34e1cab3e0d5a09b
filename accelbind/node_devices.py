"""What a node has, found as a plugin with these settings would find it."""

import asyncio
from dataclasses import dataclass
from functools import partial

from plugin.settings import PluginSettings
from services.containers.holder_source import HolderSnapshot, HolderSource
from services.devices.hardware.scan import Scanner
from services.devices.model import Inventory, Problem
from services.devices.provider import Found
from services.node.port_problems import port_problems
from services.node.service import make_providers
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError
from services.programming.records import FOLDER, PortRecords


@dataclass(frozen=True, slots=True)
class FoundDevices:
    """What a node has at one moment."""

    holders: HolderSnapshot
    found: tuple[Found, ...]
    """What each provider found: FPGAs first, then device types, if there are any."""

    @property
    def inventory(self) -> Inventory:
        """The cards, and what is wrong with all of them."""
        return Inventory(self.found[0].cards, self.found[0].problems)


class NodeDevices:
    """Finds the devices of a node, as often as it is asked."""

    def __init__(self, settings: PluginSettings) -> None:
        calls = BlockingCalls()
        scanner = Scanner(settings.root, calls)
        self._holders = HolderSource(
            kubelet_dir=settings.kubelet_dir,
            pod_logs_dir=settings.pod_logs_dir,
            calls=calls,
            domains=settings.resource_domain if settings.device_types else (),
        )
        records = PortRecords(settings.state_dir / FOLDER)
        self._providers = make_providers(
            settings,
            settings.mode,
            units=settings.units,
            scan=scanner.scan,
            calls=calls,
            problems=(partial(port_problems, mode=settings.mode, records=records),),
            holders=self._holders.current,
        )

    def find(self) -> FoundDevices:
        """The devices now.

        Raises:
            HardwareError: Nothing can be found out about the cards.
        """
        return asyncio.run(self._find())

    async def _find(self) -> FoundDevices:
        holders = await self._holders.snapshot()
        fpga, *others = self._providers
        by_provider = [await fpga.devices()]
        for each in others:
            try:
                by_provider.append(await each.devices())
            except HardwareError as error:  # of device types alone: the cards are known
                by_provider.append(
                    Found(problems=(Problem("device-types-unreadable", str(error)),))
                )
        return FoundDevices(holders, tuple(by_provider))
