"""`accelbind fpga`: look at a node's FPGAs, program them, reset them, clear their errors."""

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accelbind.options import default_note, timeout_option
from accelbind.printing import Format, Output, print_facts, print_json, print_table
from accelbind.run import Given, load_settings, with_settings
from plugin.settings import PluginSettings

if TYPE_CHECKING:
    from services.programming.programmer import Programmer

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
        help="dfl-port.0, or its node; an FME or a PCI address stands for the only port there.",
    ),
]
EngineName = Annotated[
    str, typer.Argument(metavar="FME", help="dfl-fme.0, its node, or its PCI address.")
]
PortNumber = Annotated[
    int, typer.Option("--port", metavar="N", min=0, help="The port's number within the card.")
]
Timeout = Annotated[float, timeout_option("1m")]
ShortTimeout = Annotated[float, timeout_option("10s")]


class Kind(StrEnum):
    """What a device is."""

    FME = "fme"
    PORT = "port"


TIMEOUT = 60.0
WHERE = {"root": ""}
WHERE_AND_STATE = {"root": "", "state_dir": ""}
WHERE_AND_RECORDS = {**WHERE_AND_STATE, "kubelet_dir": ""}

app = typer.Typer(
    name="fpga",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def fpga() -> None:
    """Look at this node's FPGAs, program and reset them.

    Exit codes: 0 done, 1 the card or its driver stands in the way, 2 the
    bitstream or the request is wrong, 3 somebody else has the device, 4 there
    is no such device (any more), 5 it gives no answer in time.
    """


@app.command("list")
@with_settings(PluginSettings, WHERE, group="Options")
def list_(
    *,
    kind: Annotated[
        Kind | None, typer.Option(help=f"Only FMEs, or only ports. {default_note('all')}")
    ] = None,
    given: Given,
    output: Output = Format.TEXT,
) -> None:
    """List the FMEs and ports of this node, with what is wrong with any.

    [bold]Examples[/bold]
      accelbind fpga list -o json
      accelbind fpga list --kind port
    """
    from accelbind.fpga import show as fpga_show  # noqa: PLC0415 - only when it runs
    from services.devices.hardware.scan import scan  # noqa: PLC0415 - the same

    inventory = scan(load_settings(PluginSettings, given).root)
    rows = [each for each in fpga_show.listed(inventory) if kind in (None, each["kind"])]
    for problem in inventory.problems:
        typer.echo(f"warning: {problem.message}", err=True)
    if output is Format.JSON:
        print_json(rows)
    elif rows:
        print_table(fpga_show.HEADINGS, map(fpga_show.row, rows))


@app.command()
@with_settings(PluginSettings, WHERE, group="Options")
def info(
    device: Device, *, given: Given, output: Output = Format.TEXT, timeout: ShortTimeout = 10.0
) -> None:
    """Show all that is known of an FME or a port.

    [bold]Example[/bold]
      accelbind fpga info dfl-port.0
    """
    from accelbind.fpga import info as fpga_info  # noqa: PLC0415 - as above
    from accelbind.fpga import run as fpga_run  # noqa: PLC0415 - as above
    from services.programming.port import name_behind  # noqa: PLC0415 - the same

    root = load_settings(PluginSettings, given).root
    with fpga_run.exit_codes():
        device = name_behind(root, device)
        told = fpga_run.in_time(device, lambda: fpga_info.describe(root, device), timeout)
    if output is Format.JSON:
        print_json(told)
    else:
        print_facts(fpga_info.facts(told))


@app.command()
@with_settings(PluginSettings, WHERE_AND_RECORDS, group="Options")
def program(
    context: typer.Context,
    port: PortName,
    bitstream: Annotated[
        Path, typer.Argument(metavar="BITSTREAM", help="GBS or AOCX file.", readable=False)
    ],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check that it could be done, and change nothing.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Program it even if the function is there already.")
    ] = False,
    user_clock: Annotated[
        str,
        typer.Option(
            metavar="POLICY",
            help="Where the clock that the bitstream asks for can't be had: try (program it all the"
            " same, and say so), require (refuse), or leave (don't look at clocks).",
        ),
    ] = "try",
    given: Given,
    timeout: Timeout = TIMEOUT,
    output: Output = Format.TEXT,
) -> None:
    """Put the function of a bitstream into a port.

    Nothing is programmed if the bitstream doesn't fit the card, or while
    somebody has the port open. What is there already isn't programmed again;
    the port is reset all the same. Afterwards the port must show the function.

    [bold]Examples[/bold]
      accelbind fpga program dfl-port.0 nlb0.gbs
      accelbind fpga program dfl-port.0 nlb0.gbs --dry-run -o json
    """
    from accelbind.fpga import run as fpga_run  # noqa: PLC0415 - as above
    from accelbind.fpga import show as fpga_show  # noqa: PLC0415 - as above
    from services.bitstreams.storage import read_bitstream  # noqa: PLC0415 - the same
    from services.programming.image import Image  # noqa: PLC0415 - the same

    settings = load_settings(PluginSettings, given)
    lasting = _lasting_folder(settings.kubelet_dir)
    programmer = _programmer(context, settings, timeout, user_clock, lasting)
    with fpga_run.exit_codes():
        port, image = _port_meant(settings.root, port), Image.of(read_bitstream(bitstream))
        if dry_run:
            done = programmer.check(port, image, force=force)
        else:
            with fpga_run.shown(port, quiet=output is Format.JSON) as say:
                done = fpga_run.in_time(
                    port, lambda: programmer.ensure(port, image, force=force, on_step=say), timeout
                )
    for remark in done.remarks:
        typer.echo(f"warning: {remark}", err=True)
    if output is Format.JSON:
        print_json(fpga_show.programmed(done, dry_run=dry_run))
    else:
        typer.echo(fpga_show.sentence(done, dry_run=dry_run))


