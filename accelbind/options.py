"""Options that several commands share, and how an option's default and time are written."""

import re
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from services.process.settings import duration

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
        parser=_namespace,
        show_default=False,
    )


def is_namespace(name: str) -> bool:
    """Whether a namespace can have this name."""
    return _NAMESPACE.fullmatch(name) is not None


def _namespace(value: str) -> str:
    if not is_namespace(value):
        raise typer.BadParameter(
            f"{value!r:.80} is not the name of a namespace: up to 63 lowercase letters, digits"
            " and '-', such as team-a"
        )
    return value
