"""The front door: the commands, and the one place where errors become exit codes.

A command is a module of this package that is imported when it is asked for, not before: `accelbind
--help` and shell completion stay quick, and a process holds only what its command needs. Each is a
Typer app or a plain function, named in `COMMANDS`; it raises what it raises, and `main` translates.

Exit codes are those of `accelbind.exits`. A file or folder that isn't there or can't be read is the
world. Only for `explain` and `check`, whose 1 is an answer as that of grep and diff is, it is 2.
`fpga` has three more, since scripts wait for a busy device (`CodedError`). With `-o json` an error
is an object on stdout as well. Commands find out by themselves: options for files say
`readable=False`, or Typer would tell a part of the troubles with an exit code of its own.
"""

import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from accelbind import __version__
from accelbind.exits import Exit
from accelbind.output import print_json, styled
from services.process.errors import AccelbindError, AskerError

if TYPE_CHECKING:
    from services.programming.ioctls import DriverCalls

Private: TypeAlias = Any
"""A type of Typer's that it doesn't export: contexts, commands, what resolving one gives."""

_JSON = {"-ojson", "-o=json", "--output=json", ("-o", "json"), ("--output", "json")}

RUN = "Run"
LOOK = "Look"
SET_UP = "Set up"


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a command lives, and what the overview says of it without importing it."""

    module: str
    attribute: str
    summary: str
    panel: str


COMMANDS = {
    "webhook": LazyCommand(
        "accelbind.webhook", "webhook", "Serve the admission webhook over TLS.", RUN
    ),
    "plugin": LazyCommand(
        "accelbind.plugin", "plugin", "Serve this node's cards to its kubelet.", RUN
    ),
    "demo": LazyCommand(
        "accelbind.demo",
        "demo",
        "See the whole suite at work on this machine: no cluster, no card.",
        RUN,
    ),
    "devices": LazyCommand(
        "accelbind.devices",
        "devices",
        "Show a node's devices, how they are, and who has them.",
        LOOK,
    ),
    "explain": LazyCommand(
        "accelbind.explain", "explain", "Show what the webhook would do to a pod, and why.", LOOK
    ),
    "doctor": LazyCommand(
        "accelbind.doctor.command",
        "doctor",
        "Find what is wrong with a node or a cluster, and what to do.",
        LOOK,
    ),
    "check": LazyCommand("accelbind.check", "app", "Find what is wrong with mappings.", LOOK),
    "names": LazyCommand(
        "accelbind.names", "app", "Translate between ids and resource names.", LOOK
    ),
    "fpga": LazyCommand(
        "accelbind.fpga.command",
        "app",
        "Look at this node's FPGAs, program and reset them.",
        SET_UP,
    ),
    "bitstream": LazyCommand(
        "accelbind.bitstream",
        "app",
        "Look at bitstreams, and keep those that a node needs.",
        SET_UP,
    ),
    "certs": LazyCommand(
        "accelbind.certs",
        "app",
        "Make, keep, show and check the webhook's certificates.",
        SET_UP,
    ),
}


class LazyGroup(TyperGroup):
    """The top level: lists its commands from `COMMANDS`, and imports the one that is run."""

    def list_commands(self, ctx: Private) -> list[str]:  # noqa: ARG002 - Typer's signature
        """The commands in the order in which they are declared."""
        return list(COMMANDS)

    def get_command(self, ctx: Private, cmd_name: str) -> TyperCommand | None:  # noqa: ARG002 - the same
        """What help and completion show of a command: its name and summary."""
        command = COMMANDS.get(cmd_name)
        if command is None:
            return None
        return TyperCommand(cmd_name, help=command.summary, rich_help_panel=command.panel)

    def resolve_command(self, ctx: Private, args: list[str]) -> Private:
        """The real command, imported now."""
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment] # for suggestions
        name, found, rest = super().resolve_command(ctx, args)
        return name, load(name) if found and name else found, rest


def load(name: str) -> Private:
    """Imports a command and makes it one that Typer can run."""
    where = COMMANDS[name]
    target = getattr(import_module(where.module), where.attribute)
    if isinstance(target, typer.Typer):
        command: Private = get_command(target)
        completion = {"install_completion", "show_completion"}  # they belong to the top level
        command.params = [param for param in command.params if param.name not in completion]
    else:
        holder = typer.Typer()
        holder.command(name)(target)
        holder.callback()(lambda: None)
        command = get_group(holder).commands[name]
    command.name = name
    return command


class CodedError(AccelbindError):
    """An error with an exit code of its own.

    Args:
        text: What is wrong.
        code: The exit code.
    """

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


@dataclass(slots=True)
class Options:
    """What the options before the command say, and what `main` was given."""

    debug: bool = False
    driver_calls: "DriverCalls | None" = None


app = typer.Typer(
    name="accelbind",
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
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
    debug: Annotated[
        bool, typer.Option("--debug", help="Show a traceback where something goes wrong.")
    ] = False,
    version: Annotated[  # noqa: ARG001 - its callback does the work
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Accelerators by name on Kubernetes.

    A pod asks for [bold]fpga.intel.com/my-function: 1[/bold]; the webhook makes
    it schedulable, and the plugin gives the container its device.

    See it work on this machine:  [bold]accelbind demo[/bold]
    Try a pod against mappings:   [bold]accelbind explain -f pod.yaml --mappings DIR[/bold]
    """
    context.ensure_object(Options).debug = debug


