"""What watches the node beside discovery, whatever its mode: sensors, stray holders, permissions.

Discovery and the kubelet's calls go on without these observers. Each gets what a scan found, and
some mark the cards of the next one.
"""

from collections.abc import Coroutine, Iterator
from typing import Any

from plugin.settings import PluginSettings, Programming
from services.containers.holder_cache import HolderCache
from services.containers.holder_source import HolderSource
from services.devices.hardware.sensor_reader import SensorReader
from services.devices.limits import Limits, parse_ignored
from services.devices.model import Inventory, PluginMode
from services.node.permissions import Needs
from services.node.permissions_watch import PermissionWatch
from services.node.sensing import Sensing
from services.node.state import NodeState
from services.node.stray_holders import StrayHolders
from services.process.blocking import BlockingCalls
from services.programming.ioctls import KERNEL, DriverCalls
from services.programming.lock import LOCKS


class NodeObservers:
    """The observers of a node.

    Args:
        settings: The plugin's settings.
        state: The node's state.
        calls: Makes the calls that may hang.
        driver_calls: Makes the ioctls of the cards' drivers.
    """

    def __init__(
        self,
        settings: PluginSettings,
        state: NodeState,
        calls: BlockingCalls,
        driver_calls: DriverCalls = KERNEL,
    ) -> None:
        self.holder_source = HolderSource(
            kubelet_dir=settings.kubelet_dir, pod_logs_dir=settings.pod_logs_dir, calls=calls
        )
        self.holders = HolderCache(self.holder_source, settings.kubelet_dir)
        self.sensing = Sensing(
            SensorReader(settings.root),
            limits=Limits(
                settings.max_temperature, settings.max_power, parse_ignored(settings.ignore_errors)
            ),
            interval=settings.sensor_interval,
            calls=calls,
            request_rescan=state.request_rescan,
        )
        self.stray_holders = StrayHolders(
            settings.root,
            locks=settings.state_dir / LOCKS,
            holders=self.holder_source.read,
            calls=calls,
            request_rescan=state.request_rescan,
            driver_calls=driver_calls,
        )
        self.permissions = PermissionWatch(_needs(settings), calls=calls, state=state)

    def mark(self, inventory: Inventory) -> Inventory:
        """Marks the cards of a scan by what the observers know; in discovery's thread."""
        return self.stray_holders.mark_held(self.sensing.mark_exceeded(inventory))

    def on_scan(self, inventory: Inventory) -> None:
        """Observes these cards from now on."""
        self.sensing.on_scan(inventory)
        self.stray_holders.on_scan(inventory)

    def tasks(self, mode: PluginMode) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """What has to run while a mode is served, by name."""
        yield "permissions", self.permissions.check_forever(mode)
        yield "holders", self.holders.refresh_forever()
        if mode is not PluginMode.UNITS:
            yield "sensors", self.sensing.read_forever()
            yield "stray holders", self.stray_holders.check_forever()


def _needs(settings: PluginSettings) -> Needs:
    programs = settings.programming is not Programming.NONE
    return Needs(
        mode=settings.mode,
        root=settings.root,
        kubelet_dir=settings.kubelet_dir,
        pod_logs_dir=settings.pod_logs_dir,
        cdi_dir=settings.cdi_dir,
        clear_errors=settings.clear_errors,
        state_dir=settings.state_dir if programs else None,
        bitstreams=settings.bitstreams,
    )
