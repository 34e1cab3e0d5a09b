"""`accelbind devices`: the devices of a node or a cluster, their health, and who has them."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import typer

from accelbind.cluster import Target, with_target
from accelbind.devices import show
from accelbind.devices.fleet import Fleet, Progress, read_fleet
from accelbind.devices.source import DeviceSource
from accelbind.flags import (
    Given,
    Mappings,
    load_settings,
    parse_namespace,
    switch,
    time_option,
    with_settings,
)
from accelbind.manifests import yaml_text
from accelbind.mappings import read_folder
from accelbind.output import output_of, print_json, print_lines, versioned, warn
from plugin.settings import PluginSettings
from services.kubelet.values import HEALTHY
from services.node.table import Row, Table, with_names
from services.process.errors import InvalidSettings
from services.process.text import listing, plain

WHERE: Final = "Where to read from (by default the running plugin)"
FLEET: Final = "All nodes of a cluster"
PATIENCE: Final = 2.0
"""Seconds after which a terminal shows a progress bar."""
_BELOW_ROOT: Final = ("kubelet_dir", "pod_logs_dir", "state_dir")
"""Settings that are of the machine whose root is given."""


@dataclass(frozen=True, slots=True)
class Filters:
    """The devices that are wanted; empty ones want all."""

    nodes: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    """Full names, or what is behind the slash; types, where only slices are read."""
    namespace: str = ""
    """That of a pod or claim that has the device."""
    unhealthy: bool = False

    def of(self, fleet: Fleet) -> Fleet:
        """The fleet with the devices that are wanted, and the nodes of which that is unknown."""
        if not (self.resources or self.namespace or self.unhealthy):
            return fleet
        nodes = (
            msgspec.structs.replace(each, devices=tuple(filter(self._is_wanted, each.devices)))
            for each in fleet.nodes
        )
        return Fleet(tuple(each for each in nodes if each.devices or each.error), fleet.problems)

    def _is_wanted(self, row: Row) -> bool:
        # A slice doesn't say by which resource its devices can be requested, if any.
        names = {row.resource, row.resource.partition("/")[2]} if row.resource else {row.type}
        return (
            (not self.resources or not names.isdisjoint(self.resources))
            and (not self.unhealthy or row.health != HEALTHY)
            and (not self.namespace or any(self.namespace == it.namespace for it in row.holders))
        )


def _of_cluster(*flags: str, text: str, parser: Callable[[str], str] | None = None) -> Any:  # noqa: ANN401 - as `typer.Option`
    return typer.Option(*flags, metavar="NAME", help=text, parser=parser, rich_help_panel=FLEET)


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
        bool, switch("--watch", "-w", help="Keep running, and print after each change.")
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
        str | None,
        _of_cluster(
            "--namespace",
            "-n",
            text="Only devices that its pods or claims have.",
            parser=parse_namespace,
        ),
    ] = None,
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
    message), nodes and holders (namespace, pod, container, or claim and share). With
    --watch each document is one line. With --cluster it has problems and nodes: each with
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
    given_names = frozenset(name for name, value in given.items() if value is not None)
    filters = Filters(
        tuple(node or ()), tuple(resource or ()), namespace or "", unhealthy=unhealthy
    )
    if cluster:
        if given_names or watch or files or mappings:
            raise InvalidSettings(
                "--cluster excludes --watch, --mappings and the options of a node"
            )
        _show_fleet(target, filters, output, devices=all_devices)
        return
    of_cluster = {
        "--node": node,
        "--resource": resource,
        "--namespace": namespace,
        "--unhealthy": unhealthy,
        "--devices": all_devices,
        "--kubeconfig": target.kubeconfig,
        "--context": target.context,
        f"--output {output}": output in {"wide", "yaml"},
    }
    if named := [name for name, value in of_cluster.items() if value]:
        raise InvalidSettings(f"{listing(named)} can only be used with --cluster")
    files = files or "device_types" in given_names  # a running plugin has its own
    settings = load_settings(PluginSettings, given)
    if "root" in given_names:
        settings = _below_root(settings)
    source = DeviceSource(settings, given_names, files=files)
    last = None
    while True:
        table = _named(source.read(), mappings)
        if table != last:
            show.print_table(table, as_json=output == "json", watch=watch)
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


def _named(table: Table, mappings: Path | None) -> Table:
    """The devices with the logical names that a folder of mappings gives them."""
    if mappings is None:
        return table
    index = read_folder(mappings).index
    named = (index.namespace(namespace).by_name.values() for namespace in index.namespaces)
    return with_names(table, chain.from_iterable(named))


def _show_fleet(target: Target, filters: Filters, output: str, *, devices: bool) -> None:
    """Print the nodes of a cluster, or their devices.

    Raises:
        ClusterError: There is no cluster, or it does not answer.
    """
    with progress_bar() as progress:
        fleet = target.query(lambda client: read_fleet(client, filters.nodes, progress))
    shown = filters.of(fleet)
    document = msgspec.to_builtins(shown)
    match output:
        case "json":
            print_json(document)
        case "yaml":
            typer.echo(yaml_text(versioned(document)), nl=False)
        case _:
            lines = show.device_lines if devices else show.node_lines
            print_lines(lines(shown, wide=output == "wide"))
    for problem in shown.problems:
        warn(plain(problem, 600))


@contextlib.contextmanager
def progress_bar() -> Iterator[Progress]:
    """A bar on a terminal, once it has taken a while."""
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        bars: list[Any] = []  # Typer does not name the type

        def step(done: int, of: int) -> None:
            if not bars and sys.stderr.isatty() and time.monotonic() - started > PATIENCE:
                bar = typer.progressbar(length=of, label="asking nodes", file=sys.stderr)
                bars.append(stack.enter_context(bar))
            for bar in bars:
                bar.update(done - bar.pos)

        yield step
