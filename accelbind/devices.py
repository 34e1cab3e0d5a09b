"""`accelbind devices`: the devices of a node or a cluster, their health, and who has them."""

import time
from collections.abc import Collection
from http import HTTPStatus
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import typer

from accelbind.devices_show import show
from accelbind.fleet.command import Filters, show_cluster
from accelbind.kubectl import Target, with_target
from accelbind.node_devices import NodeDevices
from accelbind.options import Mappings, switch, time_option
from accelbind.output import output_of
from accelbind.plain_port import NoAnswer, PlainPort
from accelbind.run import Given, load_settings, require_folder, with_settings
from accelbind.survey import read_folder
from plugin.dra.book import FOLDER as CLAIMS
from plugin.dra.book import ClaimBook
from plugin.settings import PluginSettings
from services.devices.hardware.sysfs import Sysfs
from services.devices.reasons import advised
from services.devices.types.discover import SysTree
from services.devices.types.load import load_types
from services.devices.types.misses import find_misses
from services.node.table import Table, rows, with_names
from services.process.errors import InvalidSettings
from services.process.settings import dashed
from services.process.text import plain

WHERE: Final = "Where to read from (by default the running plugin)"
FLEET: Final = "All nodes of a cluster"
FILES: Final = "files"
"""The source of a table that was read without a plugin."""
_COMPARED: Final = ("root", "kubelet_dir", "mode")
"""Settings that a running plugin may have with other values than were given."""
_BELOW_ROOT: Final = ("kubelet_dir", "pod_logs_dir", "state_dir")
"""Settings that are of the machine whose root is given."""


def _of_cluster(*flags: str, text: str) -> Any:  # noqa: ANN401 - as `typer.Option`
    return typer.Option(*flags, metavar="NAME", help=text, rich_help_panel=FLEET)


@with_settings(
    PluginSettings,
    *("metrics_host", "metrics_port", "mode", "root", "kubelet_dir", "pod_logs_dir", "state_dir"),
    *("units", "device_types", "resource_domain", "allow_nodes"),
    group=WHERE,
    defaults={"metrics_host": "this machine", "mode": "as the plugin runs, or af"},
)
@with_target
def devices(
    *,
    output: Annotated[
        Literal["text", "wide", "json", "yaml"],
        output_of("Output format; wide and yaml are for --cluster."),
    ] = "text",
    watch: Annotated[
        bool,
        switch("--watch", "-w", help="Keep running, and print after each change."),
    ] = False,
    interval: Annotated[
        float, time_option("--interval", "Time between two reads of --watch.", "2s")
    ] = 2.0,
    mappings: Mappings = None,
    files: Annotated[
        bool,
        switch(
            "--files",
            help="Read the cards and the kubelet's files, even if a plugin runs.",
            rich_help_panel=WHERE,
        ),
    ] = False,
    cluster: Annotated[
        bool, switch("--cluster", help="Show every node of a cluster.", rich_help_panel=FLEET)
    ] = False,
    all_devices: Annotated[
        bool, switch("--devices", help="Show each device, not a node.", rich_help_panel=FLEET)
    ] = False,
    node: Annotated[
        list[str] | None, _of_cluster("--node", text="Only this node; repeat it for more.")
    ] = None,
    resource: Annotated[
        list[str] | None,
        _of_cluster(
            "--resource",
            text="Only devices of this resource, or type of a ResourceSlice; repeat it for more.",
        ),
    ] = None,
    unhealthy: Annotated[
        bool, switch("--unhealthy", help="Only unhealthy devices.", rich_help_panel=FLEET)
    ] = False,
    namespace: Annotated[
        str, _of_cluster("--namespace", "-n", text="Only devices that its pods or claims have.")
    ] = "",
    target: Target,
    given: Given,
) -> None:
    """Show the devices of a node or a cluster, their health, and who has them.

    Asks the plugin that runs on this node (or in this pod). If it does not
    answer, or has another root, kubelet folder or mode than given here, reads the
    cards and the kubelet's files instead, and says so on stderr. With --device-types
    it shows what these would serve, and devices that only their driver or state
    keeps from being served (not-matched). Logical names are shown with --mappings.
    With --root, the kubelet's folder, /var/log/pods and the state folder are those
    below it, unless they are given.

    With --cluster it asks the process on each node through the API server, and
    shows a line per node, or with --devices per device. It needs only your own
    rights: list pods and nodes, get pods/proxy where accelbind runs; of nodes
    that do not answer, it shows what ResourceSlices and claims say. API servers
    reach the processes if the value networkPolicies.apiServers is set.

    The JSON has node, mode, root, kubeletDir, source (plugin, dra or files),
    processVersion, problems, and devices: each with device, resource, card, type,
    pciAddresses, numaNode, interfaceId, afuIds, names, health, reasons (reason,
    message), nodes and holders (namespace, pod, container, or claim). With --watch
    each document is one line. With --cluster it has problems and nodes: each with
    node, pool, pod, mode, processVersion, source, error, problems, counted (by the
    kubelet, per resource), devices, and holdersKnown.

    [bold]Examples[/bold]
      accelbind devices
      kubectl exec -n accelbind-system ds/accelbind-plugin -- accelbind devices
      accelbind devices --watch -o json
      accelbind devices --root ./snapshot --mode region
      accelbind devices --device-types ./types --mode none
      accelbind devices --cluster -o wide
      accelbind devices --cluster --devices --unhealthy
    """
    is_given = frozenset(name for name, value in given.items() if value is not None)
    filters = Filters(tuple(node or ()), tuple(resource or ()), namespace, unhealthy=unhealthy)
    if cluster:
        if is_given or watch or files or mappings:
            raise InvalidSettings(
                "--cluster excludes --watch, --mappings and the options of a node"
            )
        show_cluster(target, filters, output, devices=all_devices)
        return
    of_cluster = filters != Filters() or all_devices or target.kubeconfig or target.context
    if of_cluster or output in {"wide", "yaml"}:
        raise InvalidSettings("these options are for --cluster: see accelbind devices --help")
    files = files or "device_types" in is_given  # a running plugin has its own
    settings = load_settings(PluginSettings, given)
    if "root" in is_given:
        settings = _below_root(settings)
    source = DeviceSource(settings, is_given, mappings, files=files)
    last = None
    while True:
        table = source.read()
        if table != last:
            show(table, as_json=output == "json", watch=watch)
            last = table
        if not watch:
            return
        time.sleep(interval)


