"""What `accelbind webhook` and `accelbind certs run` are told in the same words."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

LogLevel = Annotated[
    str | None,
    typer.Option(metavar="LEVEL", help="debug, info, warning or error. (default: info)"),
]
LogFormat = Annotated[
    str | None,
    typer.Option(
        metavar="FORMAT", help="json, console, or auto: console on a terminal. (default: auto)"
    ),
]
PortsFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Write the ports in use into this file, as JSON.", readable=False
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Settings as YAML, by the flags' names.", readable=False),
]
PrintConfig = Annotated[
    bool,
    typer.Option("--print-config", help="Show what counts and where it is from, and exit."),
]

_NO_SETTINGS: Final = frozenset({"config", "print_config"})


def given(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The settings among a command's flags; a list that nobody filled counts as not given."""
    return {
        name: (tuple(value) or None) if isinstance(value, list) else value
        for name, value in flags.items()
        if name not in _NO_SETTINGS
    }
