"""Which AFUs are behind the virtual functions of a node's OFS cards, as commands read it."""

import asyncio

from plugin.settings import PluginSettings
from services.containers.holder_source import HolderSource
from services.devices.hardware.afu_ids import AfuIds
from services.devices.hardware.scan import scan
from services.devices.model import Inventory, PluginMode
from services.devices.port_owners import held_functions
from services.process.blocking import BlockingCalls


def scan_with_functions(settings: PluginSettings, mode: PluginMode) -> Inventory:
    """Every card of a node, read once; functions that containers have are not read."""
    inventory = scan(settings.root)
    if mode is not PluginMode.AF or not any(card.functions for card in inventory.cards):
        return inventory
    return asyncio.run(_identified(inventory, settings))


async def _identified(inventory: Inventory, settings: PluginSettings) -> Inventory:
    calls = BlockingCalls()
    source = HolderSource(
        kubelet_dir=settings.kubelet_dir, pod_logs_dir=settings.pod_logs_dir, calls=calls
    )
    held = held_functions(inventory, (await source.snapshot()).holders)
    return await AfuIds(settings.root, calls).identify(inventory, held)
