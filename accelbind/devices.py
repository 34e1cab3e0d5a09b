"""`accelbind devices`: a node's devices, their health, and who has them.

The running plugin knows best: its mode, what it sent to the kubelet, and what devices were before
they broke. It answers at `/devices` on its plain port. If it does not, the same is read from where
the plugin would read it: the cards below the root, the kubelet's files and its PodResources.
"""

import asyncio
import time
from collections.abc import Collection, Mapping
from functools import partial
from http import HTTPStatus
from itertools import chain
from pathlib import Path
from typing import Annotated, Final

import typer

from accelbind.devices_show import show
from accelbind.options import Mappings, time_option
from accelbind.output import Output, OutputFormat
from accelbind.plain_port import NoAnswer, PlainPort
from accelbind.run import Given, load_settings, require_root, with_settings
from accelbind.survey import read_folder
from dra.book import FOLDER as CLAIMS
from dra.book import ClaimBook
from plugin.permissions import missing
from plugin.settings import PluginSettings
from services.containers.holder_source import HolderSnapshot, HolderSource
from services.devices.hardware.afu_ids import AfuIds
from services.devices.hardware.scan import Scanner
from services.devices.hardware.sensor_reader import SensorReader
from services.devices.limits import limit_problems
from services.devices.model import Inventory, Problem
from services.devices.provider import Found, merge
from services.devices.types.provider import DeviceTypes
from services.node.fpga import FpgaProvider
from services.node.port_problems import port_problems
from services.node.table import Table, rows, with_names
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError
from services.process.settings import dashed
from services.process.text import plain
from services.programming.records import FOLDER, PortRecords

WHERE: Final = "Where to read from (by default the running plugin)"
FILES: Final = "files"
"""The source of a table that was read without a plugin."""
_COMPARED: Final = ("root", "kubelet_dir", "mode")
"""Settings that a running plugin may have with other values than were given."""


@with_settings(
    PluginSettings,
    {
        "metrics_host": "this machine",
        "metrics_port": "",
        "mode": "as the plugin runs, or af",
        **dict.fromkeys(("root", "kubelet_dir", "pod_logs_dir", "state_dir", "units"), ""),
        **dict.fromkeys(("device_types", "resource_domain"), ""),
    },
    group=WHERE,
)
def devices(
    *,
    output: Output = OutputFormat.TEXT,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep running, and print after each change.")
    ] = False,
    interval: Annotated[
        float, time_option("--interval", "Time between two reads of --watch.", "2s")
    ] = 2.0,
    mappings: Mappings = None,
    files: Annotated[
        bool,
        typer.Option(
            "--files",
            help="Read the cards and the kubelet's files, even if a plugin runs.",
            rich_help_panel=WHERE,
        ),
    ] = False,
    given: Given,
) -> None:
    """Show a node's devices, their health, and who has them.

    Asks the plugin that runs on this node (or in this pod). If it does not
    answer, or has another root, kubelet folder or mode than given here, reads the
    cards and the kubelet's files instead, and says so on stderr. With --device-types
    it shows what these would serve, and devices that only their driver or state
    keeps from being served (not-matched). Logical names are shown with --mappings.

    The JSON has node, mode, root, kubeletDir, source (plugin, dra or files),
    problems, and devices: each with device, resource, card, type, pciAddresses,
    numaNode, interfaceId, afuIds, names, health, reasons (reason, message),
    nodes and holders (namespace, pod, container, or claim). With --watch each document is
    one line.

    [bold]Examples[/bold]
      accelbind devices
      kubectl exec -n accelbind-system ds/accelbind-plugin -- accelbind devices
      accelbind devices --watch -o json
      accelbind devices --root ./snapshot --mode region
      accelbind devices --device-types ./types --mode none
    """
    is_given = frozenset(name for name, value in given.items() if value is not None)
    files = files or "device_types" in is_given  # a running plugin has its own
    source = DeviceSource(load_settings(PluginSettings, given), is_given, mappings, files=files)
    last = None
    while True:
        table = source.read()
        if table != last:
            show(table, as_json=output is OutputFormat.JSON, watch=watch)
            last = table
        if not watch:
            return
        time.sleep(interval)


