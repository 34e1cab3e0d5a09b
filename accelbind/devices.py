"""`accelbind devices`: a node's devices, how they are, and who has them."""

from typing import Annotated

import typer

from accelbind.options import Mappings, time_option
from accelbind.output import Format, Output
from accelbind.run import Given, load_settings, with_settings
from plugin.settings import PluginSettings

WHERE = "Where to look (by default at the running plugin)"


@with_settings(
    PluginSettings,
    {
        "metrics_host": "this machine",
        "metrics_port": "",
        "mode": "as the plugin runs, or af",
        "root": "",
        "kubelet_dir": "",
        "pod_logs_dir": "",
        "units": "",
    },
    group=WHERE,
)
def devices(
    *,
    output: Output = Format.TEXT,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep running and show changes.")
    ] = False,
    interval: Annotated[
        float, time_option("--interval", "Time between two updates of --watch.", "2s")
    ] = 2.0,
    mappings: Mappings = None,
    files: Annotated[
        bool,
        typer.Option(
            "--files",
            help="Read the cards and the kubelet's files, whether or not a plugin runs.",
            rich_help_panel=WHERE,
        ),
    ] = False,
    given: Given,
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

    asked = frozenset(name for name, value in given.items() if value is not None)
    settings = load_settings(PluginSettings, given)
    with Devices(settings, asked=asked, files=files, mappings=mappings) as source:
        show = devices_show.shower(as_json=output is Format.JSON, watch=watch)
        if watch:
            devices_show.follow(source, show, interval)
        else:
            show(source.look())
