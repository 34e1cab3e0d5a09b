"""What people can see of a node's devices: metrics, the `/devices` answer, limits that they set.

Everything here looks on: discovery and the kubelet's calls go on without it. One object, so that
the plugin has one thing to feed with scans and one set of tasks to run.
"""

from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any

from plugin.device_metrics import Known
from plugin.metrics import PluginMetrics
from plugin.settings import PluginSettings, Programming
from plugin.strays import StrayHolders
from services.containers.holder_cache import HolderCache
from services.containers.holder_source import HolderSource
from services.devices.hardware.sensor_reader import SensorReader
from services.devices.limits import Limits, parse_ignored
from services.devices.model import Inventory, PluginMode
from services.node.discovery import Discovery
from services.node.permissions import Needs
from services.node.permissions_watch import AccessWatch
from services.node.sensing import Sensing
from services.node.view import DeviceView
from services.process.blocking import BlockingCalls
from services.process.http import Route
from services.programming.lock import LOCKS


class Insight:
    """Looks on.

    Args:
        options: What the process has to know.
        discovery: Gives what looks at the cards as of now.
        metrics: Where to show it.
        reads: Gives the number of scans' reads that hang now.
        calls: Makes the calls that may hang.
        source: Reads which containers have devices.
    """

    def __init__(
        self,
        options: PluginSettings,
        *,
        discovery: Callable[[], Discovery],
        metrics: PluginMetrics,
        reads: Callable[[], int],
        calls: BlockingCalls,
        source: HolderSource,
    ) -> None:
        self._options = options
        self._discovery = discovery
        self._sensing = Sensing(
            SensorReader(options.root),
            limits=Limits(
                options.max_temperature, options.max_power, parse_ignored(options.ignore_errors)
            ),
            interval=options.sensor_interval,
            calls=calls,
            look_now=lambda: discovery().look_now(),
        )
        self._holding = HolderCache(source, options.kubelet_dir)
        self._strays = StrayHolders(
            options.root,
            locks=options.state_dir / LOCKS,
            holders=source.read,
            calls=calls,
            look_now=lambda: discovery().look_now(),
        )
        self._view = DeviceView(
            node=options.node_name,
            root=options.root,
            kubelet_dir=options.kubelet_dir,
            tree=lambda: discovery().tree,
            problems=lambda: tuple(self._problems()),
            ready=lambda: discovery().inventory is not None,
            holding=self._holding,
        )
        known = Known(
            tree=lambda: discovery().tree,
            holders=lambda: self._holding.holders,
            cards=lambda: self._sensing.cards,
            sensors=lambda: self._sensing.found,
        )
        programs = options.programming is not Programming.NONE
        self._access = AccessWatch(
            Needs(
                mode=options.mode,
                root=options.root,
                kubelet_dir=options.kubelet_dir,
                pod_logs_dir=options.pod_logs_dir,
                cdi_dir=options.cdi_dir,
                clear_errors=options.clear_errors,
                state_dir=options.state_dir if programs else None,
                bitstreams=options.bitstreams,
            ),
            calls=calls,
            inventory=lambda: discovery().inventory,
        )
        metrics.show(self._access)
        metrics.watch(known, reads=reads, sensors=lambda: self._sensing.hanging)

    @property
    def routes(self) -> Mapping[str, Route]:
        """What it answers on the plain port, by path."""
        return {"/devices": self._view.answer}

    def judged(self, inventory: Inventory) -> Inventory:
        """What a scan found with the limits laid over it; in discovery's thread."""
        return self._strays.judged(self._sensing.judged(inventory))

    def take(self, inventory: Inventory | None) -> None:
        """Takes what a scan found.

        Args:
            inventory: What the scan found; None if there was none.
        """
        self._holding.check_checkpoint()
        if inventory is not None:
            self._sensing.take(inventory)
            self._strays.take(inventory)
            self._access.notice(inventory)

    def tasks(self, mode: PluginMode) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """What has to run beside discovery, by name.

        Args:
            mode: The node's.
        """
        yield "access", self._access.run(mode)
        yield "holders", self._holding.refresh_forever()
        if mode is not PluginMode.UNITS:
            yield "sensors", self._sensing.run()
            yield "strays", self._strays.run()

    def _problems(self) -> Iterator[str]:
        discovery = self._discovery()
        if discovery.trouble:
            yield discovery.trouble
        if discovery.inventory is None:
            yield "the first scan is under way"
        else:
            yield from (problem.message for problem in discovery.inventory.problems)
        yield from map(str, self._access.missing)
