"""A page for each command: its text, options or settings, from the command line."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal, get_args, get_origin

from typer.main import get_command

from accelbind import hook
from accelbind.cli import COMMANDS, command_line, load
from accelbind.doctor import command as doctor
from accelbind.doctor.model import question
from tools.docs.settings import MODELS, settings_table
from tools.docs.texts import code, default_cell, table

_DEFAULT: Final = re.compile(r"\s*\[dim\]\\\[default: (.*)\]\[/dim\]$")
"""How `accelbind.flags.default_note` formats a default."""
_MARKUP = re.compile(r"\[/?[a-z]+\]")


_HOOK = f"""\
{(hook.__doc__ or "").partition("    accelbind-hook")[0].strip()}

| argument | description |
| --- | --- |
| `SOCKET` | The plugin's socket: `hook.sock` in its `--state-dir`. |
| `REGION` | The region that the CDI file gives the container. |
"""

_HEAD: Final = "<!-- Generated from the code by `make docs`. -->\n\n# {}\n\n{}"
_CHECKS: Final = "\n## Checks\n\nFor `--only`, `--skip`, and `id` in the JSON.\n\n"


def pages() -> dict[str, Callable[[], str]]:
    """Return the generators of all pages by their paths."""
    found: dict[str, Callable[[], str]] = {
        f"docs/commands/{name}.md": partial(_page, name) for name in COMMANDS
    }
    return found | {"docs/commands/hook.md": partial(_HEAD.format, "accelbind-hook", _HOOK)}


def overview() -> str:
    """Return the options before a command, and a list of the commands."""
    rows = [
        (f"[`accelbind {name}`](commands/{name}.md)", each.summary)
        for name, each in COMMANDS.items()
    ]
    rows.append(
        ("[`accelbind-hook`](commands/hook.md)", "Call the plugin before a container starts.")
    )
    front = _options(get_command(command_line()))
    return f"{table(('command', ''), rows)}\nOptions before a command:\n\n{front}"


def _page(name: str) -> str:
    command = load(name)
    inner = getattr(command, "commands", None)
    if inner is None:
        text = _text(name, command) + (_CHECKS + checks() if name == "doctor" else "")
    else:
        parts = [
            f"## accelbind {name} {each}\n\n{_text(f'{name} {each}', of)}"
            for each, of in inner.items()
        ]
        text = "\n".join([f"{_summary(command.help)}\n", *parts])
    return _HEAD.format(f"accelbind {name}", text)


def _text(words: str, command: Any) -> str:  # noqa: ANN401 - Typer exports no type of it
    options = settings_table(words) if words in MODELS else _options(command)
    return f"{_summary(command.help)}\n\n{options}".rstrip("\n") + "\n"


def checks() -> str:
    questions = (*doctor.NODE.items(), *doctor.CLUSTER.items())
    rows = ((code(key), question(find)) for key, find in questions)
    return table(("check", "question"), rows)


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
    choices = map(code, _choices(kind))
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
    return code(f"{param.default:g}" if isinstance(param.default, float) else str(param.default))


def _choices(kind: object) -> list[str]:
    """The words that an option takes, of a `Literal` that may be optional."""
    kinds = (kind, *get_args(kind))
    return [word for each in kinds if get_origin(each) is Literal for word in get_args(each)]
