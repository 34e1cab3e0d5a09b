"""Settings of the processes, from their models and their flags."""

import re
from collections.abc import Iterator
from datetime import timedelta
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from accelbind.cli import load
from certs.settings import CertsSettings, duration_text
from plugin.settings import PluginSettings
from services.process.settings import PREFIX, Settings
from tools.docs.texts import code, table
from webhook.settings import WebhookSettings

MODELS: Final[dict[str, type[Settings]]] = {
    "webhook": WebhookSettings,
    "plugin": PluginSettings,
    "certs run": CertsSettings,
}
"""By the command that runs the process."""

DEFAULT_IN_HELP: Final = re.compile(r"\s*\(default: (.*)\)$")
"""How help that has no other place for it tells a default."""
_BOUNDS: Final = (("ge", "{} or more"), ("gt", "more than {}"), ("le", "up to {}"))
_SIMPLE: Final = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "true, false",
    Path: "path",
    timedelta: "time",
}


def sections() -> Iterator[str]:
    """A section a process."""
    for command, model in MODELS.items():
        yield f"### `accelbind {command}`\n\n" + table(
            ("flag", "variable", "key of the file", "type", "default", "what it does"),
            (_row(command, name, field) for name, field in model.model_fields.items()),
        )


def command_of(words: str) -> Any:  # noqa: ANN401 - Typer exports no type of its commands
    """A command by its words, such as `certs run`."""
    name, *rest = words.split()
    found = load(name)
    for word in rest:
        found = found.commands[word]
    return found


def _row(command: str, name: str, field: FieldInfo) -> tuple[str, ...]:
    (option,) = [each for each in command_of(command).params if each.name == name]
    flags = ", ".join(map(code, (*option.opts, *option.secondary_opts)))
    return (
        flags,
        code(f"{PREFIX}{name.upper()}"),
        code(name.replace("_", "-")),
        type_of(field),
        _default(field, option),
        DEFAULT_IN_HELP.sub("", option.help),
    )


def type_of(field: FieldInfo) -> str:
    """What may stand there, in words, with its bounds."""
    kind, metadata = _plain(field.annotation, list(field.metadata))
    limits = {
        bound: getattr(each, bound)
        for each in metadata
        for bound, _ in _BOUNDS
        if getattr(each, bound, None) is not None
    }
    words = [text.format(_shown(limits[bound])) for bound, text in _BOUNDS if bound in limits]
    return ", ".join([_named(kind), *words])


def _plain(annotation: Any, metadata: list[Any]) -> tuple[Any, list[Any]]:  # noqa: ANN401 - a type
    """A type without None around it and without what is annotated, which is gathered."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *more = get_args(annotation)
            for each in more:
                metadata.extend(each.metadata if isinstance(each, FieldInfo) else [each])
        elif get_origin(annotation) in (Union, UnionType):
            annotation = next(each for each in get_args(annotation) if each is not type(None))
        else:
            return annotation, metadata


def _named(kind: Any) -> str:  # noqa: ANN401 - a type
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if get_origin(kind) is Literal:
        return ", ".join(code(each) for each in get_args(kind))
    if get_origin(kind) is tuple:
        return "list (`a,b`)"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(code(each.value) for each in kind)
    raise TypeError(f"a setting of type {kind}: tell what to call it")


def _default(field: FieldInfo, option: Any) -> str:  # noqa: ANN401 - see above
    """The model's default; the flag's words where that is computed, or nothing."""
    said = DEFAULT_IN_HELP.search(option.help)
    words = option.show_default if isinstance(option.show_default, str) else ""
    words = words or (said[1] if said else "")
    if field.default in (None, (), PydanticUndefined):
        return words
    return code(_shown(field.default))


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, timedelta):
        return duration_text(value)
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
