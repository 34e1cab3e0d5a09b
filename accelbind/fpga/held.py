"""Refuses to program a port that a container has."""

import asyncio
from pathlib import Path

from plugin.settings import PluginSettings
from services.containers.holder_source import HolderSource
from services.containers.holders import Holders
from services.devices.model import Inventory
from services.devices.port_owners import PortOwners
from services.kubelet.sockets import checkpoint_file
from services.process.blocking import BlockingCalls
from services.process.errors import DeviceBusy, HardwareError, KubeletError
from services.process.text import listing

_FORCE = "--force programs it all the same"


def require_free(inventory: Inventory, port: str, settings: PluginSettings) -> None:
    """Refuse a port that a container has, or may have.

    Raises:
        DeviceBusy: A container has it, or that is unknown.
    """
    try:
        holders = asyncio.run(_holders(settings))
    except (KubeletError, HardwareError) as error:
        if _is_missing(checkpoint_file(settings.kubelet_dir)):
            return  # written before a container starts: no container has had a device
        raise DeviceBusy(f"whether a container has {port} is unknown: {error}; {_FORCE}") from error
    who = sorted(
        {
            str(holder)
            for device, each in holders.items()
            for holder in each
            if port in _ports(inventory, device)
        }
    )
    if who:
        raise DeviceBusy(
            f"{port} is held by {listing(who)}: end that pod; the kubelet's checkpoint names it for"
            f" up to a minute longer, or until an accelbind plugin serves this node; {_FORCE}"
        )


def _is_missing(path: Path) -> bool:
    """Whether there is no such file; where that cannot be seen, there may be one."""
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


async def _holders(settings: PluginSettings) -> Holders:
    source = HolderSource(
        kubelet_dir=settings.kubelet_dir,
        pod_logs_dir=settings.pod_logs_dir,
        calls=BlockingCalls(),
    )
    await source.snapshot()  # has the names of the pods
    return await source.read()


def _ports(inventory: Inventory, device: tuple[str, str]) -> set[str]:
    owners = PortOwners(inventory, [device])
    return {
        port.name for card in inventory.cards for port in card.ports if owners.resources(card, port)
    }
