"""Settings of the processes, from their models."""

from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from accelbind.flags import help_text
from certs.settings import CertsSettings
from plugin.settings import PluginSettings
from services.process.settings import (
    TIME,
    Settings,
    dashed,
    default_text,
    flag_of,
    value_text,
    variable,
)
from tools.docs.texts import code, default_cell, table
from webhook.settings import WebhookSettings

MODELS: Final[dict[str, type[Settings]]] = {
    "webhook": WebhookSettings,
    "plugin": PluginSettings,
    "certs run": CertsSettings,
}
"""Command of the process → its settings."""

_BOUNDS: Final = (("ge", "{} or more"), ("gt", "more than {}"), ("le", "up to {}"))
_SIMPLE: Final = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "true, false",
    Path: "path",
}


def settings_table(command: str) -> str:
    """Return the settings of a process."""
    return table(
        ("flag", "variable", "type", "default", "description"),
        (_row(name, field) for name, field in MODELS[command].model_fields.items()),
    )


def _row(name: str, field: FieldInfo) -> tuple[str, ...]:
    short = flag_of(field).short
    flags = [f"--{dashed(name)}"]
    if field.annotation is bool:
        flags.append(f"--no-{dashed(name)}")
    return (
        ", ".join(map(code, [*flags, short] if short else flags)),
        code(variable(name)),
        type_of(field),
        default_cell(default_text(field)),
        help_text(field),
    )


def type_of(field: FieldInfo) -> str:
    """Return the type in words, with its bounds."""
    if words := _choices(field):
        return ", ".join(map(code, words))
    kind, metadata = _plain(field.annotation, list(field.metadata))
    is_time = flag_of(field).metavar == TIME
    limits = {
        bound: getattr(each, bound)
        for each in metadata
        for bound, _ in _BOUNDS
        if getattr(each, bound, None) is not None
    }
    bounds = [
        text.format(value_text(limits[bound], field)) for bound, text in _BOUNDS if bound in limits
    ]
    return ", ".join(["time" if is_time else _named(kind), *bounds])


def _choices(field: FieldInfo) -> list[str]:
    """Return the values of a field, if it has a fixed set."""
    kind = field.annotation
    if get_origin(kind) is Literal:
        return [str(each) for each in get_args(kind)]
    members = getattr(kind, "__members__", {})
    return [str(each.value) for each in members.values()]


def _plain(annotation: Any, metadata: list[Any]) -> tuple[Any, list[Any]]:  # noqa: ANN401 - a type
    """Return a type without None and annotations, and the annotations."""
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
    if get_origin(kind) is tuple:
        return "list (`a,b`)"
    raise TypeError(f"a setting of type {kind}: give it a name")
