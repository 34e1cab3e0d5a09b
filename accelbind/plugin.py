"""`accelbind plugin`: serve this node's cards to its kubelet."""

from pathlib import Path
from typing import Annotated

import typer

KUBELET = "Kubelet and cluster"
CARDS = "Cards"
PROGRAMMING = "Programming"
PROCESS = "Process"


def _modes(incomplete: str) -> list[str]:
    """What the shell offers after --mode."""
    from services.devices.model import PluginMode  # noqa: PLC0415 - only when it is asked for

    return [mode for mode in PluginMode if mode.startswith(incomplete)]


def plugin(
    context: typer.Context,
    *,
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="MODE",
            help="What a device is: af (a port with its function), region (programmed before a"
            " container starts), regiondevel (with the engine's node), units, bdf. The node's"
            " annotation fpga.intel.com/device-plugin-mode overrides it.",
            show_default="af",
            autocompletion=_modes,
            rich_help_panel=CARDS,
        ),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder below which sys/ and dev/ are read.",
            show_default="/",
            rich_help_panel=CARDS,
            readable=False,
        ),
    ] = None,
    host_root: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="What the host has before /dev/…, for the kubelet.",
            show_default="as --root",
            rich_help_panel=CARDS,
            readable=False,
        ),
    ] = None,
    units: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Units in mode units.", show_default="40", rich_help_panel=CARDS
        ),
    ] = None,
    scan_interval: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Time between two looks at the cards.",
            show_default="5",
            rich_help_panel=CARDS,
        ),
    ] = None,
    healthy_after: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Good scans in a row after which what was unhealthy is healthy again.",
            show_default="3",
            rich_help_panel=CARDS,
        ),
    ] = None,
    max_temperature: Annotated[
        float | None,
        typer.Option(
            metavar="CELSIUS",
            help="Hotter cards are unhealthy, whatever they say themselves.",
            show_default="none",
            rich_help_panel=CARDS,
        ),
    ] = None,
    max_power: Annotated[
        float | None,
        typer.Option(
            metavar="WATTS",
            help="Cards that draw more are unhealthy.",
            show_default="none",
            rich_help_panel=CARDS,
        ),
    ] = None,
    ignore_errors: Annotated[
        str | None,
        typer.Option(
            metavar="ERROR,…",
            help="Errors that make nothing unhealthy, by reason: port-errors, fme-errors,"
            " fme-catfatal-errors, fme-nonfatal-errors (or some bits: port-errors=0x8), ap1-event,"
            " ap2-event, overheated.",
            show_default="none",
            rich_help_panel=CARDS,
        ),
    ] = None,
    sensor_interval: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Time between two reads of temperatures, power and error counters.",
            show_default="30",
            rich_help_panel=CARDS,
        ),
    ] = None,
    clear_errors: Annotated[
        bool | None,
        typer.Option(
            "--clear-errors/--no-clear-errors",
            help="Clear errors that a container left in a port, once nobody has it.",
            show_default="clear-errors",
            rich_help_panel=CARDS,
        ),
    ] = None,
    cdi_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of CDI files, such as /var/run/cdi, to describe the devices in.",
            readable=False,
            show_default="none",
            rich_help_panel=CARDS,
        ),
    ] = None,
    cdi: Annotated[
        bool | None,
        typer.Option(
            "--cdi/--no-cdi",
            help="Give containers the devices' CDI names too.",
            show_default="no-cdi",
            rich_help_panel=CARDS,
        ),
    ] = None,
    kubelet_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Holds device-plugins/ and pod-resources/.",
            show_default="/var/lib/kubelet",
            rich_help_panel=KUBELET,
            readable=False,
        ),
    ] = None,
    node_name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="This node's name in the cluster.",
            show_default="$NODE_NAME, or the host's name",
            rich_help_panel=KUBELET,
        ),
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="How to reach the API server, for mode region, the node's annotation and Events.",
            show_default="$KUBECONFIG, or the pod's service account",
            rich_help_panel=KUBELET,
            readable=False,
        ),
    ] = None,
    pod_logs_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where the host's /var/log/pods is.",
            show_default="/var/log/pods",
            rich_help_panel=KUBELET,
            readable=False,
        ),
    ] = None,
    programming: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="How functions get into regions: prestart (before a container starts), oci-hook"
            " (from the runtime's hook; needs --cdi-dir and a runtime with CDI), none (they are"
            " only verified).",
            show_default="prestart",
            rich_help_panel=PROGRAMMING,
        ),
    ] = None,
    enforce_mappings: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="Ask before a container starts whether its namespace maps what it was given: auto"
            " (in modes region and regiondevel), always (in mode af too), never.",
            show_default="auto",
            rich_help_panel=PROGRAMMING,
        ),
    ] = None,
    hook_path: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where the host has the OCI hook.",
            show_default="/opt/accelbind/hook/accelbind-hook",
            rich_help_panel=PROGRAMMING,
            readable=False,
        ),
    ] = None,
    bitstreams: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where this node keeps its bitstreams.",
            show_default="/srv/intel.com/fpga",
            rich_help_panel=PROGRAMMING,
            readable=False,
        ),
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where locks and records are, shared by all who program on this host.",
            show_default="/run/accelbind",
            rich_help_panel=PROGRAMMING,
            readable=False,
        ),
    ] = None,
    metrics_host: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address for /metrics, /healthz and /readyz.",
            show_default="::, all of IPv6 and IPv4",
            rich_help_panel=PROCESS,
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="Port for these; 0 takes any free one.",
            show_default="9102",
            rich_help_panel=PROCESS,
        ),
    ] = None,
    ports_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where to write the port taken.",
            rich_help_panel=PROCESS,
            readable=False,
        ),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            help="debug, info, warning or error.",
            show_default="info",
            rich_help_panel=PROCESS,
        ),
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="json, console, or auto: console on a terminal.",
            show_default="auto",
            rich_help_panel=PROCESS,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Settings in YAML; flags and ACCELBIND_* variables count before it.",
            rich_help_panel=PROCESS,
            readable=False,
        ),
    ] = None,
    print_config: Annotated[
        bool,
        typer.Option(
            "--print-config",
            help="Show the settings that count, and from where, and exit.",
            rich_help_panel=PROCESS,
        ),
    ] = False,
) -> None:
    """Serve this node's cards to its kubelet.

    Finds the FPGA cards of the OPAE and DFL drivers, registers a resource for
    each kind of device, keeps the kubelet told of their health, and hands
    containers their device nodes. Ends cleanly on SIGTERM.

    [bold]Examples[/bold]
      accelbind plugin
      accelbind plugin --mode region --node-name node-1
      accelbind plugin --mode units --units 8 --metrics-port 0
      accelbind plugin --root ./snapshot --kubelet-dir ./kubelet
    """
    flags = dict(locals())
    for name in ("context", "config", "print_config"):
        del flags[name]
    # What reading settings takes has its price: not before it is needed.
    from plugin.settings import PluginSettings  # noqa: PLC0415
    from services.process.settings import load, render  # noqa: PLC0415

    settings = load(PluginSettings, flags, config)
    if print_config:
        typer.echo(render(settings), nl=False)
    elif context.obj.serve is not None:
        context.obj.serve(settings.options(), context.obj.debug)
    else:
        from accelbind.plugin_process import serve  # noqa: PLC0415 - as above

        serve(settings.options(), context.obj.calls)