@app.command()
@with_settings(PluginSettings, WHERE_AND_STATE, group="Options")
def reset(
    context: typer.Context,
    port: PortName,
    *,
    given: Given,
    timeout: Timeout = TIMEOUT,
    output: Output = Format.TEXT,
) -> None:
    """Reset a port and the function in it, unless somebody has it.

    [bold]Example[/bold]
      accelbind fpga reset dfl-port.0
    """
    from accelbind.fpga import run as fpga_run  # noqa: PLC0415 - as above

    settings = load_settings(PluginSettings, given)
    programmer = _programmer(context, settings, timeout)
    with fpga_run.exit_codes():
        port = _port_meant(settings.root, port)
        fpga_run.in_time(port, lambda: programmer.reset(port), timeout)
    _done(output, f"{port} is reset", {"device": port, "outcome": "reset"})


@app.command("clear-errors")
@with_settings(PluginSettings, WHERE, group="Options")
def clear_errors(
    context: typer.Context,
    device: Device,
    *,
    given: Given,
    timeout: Timeout = TIMEOUT,
    output: Output = Format.TEXT,
) -> None:
    """Clear the errors that an FME or a port has noted.

    Each register is given the value that it reads, so that an error which
    comes meanwhile isn't cleared unseen.

    [bold]Example[/bold]
      accelbind fpga clear-errors dfl-port.0
    """
    from accelbind.fpga import errors as fpga_errors  # noqa: PLC0415 - as above
    from accelbind.fpga import run as fpga_run  # noqa: PLC0415 - as above
    from services.programming.port import name_behind  # noqa: PLC0415 - the same

    root = load_settings(PluginSettings, given).root
    with fpga_run.exit_codes():
        device = name_behind(root, device)
        name, cleared = fpga_run.in_time(
            device, lambda: fpga_errors.clear(root, device, context.obj.driver_calls), timeout
        )
    if output is Format.JSON:
        print_json({"device": name, "cleared": cleared})
        return
    for each in cleared:
        typer.echo(f"{each['register']} of {each['device']}: {each['value']} cleared")
        if each["now"] not in {"0x0", None}:
            typer.echo(f"warning: {each['register']} reads {each['now']} again", err=True)
    if not cleared:
        typer.echo(f"{name} has no errors")


RELEASE = """Take a port from the physical function, for a virtual one to have.

[bold]Example[/bold]
  accelbind fpga release dfl-fme.0 --port 0
"""
ASSIGN = """Give a port back to the physical function.

[bold]Example[/bold]
  accelbind fpga assign dfl-fme.0 --port 0
"""


@app.command("assign", help=ASSIGN)
@app.command("release", help=RELEASE)
@with_settings(PluginSettings, WHERE_AND_STATE, group="Options")
def move(
    context: typer.Context,
    fme: EngineName,
    *,
    port: PortNumber = 0,
    given: Given,
    timeout: Timeout = TIMEOUT,
    output: Output = Format.TEXT,
) -> None:
    """Moves a port between a card's physical function and its virtual ones."""
    from accelbind.fpga import run as fpga_run  # noqa: PLC0415 - as above
    from services.devices.hardware.scan import scan  # noqa: PLC0415 - the same
    from services.programming.port import find_engine, name_behind  # noqa: PLC0415 - the same

    settings = load_settings(PluginSettings, given)
    programmer = _programmer(context, settings, timeout)
    away = context.info_name == "release"
    moved = programmer.release if away else programmer.assign
    with fpga_run.exit_codes():
        name = find_engine(scan(settings.root), name_behind(settings.root, fme)).name
        fpga_run.in_time(name, lambda: moved(name, port), timeout)
    word = "released" if away else "assigned"
    told = {"device": name, "port": port, "outcome": word}
    _done(output, f"port {port} of {name} is {word}", told)


def _port_meant(root: Path, named: str) -> str:
    from services.devices.hardware.scan import scan  # noqa: PLC0415 - the same
    from services.programming.port import name_behind, port_meant  # noqa: PLC0415 - as above

    return port_meant(scan(root), name_behind(root, named))


def _lasting_folder(kubelet_dir: Path) -> Path | None:
    """Where the plugin keeps what survives reboots; None without a kubelet, or access to it."""
    from services.kubelet.sockets import plugins_folder  # noqa: PLC0415 - the same
    from services.node.node_mark import lasting_folder  # noqa: PLC0415 - as above

    plugins = plugins_folder(kubelet_dir)
    return lasting_folder(plugins) if os.access(plugins, os.X_OK) else None


def _programmer(
    context: typer.Context,
    settings: PluginSettings,
    timeout: float,
    user_clock: str = "try",
    lasting: Path | None = None,
) -> "Programmer":
    """A programmer that waits for a card that somebody works on, but not until all time is up."""
    from services.process.errors import InvalidSettings  # noqa: PLC0415 - as above
    from services.programming.clock_registers import ClockPolicy  # noqa: PLC0415 - the same
    from services.programming.ioctls import KERNEL  # noqa: PLC0415 - the same
    from services.programming.programmer import Programmer  # noqa: PLC0415 - the same

    try:
        policy = ClockPolicy(user_clock)
    except ValueError as error:
        known = ", ".join(ClockPolicy)
        raise InvalidSettings(f"--user-clock is one of {known}, not {user_clock!r}") from error
    return Programmer(
        settings.root,
        settings.state_dir,
        durable_dir=lasting,
        clock=policy,
        calls=context.obj.driver_calls or KERNEL,
        lock_seconds=timeout / 2,
    )


def _done(output: Format, sentence: str, told: dict[str, Any]) -> None:
    if output is Format.JSON:
        print_json(told)
    else:
        typer.echo(sentence)
