"""Flags of commands: those that several share, and one for each field of settings.

The name, help and default of a flag of settings are those of the field, and pydantic checks its
value.
"""

import inspect
import os
import re
import signal
import sys
from collections.abc import Callable, Container, Iterable, Mapping
from inspect import Parameter, Signature
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_origin

import typer
from pydantic.fields import FieldInfo

from accelbind.output import joined
from services.process.errors import InvalidSettings
from services.process.settings import (
    PROCESS,
    ProcessSettings,
    Settings,
    dashed,
    default_text,
    duration,
    flag_of,
    load,
    render,
)

P = TypeVar("P", bound=ProcessSettings)
S = TypeVar("S", bound=Settings)
Given: TypeAlias = dict[str, Any]
"""Values of flags by field; None if a flag was not given."""

_PRINT_CONFIG = Parameter(
    "print_config",
    Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool,
        typer.Option(
            "--print-config",
            metavar="",
            help="Show the settings and where each comes from, and exit.",
            rich_help_panel=PROCESS,
        ),
    ],
)

_LONGEST: Final = 30 * 86400.0
"""Seconds: a month."""
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""A label of RFC 1123."""


def default_note(text: str) -> str:
    """A default at the end of an option's help, as Typer shows the defaults that it knows."""
    return rf"[dim]\[default: {text}][/dim]"


def time_option(flag: str, text: str, default: str) -> Any:  # noqa: ANN401 - as `typer.Option`
    """An option that is a time, such as `5s`, in seconds."""
    return typer.Option(
        flag,
        metavar="TIME",
        help=f"{text} {default_note(default)}",
        parser=_seconds,
        show_default=False,
    )


def _seconds(value: str | float) -> float:
    try:
        seconds = duration(value)
    except ValueError as error:
        raise typer.BadParameter(f"{value!r:.80}: {error}") from error
    if not 0.1 <= seconds <= _LONGEST:
        raise typer.BadParameter(f"{value!r:.80} must be a time from 100ms to 30d")
    return seconds


def switch(*flags: str, **given: Any) -> Any:  # noqa: ANN401 - the same
    """An option without a value, for which Typer would show `<bool>`."""
    return typer.Option(*flags, metavar="", **given)


def file_option(*flags: str, text: str, metavar: str = "FILE") -> Any:  # noqa: ANN401 - the same
    """An option for files or folders."""
    return typer.Option(
        *flags,
        metavar=metavar,
        help=text,
        readable=False,  # Typer would report some unreadable files without the reason
        show_default=False,
    )


def manifests_option(*flags: str, text: str) -> Any:  # noqa: ANN401 - the same
    """An option for manifests, which can be repeated; `accelbind.manifests` reads them."""
    where = "A file, a folder with its subfolders or - for stdin; repeat it for more."
    return file_option(*flags, text=f"{text} {where}")


MAPPINGS: Final = "Folder of mappings as YAML."
Mappings = Annotated[Path | None, file_option("--mappings", text=MAPPINGS, metavar="DIR")]


def namespace_option(text: str, default: str) -> Any:  # noqa: ANN401 - the same
    """`--namespace` or `-n`."""
    return typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help=f"{text} {default_note(default)}",
        parser=parse_namespace,
        show_default=False,
    )


def is_namespace(name: str) -> bool:
    """Whether a namespace can have this name."""
    return _NAMESPACE.fullmatch(name) is not None


def parse_namespace(value: str) -> str:
    """The name of a namespace, or a usage error."""
    if not is_namespace(value):
        raise typer.BadParameter(
            f"{value!r:.80} is not the name of a namespace: up to 63 lowercase letters, digits"
            " and '-', such as team-a"
        )
    return value