def main(
    arguments: Sequence[str] | None = None, *, driver_calls: "DriverCalls | None" = None
) -> int:
    """Runs a command line and gives its exit code.

    Args:
        arguments: what follows `accelbind` (the process's own arguments if None).
        driver_calls: makes the ioctls of the cards' drivers, if not the kernel.
    """
    options = Options(driver_calls=driver_calls)
    try:
        code = _run_and_report(arguments, options)
        sys.stdout.flush()
    except BrokenPipeError:
        _let_go_of(sys.stdout)
        return Exit.WORLD
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    return code


def _run_and_report(arguments: Sequence[str] | None, options: Options) -> int:
    try:
        return _run(arguments, options)
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - here all of them become a line and an exit code
        asked = sys.argv[1:] if arguments is None else arguments
        return report(error, debug=options.debug, as_json=_asks_for_json(asked))


def _asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether a command line, right or wrong, asks for output as JSON."""
    return not _JSON.isdisjoint([*arguments, *pairwise(arguments)])


def _run(arguments: Sequence[str] | None, options: Options) -> int:
    result = get_command(app).main(
        args=None if arguments is None else list(arguments),
        prog_name="accelbind",
        standalone_mode=False,
        obj=options,
    )
    return result if isinstance(result, int) else 0


def report(error: Exception, *, debug: bool = False, as_json: bool = False) -> int:
    """One line on stderr for an error, and its exit code.

    Args:
        error: what a command raised.
        debug: whether its traceback comes before the line.
        as_json: whether it is an object on stdout too.
    """
    if debug:
        traceback.print_exception(error)
    message, code = _told(error)
    message = " ".join(message.split())
    if message:  # else no command was given, and the help has been printed instead
        typer.echo(styled(f"error: {message}", "red"), err=True)
    if as_json:
        print_json({"error": message, "exitCode": code})
    return code


def _told(error: Exception) -> tuple[str, int]:
    """What is wrong, and the exit code."""
    if isinstance(error, typer.TyperException):
        return _usage(error), Exit.ASKER
    if isinstance(error, typer.Abort):
        return "aborted", Exit.WORLD
    if isinstance(error, CodedError):
        return str(error), error.code
    if isinstance(error, AccelbindError):
        return str(error), Exit.ASKER if isinstance(error, AskerError) else Exit.WORLD
    if isinstance(error, OSError):
        return _describe(error), Exit.WORLD
    mistake = f"accelbind has made a mistake: {type(error).__name__}: {error}"
    return f"{mistake} (--debug before the command shows where)", Exit.OURS


def _usage(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    message = error.format_message()
    hint = f" (see: {context.command_path} --help)" if context is not None else ""
    return f"{message.rstrip('.')}{hint}" if message else ""


def _describe(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"


def _let_go_of(stream: Any) -> None:  # noqa: ANN401 - a text stream of any kind
    """Keeps the interpreter from flushing, at exit, into a pipe that nobody reads."""
    import os  # noqa: PLC0415 - needed only when a pipe breaks

    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
