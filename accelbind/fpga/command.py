"""`accelbind fpga`: show a node's FPGAs, program and reset them, clear their errors."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import typer

from accelbind.devices.source import NodeDevices
from accelbind.flags import (
    default_note,
    namespace_option,
    require_folder,
    switch,
    time_option,
    with_settings,
)
from accelbind.fpga import mappings, show
from accelbind.fpga.held import interruption, require_card_free, require_free, until_withdrawn
from accelbind.output import (
    Output,
    fact_lines,
    output_of,
    print_lines,
    print_result,
    table_lines,
    warn,
)
from plugin.settings import PluginSettings
from services.bitstreams.storage import read_bitstream
from services.devices.hardware.scan import scan
from services.devices.model import Card, Inventory, PluginMode
from services.process.blocking import BlockingCalls
from services.process.errors import InvalidSettings
from services.programming.error_registers import clear_device_errors, kept_errors
from services.programming.host_state import HostState
from services.programming.image import Image
from services.programming.ioctls import KERNEL
from services.programming.port import (
    DeviceFiles,
    PortPlace,
    find_card,
    find_device,
    find_engine,
    port_meant,
    port_session,
)
from services.programming.programmer import Programmer

T = TypeVar("T")

Device = Annotated[
    str,
    typer.Argument(
        metavar="DEVICE",
        help="FME or port: dfl-port.0, its node, or a PCI address, which stands for the FME there.",
    ),
]
PortName = Annotated[
    str,
    typer.Argument(
        metavar="PORT",
        help="dfl-port.0, its node, or, if the card has one port, its FME or PCI address.",
    ),
]
CardName = Annotated[
    str,
    typer.Argument(
        metavar="CARD",
        help="region0, its PCI address, or the name or node of its FME or of one of its ports; a"
        " card without a driver has its address only.",
    ),
]
EngineName = Annotated[
    str, typer.Argument(metavar="FME", help="dfl-fme.0, its node, or its PCI address.")
]
PortNumber = Annotated[
    int, typer.Option("--port", metavar="N", min=0, help="The port's number within the card.")
]
_TIMEOUT_HELP = "How long the command may take."
Timeout = Annotated[float, time_option("--timeout", _TIMEOUT_HELP, "1m")]
ShortTimeout = Annotated[float, time_option("--timeout", _TIMEOUT_HELP, "10s")]
TIMEOUT: Final = 60.0


on_root = with_settings(PluginSettings, "root")
on_cards = with_settings(PluginSettings, "root", "mode", "kubelet_dir", "pod_logs_dir")
on_state = with_settings(PluginSettings, "root", "state_dir")
on_node = with_settings(
    PluginSettings, "user_clock", "root", "state_dir", "kubelet_dir", "pod_logs_dir"
)
on_holders = with_settings(
    PluginSettings,
    *("root", "state_dir", "kubelet_dir", "pod_logs_dir", "metrics_host", "metrics_port"),
    defaults={"metrics_host": "this machine"},
)

app = typer.Typer(no_args_is_help=True)


@app.callback()
def fpga() -> None:
    """Show this node's FPGAs, program and reset them.

    Exit codes: 0 done, 1 the card or its driver failed, 2 the bitstream or the
    request is wrong, 3 the device is in use, 4 the device does not exist, 5 it
    does not answer in time.
    """


@app.command("list")
@on_cards
def list_(
    *,
    kind: Annotated[
        Literal["fme", "port", "function"] | None,
        typer.Option(help=f"Only FMEs, ports or virtual functions. {default_note('all')}"),
    ] = None,
    settings: PluginSettings,
    output: Annotated[
        Literal["text", "json", "mapping"],
        output_of("Output format; mapping is YAML for kubectl apply, by --mode."),
    ] = "text",
    namespace: Annotated[
        str | None, namespace_option("With -o mapping: namespace of the mappings.", "none")
    ] = None,
) -> None:
    """List the FMEs, ports and virtual functions (OFS) of this node, and their problems.

    With -o mapping it writes a mapping for each function that ports have (modes
    af and region) or for each region (mode regiondevel).

    [bold]Examples[/bold]
      accelbind fpga list -o json
      accelbind fpga list --kind port
      accelbind fpga list -o mapping -n team-a > mappings.yaml
    """
    is_mapping = output == "mapping"
    if is_mapping and kind is not None:
        raise InvalidSettings("--kind does not apply to -o mapping: mappings are of ports")
    if namespace is not None and not is_mapping:
        raise InvalidSettings("--namespace is only for -o mapping")
    require_folder(settings.root)
    inventory = _inventory(settings)
    for problem in inventory.problems:
        warn(problem.text)
    if is_mapping:
        typer.echo(mappings.mappings_yaml(inventory, settings.mode, namespace), nl=False)
        for port in mappings.unmapped(inventory, settings.mode):
            warn(f"no mapping for {port}")
        return
    rows = [each for each in show.list_devices(inventory) if kind in (None, each["kind"])]
    lines = table_lines(show.HEADINGS, map(show.row, rows)) if rows else ()
    print_result(output, rows, lines)


def _inventory(settings: PluginSettings) -> Inventory:
    # Every card, also where the plugin serves none: then as in a mode that reads no function.
    mode = settings.mode if settings.mode.has_cards else PluginMode.REGIONDEVEL
    settings = settings.model_copy(update={"device_types": None, "mode": mode})
    return NodeDevices(settings).find().inventory


@app.command()
@on_root
def info(
    device: Device,
    *,
    settings: PluginSettings,
    output: Output = "text",
    timeout: ShortTimeout = 10.0,
) -> None:
    """Show all that is known of an FME or a port.

    [bold]Example[/bold]
      accelbind fpga info dfl-port.0
    """
    facts = in_time(device, lambda: show.describe(settings.root, device), timeout)
    print_result(output, facts, fact_lines(show.facts(facts)))


@app.command()
@on_node
def program(
    context: typer.Context,
    port: PortName,
    bitstream: Annotated[
        Path, typer.Argument(metavar="BITSTREAM", help="GBS or AOCX file.", readable=False)
    ],
    *,
    dry_run: Annotated[
        bool, switch("--dry-run", help="Check whether it is possible; change nothing.")
    ] = False,
    force: Annotated[
        bool,
        switch(
            "--force",
            help="Program it even if the port has the function already, or a container has the"
            " port or may have it.",
        ),
    ] = False,
    settings: PluginSettings,
    timeout: Timeout = TIMEOUT,
    output: Output = "text",
) -> None:
    """Program the function of a bitstream into a port.

    Nothing is programmed if the bitstream does not fit the card, while the
    port is open, or while a container has it. A function that accelbind has
    programmed since the boot is not programmed again, but the port is reset.
    Afterwards the port must show the function.

    [bold]Examples[/bold]
      accelbind fpga program dfl-port.0 nlb0.gbs
      accelbind fpga program dfl-port.0 nlb0.gbs --dry-run -o json
    """
    programmer = _programmer(context, settings, timeout)
    port = port_meant(scan(settings.root), port)
    image = Image.from_bitstream(read_bitstream(bitstream))

    def require(inventory: Inventory) -> None:
        if not force:
            require_free(inventory, port, settings)

    call = programmer.check if dry_run else programmer.ensure
    done = in_time(port, partial(call, port, image, force=force, require=require), timeout)
    for remark in filter(None, (done.slow_clock, *done.remarks)):
        warn(remark)
    sentence = show.program_sentence(done, dry_run=dry_run)
    print_result(output, show.program_result(done, dry_run=dry_run), [sentence])


@app.command()
@on_state
def reset(
    context: typer.Context,
    port: PortName,
    *,
    settings: PluginSettings,
    timeout: Timeout = TIMEOUT,
    output: Output = "text",
) -> None:
    """Reset a port and its function, unless it is open.

    [bold]Example[/bold]
      accelbind fpga reset dfl-port.0
    """
    programmer = _programmer(context, settings, timeout)
    port = port_meant(scan(settings.root), port)
    in_time(port, lambda: programmer.reset(port), timeout)
    print_result(output, {"device": port, "outcome": "reset"}, [f"{port} is reset"])


@app.command()
@on_holders
def rebind(
    context: typer.Context,
    card: CardName,
    *,
    force: Annotated[
        bool, switch("--force", help="Do it even if a container has a part of the card.")
    ] = False,
    settings: PluginSettings,
    timeout: Timeout = TIMEOUT,
    output: Output = "text",
) -> None:
    """Rebind the driver of a card, which enables its ports.

    After a failed programming, the drivers keep a port disabled, until this. The
    card's FME and ports are away for a moment, and may have other names then. Ports
    that were released come back to the card.
    What this interrupts is printed first. Then the plugin or DRA driver of this
    node withdraws the card's devices. Refused while a process has one of them
    open, a container or a claim has one, or the card has virtual functions.

    [bold]Example[/bold]
      accelbind fpga rebind region0
    """
    programmer = _programmer(context, settings, timeout)
    interrupted = interruption(card, settings)
    print_lines(show.interruption(interrupted) if output == "text" else ())

    def withdraw(leaving: Card) -> None:
        if not force:
            until_withdrawn(leaving, settings, seconds=timeout / 4)

    def require(inventory: Inventory) -> None:
        if not force:
            require_card_free(inventory, find_card(inventory, card), settings)

    work = partial(programmer.rebind, card, withdraw=withdraw, require=require)
    ports = in_time(card, work, timeout)
    result = show.rebind_result(card, ports, interrupted)
    print_result(output, result, [show.rebind_sentence(card, ports)])


@app.command("clear-errors")
@on_state
def clear_errors(
    context: typer.Context,
    device: Device,
    *,
    settings: PluginSettings,
    timeout: Timeout = TIMEOUT,
    output: Output = "text",
) -> None:
    """Clear the errors that an FME or a port reports.

    Writes to each register the value that it reads, so that an error that occurs
    meanwhile is not lost. A port is opened exclusively, since its driver resets it.

    [bold]Example[/bold]
      accelbind fpga clear-errors dfl-port.0
    """
    root = settings.root

    def clear() -> tuple[str, list[dict[str, Any]], dict[str, str]]:
        place = find_device(scan(root), device)
        calls = context.obj.driver_calls or KERNEL
        opened = port_session(root, place, calls) if isinstance(place, PortPlace) else nullcontext()
        host = HostState(settings.state_dir)
        with host.lock_card(place.card.lock, seconds=timeout / 2), opened:
            files = DeviceFiles(root, place)
            cleared = clear_device_errors(files, place)
            kept = {key: f"{value:#x}" for key, value in kept_errors(files).items()}
        return place.name, [show.cleared_register(place.name, each) for each in cleared], kept

    name, cleared, kept = in_time(device, clear, timeout)
    lines = ["{register} of {device}: {value} cleared".format_map(each) for each in cleared]
    nothing = f"{name} has no errors that can be cleared" if kept else f"{name} has no errors"
    result = {"device": name, "cleared": cleared, "kept": kept}
    print_result(output, result, lines or [nothing])
    if output == "text":
        for each in cleared:
            if each["now"] not in {"0x0", None}:
                warn(f"{each['register']} reads {each['now']} again")
        for file, value in kept.items():
            warn(f"{file} reads {value} and can't be cleared: reset or reseat the card")


RELEASE = """Release a port from the physical function, so that a virtual one can have it.

