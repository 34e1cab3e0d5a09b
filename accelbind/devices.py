"""`accelbind devices`: a node's devices, how they are, and who has them."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """How to print."""

    TABLE = "table"
    JSON = "json"


WHERE = "Where to look (by default at the running plugin)"


def devices(
    *,
    output: Annotated[
        Format,
        typer.Option("--output", "-o", help="json: one document; with --watch, one a line."),
    ] = Format.TABLE,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Go on, and show changes until interrupted.")
    ] = False,
    interval: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.1, help="Time between two looks of --watch."),
    ] = 2.0,
    mappings: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of AcceleratorFunctions and FpgaRegions, for logical names.",
            readable=False,
        ),
    ] = None,
    metrics_host: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="The plugin's --metrics-host.",
            show_default="this machine",
            rich_help_panel=WHERE,
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="The plugin's --metrics-port.",
            show_default="9102",
            rich_help_panel=WHERE,
        ),
    ] = None,
    files: Annotated[
        bool,
        typer.Option(
            "--files",
            help="Read the cards and the kubelet's files, whether or not a plugin runs.",
            rich_help_panel=WHERE,
        ),
    ] = False,
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="MODE",
            help="As the plugin's: af, region, regiondevel, units or bdf.",
            show_default="as the plugin runs, or af",
            rich_help_panel=WHERE,
        ),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="As the plugin's.",
            show_default="/",
            readable=False,
            rich_help_panel=WHERE,
        ),
    ] = None,
    kubelet_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="As the plugin's.",
            show_default="/var/lib/kubelet",
            readable=False,
            rich_help_panel=WHERE,
        ),
    ] = None,
    pod_logs_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="As the plugin's.",
            show_default="/var/log/pods",
            readable=False,
            rich_help_panel=WHERE,
        ),
    ] = None,
    units: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="As the plugin's.", show_default="40", rich_help_panel=WHERE
        ),
    ] = None,
) -> None:
    """Show a node's devices, how they are, and who has them.

    Asks the plugin that runs on this node (or in this pod); if none answers,
    or it serves other folders or another mode than those given here, reads
    the cards and the kubelet's files. A note on stderr says so, and what
    couldn't be found out.

    The JSON has node, mode, root, kubeletDir, source (plugin or files),
    problems, and devices: each with device, resource, card, pciAddresses,
    numaNode, interfaceId, afuIds, names, health, reasons (reason, message),
    nodes and holders (namespace, pod, container).

    [bold]Examples[/bold]
      accelbind devices
      kubectl exec -n accelbind-system ds/accelbind-plugin -- accelbind devices
      accelbind devices --watch -o json
      accelbind devices --root ./snapshot --mode region
    """
    from accelbind import devices_show  # noqa: PLC0415 - only when it runs
    from accelbind.devices_source import Devices  # noqa: PLC0415 - the same
    from plugin.settings import PluginSettings  # noqa: PLC0415 - the same
    from services.process.settings import load  # noqa: PLC0415 - the same

    given = {
        "metrics_host": metrics_host,
        "metrics_port": metrics_port,
        "mode": mode,
        "root": root,
        "kubelet_dir": kubelet_dir,
        "pod_logs_dir": pod_logs_dir,
        "units": units,
    }
    options = load(PluginSettings, given).options()
    asked = frozenset(name for name, value in given.items() if value is not None)
    with Devices(options, asked=asked, files=files, mappings=mappings) as source:
        show = devices_show.shower(as_json=output is Format.JSON, watch=watch)
        if watch:
            devices_show.follow(source, show, interval)
        else:
            show(source.look())