class DeviceSource:
    """Reads a node's devices, from the running plugin or, always with `files`, from files."""

    def __init__(
        self,
        settings: PluginSettings,
        given: Collection[str],
        mappings: Path | None,
        *,
        files: bool,
    ) -> None:
        self._settings = settings
        self._given = given
        self._files = files
        self._mappings = mappings
        calls = BlockingCalls()
        self._scanner = Scanner(settings.root, calls)
        self._sensors = SensorReader(settings.root, calls)
        self._limits = settings.limits
        self._over: Mapping[str, Problem] = {}
        """The cards that are beyond a limit now."""
        self._holders = HolderSource(
            kubelet_dir=settings.kubelet_dir,
            pod_logs_dir=settings.pod_logs_dir,
            calls=calls,
            domains=settings.resource_domain if settings.device_types else (),
        )
        records = PortRecords(settings.state_dir / FOLDER)
        self._fpga = FpgaProvider(
            settings.mode,
            units=settings.units,
            scan=self._scan,
            calls=calls,
            limits=self._limits,
            problems=(
                lambda _: self._over,
                partial(port_problems, mode=settings.mode, records=records),
            ),
            holders=self._holders.current,
            afu_ids=AfuIds(settings.root, calls),
            observe_seconds=lambda _: None,
        )
        self._types: DeviceTypes | None = None
        if settings.device_types is not None:
            self._types = DeviceTypes(
                settings.device_types,
                settings.root,
                calls,
                domains=settings.resource_domain,
                holders=self._holders.current,
            )

    def read(self) -> Table:
        """The devices now."""
        try:
            table = self._from_files("") if self._files else self._from_plugin()
        except NoAnswer as error:
            table = self._from_files(f"{error}; so this is from the files, with the health of now")
        if self._mappings is None:
            return table
        index = read_folder(self._mappings).index
        mappings = (index.namespace(namespace).by_name.values() for namespace in index.namespaces)
        return with_names(table, chain.from_iterable(mappings))

    def _from_plugin(self) -> Table:
        """The table of the running plugin."""
        port = PlainPort.of(self._settings)
        try:
            status, table = port.devices()
        except NoAnswer as error:
            raise NoAnswer(f"no plugin answers on {port} ({error})") from error
        if status != HTTPStatus.OK:
            why = "; ".join(plain(each, 300) for each in table.problems) or str(status)
            raise NoAnswer(f"the plugin on {port} has no devices yet: {why}")
        for name in _COMPARED:
            value = str(getattr(table, name))
            if name in self._given and str(getattr(self._settings, name)) != value:
                raise NoAnswer(f"the plugin on {port} has --{dashed(name)} {plain(value)}")
        return table

    def _from_files(self, note: str) -> Table:
        settings = self._settings
        if settings.mode.has_cards or self._types is not None:
            require_root(settings.root)
        snapshot, found = asyncio.run(self._find())
        inventory = Inventory(found[0].cards)
        claims = ClaimBook(settings.state_dir / CLAIMS)
        denied = map(str, missing(settings, settings.mode, inventory, serves=False))
        return Table(
            node=settings.node_name,
            mode=settings.mode.value,
            root=str(settings.root),
            kubelet_dir=str(settings.kubelet_dir),
            source=FILES,
            devices=rows(merge(found, snapshot.holders), {**snapshot.holders, **claims.holders()}),
            problems=(
                *filter(None, [note]),
                *(problem.message for each in found for problem in each.problems),
                *denied,
                *snapshot.problems,
                *claims.unreadable(),
            ),
        )

    async def _find(self) -> tuple[HolderSnapshot, list[Found]]:
        """The holders, and what the providers of a plugin would find: the FPGAs first."""
        snapshot = await self._holders.snapshot()
        found = [await self._fpga.devices()]
        if self._types is not None:
            try:
                found.append(await self._types.devices())
            except HardwareError as error:
                found.append(Found(problems=(Problem("device-types-unreadable", str(error)),)))
        return snapshot, found

    async def _scan(self) -> Inventory:
        inventory = await self._scanner.scan()
        if self._limits.measure:
            self._over = limit_problems(await self._sensors.read(inventory.cards), self._limits)
        return inventory