def settings_command(
    model: type[P], run: Callable[[P, typer.Context], None]
) -> Callable[..., None]:
    """Make the command of a process; the docstring of `run` is its help."""

    def command(
        context: typer.Context,
        *,
        print_config: bool,
        **given: Any,  # noqa: ANN401 - values of flags
    ) -> None:
        settings = load_settings(model, given)
        if print_config:
            typer.echo(render(settings, given), nl=False)
            return
        # The first process of a container ignores SIGTERM unless it handles it. Until the process
        # does so itself, it has nothing to shut down.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        # gRPC writes lines of its own format to stderr; what they say is in our log. It reads this
        # when it is imported.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from services.process import logging  # noqa: PLC0415 - only processes log

        logging.configure(settings.log_level, settings.log_format)
        run(settings, context)

    context = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
    fields = model.model_fields
    # What all processes have comes last in each help.
    names = sorted(fields, key=lambda name: flag_of(fields[name]).group == PROCESS)
    options = [_option(name, fields[name], flag_of(fields[name]).group) for name in names]
    return _with_signature(command, [context, *options, _PRINT_CONFIG], run.__doc__)


def with_settings(
    model: type[Settings],
    *fields: str,
    group: str = "Options",
    defaults: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add some flags of a process to a command, which gets `settings`, or the flags as `given`.

    Args:
        model: The settings.
        fields: Names of the fields.
        group: The panel of the flags.
        defaults: The defaults, in words, that differ here.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(function, eval_str=True).parameters

        def command(**values: Any) -> None:  # noqa: ANN401 - values of flags
            given = {name: values.pop(name) for name in fields}
            if "settings" in own:
                function(**values, settings=load_settings(model, given))
            else:
                function(**values, given=given)

        added = [
            _option(name, model.model_fields[name], group, defaults.get(name)) for name in fields
        ]
        return with_options(command, function, {"given", "settings"}, added)

    return decorate


def with_options(
    command: Callable[..., None],
    function: Callable[..., None],
    replaced: Container[str],
    options: Iterable[Parameter],
) -> Callable[..., None]:
    """A command that calls a function, with options in place of some of its parameters."""
    own = inspect.signature(function, eval_str=True).parameters
    known = [each for name, each in own.items() if name not in replaced]
    ordered = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in (*known, *options)]
    named = _with_signature(command, ordered, function.__doc__)
    named.__name__ = function.__name__
    return named


def require_folder(folder: Path, flag: str = "--root") -> None:
    """Raise InvalidSettings unless the folder that a flag names can be read."""
    if not folder.is_dir():
        raise InvalidSettings(f"{flag} {folder} is not a directory")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise InvalidSettings(f"{flag} {folder}: no permission to read it: run the command as root")


def load_settings(model: type[S], given: Mapping[str, Any]) -> S:
    """Read settings from flags and variables."""
    # A pod's container may have the variables of another process: `accelbind fpga` in a plugin's.
    return load(model, given, others=_fields_of_all)


def _fields_of_all() -> set[str]:
    from certs.settings import CertsSettings  # noqa: PLC0415 - only where a variable is foreign
    from plugin.settings import PluginSettings  # noqa: PLC0415 - the same
    from webhook.settings import WebhookSettings  # noqa: PLC0415 - the same

    models: tuple[type[Settings], ...] = (CertsSettings, PluginSettings, WebhookSettings)
    return {name for model in models for name in model.model_fields}


def _with_signature(
    command: Callable[..., None], parameters: list[Parameter], doc: str | None
) -> Callable[..., None]:
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # PEP 362
    command.__doc__ = joined(doc)
    return command


def _option(name: str, field: FieldInfo, group: str, default: str | None = None) -> Parameter:
    flag = flag_of(field)
    long = f"--{dashed(name)}"
    kind: Any = str  # pydantic reads the value, so that a flag and a variable get the same error
    names = [each for each in (long, flag.short) if each]
    if field.annotation is bool:
        kind, names = bool, [f"{long}/--no-{dashed(name)}"]
    elif get_origin(field.annotation) is tuple:
        kind = list[str]
    option = typer.Option(
        *names,
        help=help_text(field, default or default_text(field)),
        metavar="" if kind is bool else flag.metavar,
        rich_help_panel=None if group == "Options" else group,
        show_default=False,
    )
    annotation = Annotated[kind | None, option]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def help_text(field: FieldInfo, default: str = "") -> str:
    """The help of a flag: the docstring of its field, and the default."""
    words = " ".join((field.description or "").split())
    if get_origin(field.annotation) is tuple:
        words += " Repeat it, or separate with commas."
    return f"{words} {default_note(default)}" if default else words