[bold]Example[/bold]
  accelbind fpga release dfl-fme.0 --port 0
"""
ASSIGN = """Give a port back to the physical function.

[bold]Example[/bold]
  accelbind fpga assign dfl-fme.0 --port 0
"""


@app.command("assign", help=ASSIGN)
@app.command("release", help=RELEASE)
@on_state
def move(
    context: typer.Context,
    fme: EngineName,
    *,
    port: PortNumber = 0,
    settings: PluginSettings,
    timeout: Timeout = TIMEOUT,
    output: Output = "text",
) -> None:
    """Move a port between a card's physical function and its virtual ones."""
    programmer = _programmer(context, settings, timeout)
    is_release = context.info_name == "release"
    call = programmer.release if is_release else programmer.assign
    name = find_engine(scan(settings.root), fme).name
    if remark := in_time(name, lambda: call(name, port), timeout):
        warn(remark)
    outcome = "released" if is_release else "assigned"
    result = {"device": name, "port": port, "outcome": outcome}
    print_result(output, result, [f"port {port} of {name} is {outcome}"])


def in_time(device: str, call: Callable[[], T], seconds: float) -> T:
    """The result of a call; one that hangs is left to its thread."""
    working = BlockingCalls().run(device, call, timeout=seconds, what=f"working on {device}")
    return asyncio.run(working)


def _programmer(context: typer.Context, settings: PluginSettings, timeout: float) -> Programmer:
    return Programmer(
        settings.root,
        settings.state_dir,
        clocks=settings.user_clock,
        calls=context.obj.driver_calls or KERNEL,
        lock_seconds=timeout / 2,  # the other half is for the work itself
    )
