"""The command line: its commands, and the one place where errors become exit codes.

A command is a Typer app or a function, listed in `COMMANDS`, in a module that is imported only when
it runs. Commands raise errors, and `main` translates them.
"""

import inspect
import os
import pkgutil
import re
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeAlias

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup
from typer.main import get_command

from accelbind import __version__
from accelbind.exits import Exit
from accelbind.output import print_json, styled
from services.process.errors import (
    AccelbindError,
    DeviceBusy,
    DeviceGone,
    DeviceHung,
    HardwareError,
    InvalidInput,
)

if TYPE_CHECKING:
    from services.programming.ioctls import DriverCalls

Private: TypeAlias = Any
"""A type that Typer does not export: contexts, commands and resolved commands."""

_JSON = {"-ojson", "-o=json", "--output=json", ("-o", "json"), ("--output", "json")}

_LINE_ENDS: Final = re.compile(r"(?<=[^\s\]])\n(?=[^\s\[])")
"""Between the lines of a paragraph; examples and tables are indented."""

_HELP_NAMES: Final = ["-h", "--help"]

RUN = "Run"
INSPECT = "Inspect"
SET_UP = "Set up"


class LazyCommand(NamedTuple):
    """Where a command is, and what the overview shows without importing it."""

    target: str
    """`module:attribute`."""
    panel: str
    summary: str


# Help and completion must be fast, and a process loads only what its command needs: neither
# imports these modules.
COMMANDS = {
    name: LazyCommand(f"accelbind.{target}", panel, summary)
    for name, (target, panel, summary) in {
        "webhook": ("webhook:webhook", RUN, "Serve the admission webhook over TLS."),
        "plugin": ("plugin:plugin", RUN, "Offer this node's devices to its kubelet."),
        "demo": ("demo:demo", RUN, "Run accelbind on this machine, without a cluster or a card."),
        "devices": (
            "devices:devices",
            INSPECT,
            "Show a node's devices, their health, and who has them.",
        ),
        "explain": (
            "explain:explain",
            INSPECT,
            "Show what the webhook would do to a pod, and why.",
        ),
        "doctor": (
            "doctor.command:doctor",
            INSPECT,
            "Find what is wrong with a node or a cluster, and what to do.",
        ),
        "check": ("check:app", INSPECT, "Find what is wrong with mappings or device types."),
        "names": ("names:app", INSPECT, "Translate between ids and resource names."),
        "fpga": ("fpga.command:app", SET_UP, "Show this node's FPGAs, program and reset them."),
        "bitstream": ("bitstream:app", SET_UP, "Show bitstreams, and manage those of a node."),
        "dra": ("dra:app", SET_UP, "Print classes and templates for DRA, and give claims back."),
        "certs": (
            "certs:app",
            SET_UP,
            "Create, renew, show and manage the webhook's certificates.",
        ),
    }.items()
}


class LazyGroup(TyperGroup):
    """The top level: the commands of `COMMANDS`."""

    def list_commands(self, ctx: Private) -> list[str]:  # noqa: ARG002 - Typer's signature
        """The commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Private, cmd_name: str) -> TyperCommand | None:  # noqa: ARG002 - the same
        """A command's name and summary, for help and completion."""
        command = COMMANDS.get(cmd_name)
        if command is None:
            return None
        return TyperCommand(cmd_name, help=command.summary, rich_help_panel=command.panel)

    def resolve_command(self, ctx: Private, args: list[str]) -> Private:
        """The command itself, imported now."""
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment] # for suggestions
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(name) if command and name else command, rest


def load(name: str) -> Private:
    """Import a command and return it as one that Typer can run."""
    target = pkgutil.resolve_name(COMMANDS[name].target)
    holder = target
    if not isinstance(target, typer.Typer):
        holder = typer.Typer(add_completion=False)
        holder.command(name)(target)
    command: Private = get_command(holder)
    command.name = name
    return with_plain_help(command)


class _Argument(TyperArgument):
    """An argument without `<str>` beside its name in the help."""

    def __init__(self, argument: TyperArgument) -> None:
        vars(self).update(vars(argument))

    def display_type_rich(self, ctx: Private) -> str | None:  # noqa: ARG002 - Typer's signature
        """Nothing."""
        return None