def _below_root(settings: PluginSettings) -> PluginSettings:
    """The settings with the unset folders of the node below --root: a copy has no other pods."""
    folders = {
        name: settings.root / getattr(settings, name).relative_to("/")
        for name in _BELOW_ROOT
        if name not in settings.model_fields_set
    }
    return settings.model_copy(update=folders)


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
        self._node = NodeDevices(settings)

    def read(self) -> Table:
        """The devices now."""
        # The running plugin knows best: its mode, what it sent to the kubelet, and what devices
        # were before they broke.
        try:
            table = self._from_files("") if self._files else self.from_plugin()
        except NoAnswer as error:
            table = self._from_files(f"{error}; so this is from the files, with the health of now")
        if (types := self._settings.device_types) is not None:
            misses = find_misses(SysTree(Sysfs(self._settings.root)), load_types(types).types)
            problems = (*table.problems, *misses)
            table = msgspec.structs.replace(table, problems=problems)
        if self._mappings is None:
            return table
        index = read_folder(self._mappings).index
        mappings = (index.namespace(namespace).by_name.values() for namespace in index.namespaces)
        return with_names(table, chain.from_iterable(mappings))

    def from_plugin(self) -> Table:
        """The devices of the running plugin. Raises NoAnswer if it has none for us."""
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
        if settings.mode.has_cards or settings.device_types is not None:
            require_folder(settings.root)
        if settings.device_types is not None:
            require_folder(settings.device_types, "--device-types")
        now = self._node.find()
        held, claims = now.holders.holders, ClaimBook(settings.state_dir / CLAIMS)
        return settings.table(
            settings.mode,
            FILES,
            rows(now.ledger.offer, claims.holders(held)),
            (
                *filter(None, [note, now.ledger.error]),
                *map(advised, now.inventory.problems),
                *now.holders.problems,
                *claims.unreadable(),
            ),
        )
