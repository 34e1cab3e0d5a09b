"""Where `accelbind devices` looks: at the running plugin, or at the node's files.

The plugin knows best: its mode, what it has told the kubelet, what devices were before they broke.
It answers at `/devices` on its plain port. If none answers there (it is dead, or elsewhere), the
same is read from where the plugin would read it: the cards below the root, the kubelet's files and
its PodResources.
"""

import asyncio
import contextlib
from collections.abc import Collection, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Final, Self

import msgspec

from accelbind.plain_port import NoAnswer, ask, reachable
from plugin.settings import PluginSettings
from services.containers.holder_source import HolderSource
from services.devices.hardware.scan import Scanner
from services.devices.hardware.sensor_reader import SensorReader
from services.devices.limits import (
    Limits,
    apply_limits,
    limit_problems,
    parse_ignored,
    sensors_over,
)
from services.devices.model import Inventory, PluginMode
from services.devices.resources import OfferMemory, advertise
from services.kubelet.sockets import plugins_folder
from services.mappings.model import Mapping
from services.node.device_names import with_names
from services.node.devices_answer import without_denied
from services.node.offer import MAX_BYTES, decode
from services.node.offer_memory import FILE
from services.node.permissions import Needs, missing
from services.node.table import Table, rows
from services.process.blocking import BlockingCalls
from services.process.errors import WorldError
from services.process.text import plain

ANSWER_SECONDS: Final = 4.0
"""For the plugin, which itself asks the kubelet for at most two."""

_COMPARED: Final = ("root", "kubelet_dir", "mode")
"""What was asked for and a plugin may serve otherwise."""

FILES: Final = "files"
"""The source of a table that was read without a plugin."""


class NoPlugin(WorldError):
    """No plugin answers that serves what was asked for."""


class Devices:
    """Gives the devices of a node, as often as asked.

    Args:
        options: As a plugin on this node has them.
        asked: Names of the options that were given on the command line.
        files: Whether to leave the plugin alone.
        mappings: Folder of mappings, for logical names.
    """

    def __init__(
        self,
        options: PluginSettings,
        *,
        asked: Collection[str] = (),
        files: bool = False,
        mappings: Path | None = None,
    ) -> None:
        self._options = options
        self._asked = asked
        self._files = files
        self._mappings = mappings
        self._scanner = Scanner(options.root)
        self._sensors = SensorReader(options.root)
        self._memory: OfferMemory | None = None
        self._calls = BlockingCalls()
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    def look(self) -> Table:
        """The devices now.

        Raises:
            WorldError: The folder of mappings can't be read, or the system gives no thread.
        """
        table = self._from_files("") if self._files else self._from_plugin_or_files()
        return with_names(table, self._names()) if self._mappings else table

    def _from_plugin_or_files(self) -> Table:
        try:
            return self._from_plugin()
        except NoPlugin as error:
            return self._from_files(
                f"{error}; so this was read from the files, and health is as it is at this moment"
            )

    def _from_plugin(self) -> Table:
        """As the plugin has them.

        Raises:
            NoPlugin: None answers, or it serves something else than was asked for.
        """
        options = self._options
        host = reachable(options.metrics_host)
        where = f"{host}:{options.metrics_port}"
        status, text = _get(host, options.metrics_port, where)
        try:
            table = msgspec.json.decode(text, type=Table)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise NoPlugin(f"what answers on {where} is no plugin ({status})") from error
        if status != HTTPStatus.OK:
            why = "; ".join(plain(each, 300) for each in table.problems) or str(status)
            raise NoPlugin(f"the plugin on {where} has no devices yet: {why}")
        served = {"root": table.root, "kubelet_dir": table.kubelet_dir, "mode": table.mode}
        for name in _COMPARED:
            wanted = str(getattr(options, name))
            if name in self._asked and wanted != served[name]:
                shown = name.replace("_", "-")
                raise NoPlugin(f"the plugin on {where} has --{shown} {plain(served[name])}")
        return table

    def _from_files(self, note: str) -> Table:
        options = self._options
        inventory = self._inventory()
        previous = self._memory or self._recalled()
        tree = advertise(inventory, options.mode, units=options.units, previous=previous)
        self._memory = tree.memory
        source = HolderSource(
            kubelet_dir=options.kubelet_dir, pod_logs_dir=options.pod_logs_dir, calls=self._calls
        )
        look = self._runner.run(source.snapshot())
        needs = Needs(
            mode=options.mode,
            root=options.root,
            kubelet_dir=options.kubelet_dir,
            pod_logs_dir=options.pod_logs_dir,
            clear_errors=False,
            serve=False,
        )
        node = [problem.message for problem in inventory.problems]
        denied = map(str, missing(needs, inventory))
        return Table(
            node=options.node_name,
            mode=options.mode.value,
            root=str(options.root),
            kubelet_dir=str(options.kubelet_dir),
            source=FILES,
            devices=rows(tree, look.holders),
            problems=without_denied((*filter(None, [note]), *node, *denied), look.problems),
        )

    def _recalled(self) -> OfferMemory | None:
        """What the last plugin offered, so that what is broken is shown under what it was."""
        path = plugins_folder(self._options.kubelet_dir) / FILE
        with contextlib.suppress(OSError), path.open("rb") as file:
            return decode(file.read(MAX_BYTES + 1))
        return None

    def _inventory(self) -> Inventory:
        options = self._options
        if options.mode is PluginMode.UNITS:
            return Inventory()
        inventory = self._scanner.scan()
        limits = Limits(
            options.max_temperature, options.max_power, parse_ignored(options.ignore_errors)
        )
        sensors = self._sensors.read(inventory.cards) if limits.measure else ()
        over = limit_problems(sensors_over(sensors, limits, {}), limits)
        return apply_limits(inventory, over, limits)

    def _names(self) -> Iterator[Mapping]:
        from services.mappings.folder import load_folder  # noqa: PLC0415 - only where asked for

        if self._mappings is not None:
            index = load_folder(self._mappings).index
            for namespace in index.namespaces:
                yield from index.namespace(namespace).by_name.values()


def _get(host: str, port: int, where: str) -> tuple[int, bytes]:
    """What answers at `/devices`.

    Raises:
        NoPlugin: Nothing does, or at too great length.
    """
    try:
        return ask(host, port, "/devices", seconds=ANSWER_SECONDS)
    except NoAnswer as error:
        raise NoPlugin(f"no plugin answers on {where} ({error})") from error
