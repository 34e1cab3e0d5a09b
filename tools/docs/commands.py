"""Commands and their options, from the command line."""

import re
from collections.abc import Iterator
from enum import Enum, EnumType
from typing import Any, Final

from typer.main import get_command

from accelbind import hook
from accelbind.cli import COMMANDS, command_line, load
from accelbind.doctor import command as doctor
from tools.docs.settings import MODELS
from tools.docs.texts import code, default_cell, table

_DEFAULT: Final = re.compile(r"\s*\[dim\]\\\[default: (.*)\]\[/dim\]$")
"""How `accelbind.options.default_note` formats a default."""
_MARKUP = re.compile(r"\[/?[a-z]+\]")


_FRONT = """\
### `accelbind`

Options before a command:

"""

_HOOK = f"""\
### `accelbind-hook`

{(hook.__doc__ or "").partition("    accelbind-hook")[0].strip()}

| argument | description |
| --- | --- |
| `SOCKET` | The plugin's socket: `hook.sock` in its `--state-dir`. |
| `REGION` | The region that the CDI file gives the container. |
"""


def sections() -> Iterator[str]:
    """Yield one section per command. Options of processes are in the settings."""
    yield _FRONT + _options(get_command(command_line()))
    for name in COMMANDS:
        yield from _of(f"accelbind {name}", load(name))
    yield _HOOK


def checks() -> str:
    questions = (*doctor.NODE.items(), *doctor.CLUSTER.items())
    rows = ((code(key), doctor.question(find)) for key, find in questions)
    return table(("check", "question"), rows)


def _of(words: str, command: Any) -> Iterator[str]:  # noqa: ANN401 - Typer exports no type of it
    inner = getattr(command, "commands", None)
    if inner is not None:
        for name, each in inner.items():
            yield from _of(f"{words} {name}", each)
        return
    parts = [f"### `{words}`", _summary(command.help)]
    if words.removeprefix("accelbind ") in MODELS:
        parts.append("Options: the [settings](#settings) and `--print-config`.")
    elif rows := _options(command):
        parts.append(rows.rstrip("\n"))
    yield "\n\n".join(parts) + "\n"


def _options(command: Any) -> str:  # noqa: ANN401 - the same
    rows = [_row(param) for param in command.params if not param.hidden]
    return table(("option", "default", "description"), rows) if rows else ""


def _summary(text: str) -> str:
    """Return the help up to its examples."""
    words = _MARKUP.sub("", text.partition("[bold]Example")[0]).strip()
    return words.replace("<", "&lt;")


def _row(param: Any) -> tuple[str, ...]:  # noqa: ANN401 - the same
    flags = [*param.opts, *param.secondary_opts]
    if not flags[0].startswith("-"):
        shown = code(param.metavar or flags[0].upper())
    else:
        value = f" {param.metavar}" if param.metavar else ""
        shown = ", ".join(map(code, flags[:-1])) + (", " if flags[1:] else "")
        shown += code(f"{flags[-1]}{value}")
    kind = param.type_descriptor.annotation
    choices = [code(str(each.value)) for each in _members(kind)]
    said = _DEFAULT.search(param.help or "")
    variable = f"Variable: {code(param.envvar)}." if param.envvar else ""
    words = f"{_DEFAULT.sub('', param.help or '')} {', '.join(choices)} {variable}".strip()
    return shown, default_cell(said[1]) if said else _default(param), words


def _default(param: Any) -> str:  # noqa: ANN401 - the same
    if param.required:
        return "required"
    if isinstance(param.show_default, str):
        return param.show_default
    if param.default in (None, False, (), "") or isinstance(param.default, list):
        return ""
    if param.default is True:
        return "yes"
    value = param.default.value if isinstance(param.default, Enum) else param.default
    return code(f"{value:g}" if isinstance(value, float) else str(value))


def _members(kind: object) -> list[Enum]:
    return list(kind) if isinstance(kind, EnumType) else []
