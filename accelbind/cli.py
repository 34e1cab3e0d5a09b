"""The command line: its commands, and the one place where errors become exit codes.

A command is a Typer app or a function, listed in `COMMANDS`, in a module that is imported only when
it runs. Commands raise errors, and `main` translates them.
"""

import os
import pkgutil
import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from typer.main import get_command

from accelbind import __version__
from accelbind.output import Exit, error_text, joined, print_json, styled
from services.process.errors import (
    AccelbindError,
    DeviceBusy,
    DeviceGone,
    DeviceHung,
    HardwareError,
)

if TYPE_CHECKING:
    from services.programming.ioctls import DriverCalls

_JSON = {"-ojson", "-o=json", "--output=json", ("-o", "json"), ("--output", "json")}

_COMPLETED: Final = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
"""Variables in which shells pass the line that is to be completed."""

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
            "devices.command:devices",
            INSPECT,
            "Show the devices of a node or a cluster, their health, and who has them.",
        ),
        "ui": ("ui.command:ui", INSPECT, "Open a page of a cluster: nodes, names, pods."),
        "explain": (
            "explain.command:explain",
            INSPECT,
            "Show what becomes of a pod, and why.",
        ),
        "doctor": (
            "doctor.command:doctor",
            INSPECT,
            "Find what is wrong with a node or a cluster, and what to do.",
        ),
        "check": (
            "check.command:app",
            INSPECT,
            "Find what is wrong with mappings or device types.",
        ),
        "names": (
            "names:app",
            INSPECT,
            "List names of a namespace; translate ids and resources.",
        ),
        "fpga": ("fpga.command:app", SET_UP, "Show this node's FPGAs, program and reset them."),
        "bitstream": ("bitstream:app", SET_UP, "Show bitstreams, and manage those of a node."),
        "dra": (
            "dra.command:app",
            SET_UP,
            "Print classes and templates for DRA, and give claims back.",
        ),
        "certs": (
            "certs:app",
            SET_UP,
            "Create, renew, show and manage the webhook's certificates.",
        ),
    }.items()
}


def command_line(words: Iterable[str] = ()) -> typer.Typer:
    """The command line; its first command among `words` is imported, the others are names."""
    app = typer.Typer(
        name="accelbind",
        no_args_is_help=True,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
    )
    app.callback(help=joined(accelbind.__doc__))(accelbind)
    imported = next((word for word in words if word in COMMANDS), "")
    for name, (target, panel, summary) in COMMANDS.items():
        if name == imported:
            _add(app, name, panel, pkgutil.resolve_name(target))
        else:
            app.command(name, help=summary, rich_help_panel=panel)(_not_imported)
    return app


def load(name: str) -> Any:  # noqa: ANN401 - Typer exports no type of it
    """Import a command, as Typer runs it."""
    return get_command(command_line([name])).commands[name]  # type: ignore[attr-defined] # a group


def _add(app: typer.Typer, name: str, panel: str, target: Any) -> None:  # noqa: ANN401 - imported
    if isinstance(target, typer.Typer):
        for each in target.registered_commands:
            each.help = joined(each.help or (each.callback.__doc__ if each.callback else None))
        of_group = target.registered_callback
        if of_group and of_group.callback and of_group.callback.__doc__:
            of_group.help = joined(of_group.callback.__doc__)
        app.add_typer(target, name=name, rich_help_panel=panel)
    else:
        app.command(name, help=joined(target.__doc__), rich_help_panel=panel)(target)


def _not_imported() -> None:
    """Stand for a command that is not called."""


_CODES: Final[tuple[tuple[type[Exception], Exit], ...]] = (
    # For scripts that wait for a busy device.
    (DeviceBusy, Exit.BUSY),
    (DeviceGone, Exit.GONE),
    (DeviceHung, Exit.NO_ANSWER),
    (HardwareError, Exit.NO),
    (AccelbindError, Exit.UNKNOWN),
    (OSError, Exit.UNKNOWN),
)
"""Exit codes by kind of error; the first that fits."""


@dataclass(slots=True)
class Options:
    """The options before the command, and what `main` was given."""

    debug: bool = False
    driver_calls: "DriverCalls | None" = None


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - Typer calls it so
    if wanted:
        typer.echo(f"accelbind {__version__}")
        raise typer.Exit


def accelbind(
    context: typer.Context,
    *,
    debug: Annotated[
        bool, typer.Option("--debug", metavar="", help="Show the traceback of an error.")
    ] = False,
    version: Annotated[  # noqa: ARG001 - its callback does the work
        bool,
        typer.Option(
            "--version",
            "-V",
            metavar="",
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
    Try a pod against mappings:   [bold]accelbind explain pod.yaml --mappings DIR[/bold]
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
    completed = " ".join(os.environ.get(name, "") for name in _COMPLETED).split()
    try:
        result = get_command(command_line([*given, *completed])).main(
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
    text = error_text(error)
    for kind, code in _CODES:
        if isinstance(error, kind):
            return text, code
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