def with_plain_help(command: Private) -> Private:
    """Make the help of a command plain."""
    command.params = [
        _Argument(each) if isinstance(each, TyperArgument) else each for each in command.params
    ]
    for each in command.get_params(typer.Context(command, help_option_names=_HELP_NAMES)):
        if each.metavar is None and getattr(each, "is_flag", False):
            each.metavar = ""  # Typer shows `<bool>`
    if command.help:
        # Typer keeps the line ends of docstrings, whatever the width of the terminal.
        command.help = _LINE_ENDS.sub(" ", inspect.cleandoc(command.help))
    for inner in getattr(command, "commands", {}).values():
        with_plain_help(inner)
    return command


_CODES: Final[tuple[tuple[type[AccelbindError], Exit], ...]] = (
    (InvalidInput, Exit.UNKNOWN),
    # For scripts that wait for a busy device.
    (DeviceBusy, Exit.BUSY),
    (DeviceGone, Exit.GONE),
    (DeviceHung, Exit.NO_ANSWER),
    (HardwareError, Exit.NO),
    (AccelbindError, Exit.UNKNOWN),
)
"""Exit codes by kind of error; the first that fits."""


@dataclass(slots=True)
class Options:
    """The options before the command, and what `main` was given."""

    debug: bool = False
    driver_calls: "DriverCalls | None" = None


app = typer.Typer(
    name="accelbind",
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": _HELP_NAMES},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - Typer calls it so
    if wanted:
        typer.echo(f"accelbind {__version__}")
        raise typer.Exit


@app.callback()
def accelbind(
    context: typer.Context,
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[  # noqa: ARG001 - its callback does the work
        bool,
        typer.Option(
            "--version",
            "-V",
            help="Show the version and exit.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Accelerators by name on Kubernetes.

    A pod requests [bold]fpga.intel.com/my-function: 1[/bold]; the webhook makes it
    schedulable, and the plugin gives the container its device.

    See it work on this machine:  [bold]accelbind demo[/bold]
    Try a pod against mappings:   [bold]accelbind explain -f pod.yaml --mappings DIR[/bold]
    """
    context.ensure_object(Options).debug = debug


def main(
    arguments: Sequence[str] | None = None, *, driver_calls: "DriverCalls | None" = None
) -> int:
    """Run a command line and return its exit code.

    Args:
        arguments: What follows `accelbind`; None for the arguments of the process.
        driver_calls: Makes the ioctls of the cards' drivers, if not the kernel.
    """
    options = Options(driver_calls=driver_calls)
    try:
        code = _run(arguments, options)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        return Exit.NO  # as Typer, which notices most of them
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    return code


def _wants_json(arguments: Sequence[str]) -> bool:
    # The command line may be invalid, so that Typer has no answer.
    return not _JSON.isdisjoint([*arguments, *pairwise(arguments)])


def _run(arguments: Sequence[str] | None, options: Options) -> int:
    given = sys.argv[1:] if arguments is None else [*arguments]
    try:
        result = with_plain_help(get_command(app)).main(
            args=given, prog_name="accelbind", standalone_mode=False, obj=options
        )
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - every error becomes a line and an exit code
        return _report(error, debug=options.debug, as_json=_wants_json(given))
    return result if isinstance(result, int) else 0


def _report(error: Exception, *, debug: bool, as_json: bool) -> int:
    if debug:
        traceback.print_exception(error)
    message, code = _describe(error)
    message = " ".join(message.split())
    if as_json:
        print_json({"error": message, "exitCode": code}, err=True)
    elif message:  # otherwise no command was given, and the help was printed
        typer.echo(styled(f"error: {message}", "red"), err=True)
    return code


def _describe(error: Exception) -> tuple[str, int]:
    if isinstance(error, typer.TyperException):
        return _usage(error), Exit.UNKNOWN
    if isinstance(error, typer.Abort):
        return "interrupted", Exit.INTERRUPTED
    if isinstance(error, AccelbindError):
        return str(error), next(code for kind, code in _CODES if isinstance(error, kind))
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}", Exit.UNKNOWN
    text = f"internal error: {type(error).__name__}: {error}"
    return f"{text} (accelbind --debug shows where; please report it)", Exit.OURS


def _usage(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    message = error.format_message().replace("Value error, ", "")  # how pydantic starts it
    hint = f" (see: {context.command_path} --help)" if context is not None else ""
    return f"{message.rstrip('.')}{hint}" if message else ""


def _discard_output() -> None:
    # The interpreter would flush at exit into a pipe that nobody reads, and complain.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
