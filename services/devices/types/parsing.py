"""From the value of a YAML document to a device type, or to the field that is wrong and why."""

import difflib
import re
from collections.abc import Callable, Collection, Iterator
from types import UnionType
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec

from services.devices.types.model import (
    Attribute,
    ClassEntry,
    Condition,
    DeviceType,
    Metadata,
    Pci,
    Resource,
    Rule,
    Sharing,
    Spec,
    Term,
    Usb,
    Variable,
)
from services.devices.types.node_source import NodeSource
from services.devices.types.values import PATTERNS
from services.process.errors import InvalidInput
from services.process.text import listing, plain, quote


class InvalidType(InvalidInput):
    """A device type that can't be used."""

    def __init__(self, field_path: str, message: str) -> None:
        super().__init__(f"{field_path}: {message}" if field_path else message)
        self.field = field_path
        self.message = message


_WHERE: Final = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<at>[^`]*)`)?", re.DOTALL)
_OWN_FIELD: Final = re.compile(r"(?P<field>(?:\.[A-Za-z]+(?:\[\d+\])?)+): (?P<text>.*)", re.DOTALL)


def parse(value: object) -> DeviceType:
    """A device type.

    Raises:
        InvalidType: It can't be used.
    """
    try:
        return msgspec.convert(value, DeviceType)
    except msgspec.ValidationError as error:
        raise _invalid(str(error))[0] from error


def _of_node(
    of: DeviceType, domains: tuple[str, ...], allowed: Collection[str]
) -> Iterator[InvalidType]:
    """Yield what the plugin's settings have against a type."""
    if domains and of.spec.resource.domain not in domains:
        text = f"{quote(of.spec.resource.domain)} is not {listing(domains, last='or')}"
        yield InvalidType("spec.resource.domain", text)
    yield from (InvalidType(field, why) for field, why in of.spec.denied(allowed))


_PARTS: Final[dict[str, type[msgspec.Struct]]] = {
    "": DeviceType,
    "metadata": Metadata,
    "spec": Spec,
    "resource": Resource,
    "sharing": Sharing,
    "match": Term,
    "pci": Pci,
    "usb": Usb,
    "class": ClassEntry,
    "where": Condition,
    "attributes": Attribute,
    "health": Rule,
    "nodes": NodeSource,
    "env": Variable,
}
"""The objects of a file, by the field that they are in."""
_MOST: Final = 20
_LONGEST: Final = 400


def find_problems(
    value: object, *, domains: tuple[str, ...], allowed: Collection[str]
) -> list[InvalidType]:
    """Return what is wrong with a device type: with each of its fields, or with the whole.

    With `domains`, its resource must be in one of them; `allowed` are words of the plugin's setting
    about nodes.
    """
    found = _of_struct(value, DeviceType, "") or [*_of_node(parse(value), domains, allowed)]
    return found[:_MOST]


def _of_struct(value: object, kind: type[msgspec.Struct], place: str) -> list[InvalidType]:
    """What is wrong with an object: with its fields, or else with what they are together."""
    found: list[InvalidType] = []
    if isinstance(value, dict):
        fields = {each.encode_name: each for each in msgspec.structs.fields(kind)}
        for name, part in value.items():
            if name in fields:
                found += _of_field(part, fields[name].type, f"{place}.{name}".removeprefix("."))
            else:
                found += _invalid(f"Object contains unknown field `{name}`", place)
        if value.keys() <= fields.keys():  # another may be one that is missing, misspelt
            for name, each in fields.items():
                if each.required and name not in value:
                    found += _invalid(f"Object missing required field `{name}`", place)
    return found or _of_value(value, kind, place)


def _of_field(value: object, kind: Any, place: str) -> list[InvalidType]:  # noqa: ANN401 - a type
    inner, is_list = _struct_in(kind)
    found: list[InvalidType] = []
    if inner is not None and not is_list and value is not None:
        found = _of_struct(value, inner, place)
    elif inner is not None and isinstance(value, list):
        items = (_of_struct(each, inner, f"{place}[{n}]") for n, each in enumerate(value))
        found = [problem for each in items for problem in each]
    return found or _of_value(value, kind, place)


def _of_value(value: object, kind: Any, place: str) -> list[InvalidType]:  # noqa: ANN401 - a type
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return _invalid(str(error), place)
    return []


def _struct_in(kind: Any) -> tuple[type[msgspec.Struct] | None, bool]:  # noqa: ANN401 - a type
    """The kind of objects in a field, if it has any, and whether the field is a list of them."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    is_list = get_origin(kind) is tuple
    inner = get_args(kind)[0] if is_list or get_origin(kind) is UnionType else kind
    is_struct = isinstance(inner, type) and issubclass(inner, msgspec.Struct)
    return (inner if is_struct else None), is_list


def _invalid(text: str, root: str = "") -> list[InvalidType]:
    """The error of msgspec, or ours in it, as fields and messages; there is at least one."""
    match = _WHERE.fullmatch(text)
    what, at = (match["what"], match["at"] or "") if match else (text, "")
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", what, re.DOTALL)
    if unknown:
        path = f"{root}{at}".removeprefix(".")
        fields = _part_of(path).__struct_encode_fields__
        near = difflib.get_close_matches(unknown[1], fields, n=1)
        meant = f"did you mean {near[0]}?" if near else f"there are {listing(fields)}"
        path = f"{path}.{plain(unknown[1])}".removeprefix(".")
        return [InvalidType(path, f"there is no such field; {meant}"[:_LONGEST])]
    found = []
    for line in what.split("\n"):
        own = _OWN_FIELD.fullmatch(line)
        of, said = (own["field"], own["text"]) if own else ("", line)
        path = f"{root}{at}{of}".removeprefix(".")
        found.append(InvalidType(path, _in_words(said, path).strip()[:_LONGEST]))
    return found


def _part_of(path: str) -> type[msgspec.Struct]:
    """The object at a path, by the field that it is in."""
    return _PARTS.get(re.sub(r"\[\d+\]", "", path).rpartition(".")[2], DeviceType)


_KINDS: Final = {
    "str": "text",
    "int": "a whole number",
    "float": "a decimal number",
    "bool": "true or false",
    "array": "a list, in []",
    "object": "an object, in {}",
    "null": "empty",
}
_LENGTHS: Final = {"<=": "at most", ">=": "at least"}
_OF_LENGTHS: Final = {"array": "entries", "str": "characters"}
_WORDS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str], str], str]], ...]] = (
    (
        re.compile(r"Expected `str` matching regex '(.*)'", re.DOTALL),
        lambda match, _: f"must be {PATTERNS[match[1]]}",
    ),
    (
        re.compile(r"Object missing required field `(.*)`"),
        lambda match, _: f"{match[1]} is missing",
    ),
    (
        re.compile(r"Expected `str(?: \| null)?`, got `(int|float|bool)`"),
        lambda match, _: f"must be text, not {_KINDS[match[1]]}: put it into quotes",
    ),
    (
        re.compile(r"Expected `([a-z |]+)`, got `(\w+)`"),
        lambda match, _: f"must be {_kinds(match[1])}, not {_KINDS.get(match[2], match[2])}",
    ),
    (
        re.compile("Expected `int` (<=|>=) (-?[0-9]+)"),
        lambda match, _: f"must be {_LENGTHS[match[1]]} {match[2]}",
    ),
    (
        re.compile(r"Invalid enum value (.*)"),
        lambda match, path: f"must be {_choices(path)}, not {match[1]}",
    ),
    (
        re.compile(r"Expected `(array|str)` of length (<=|>=) (\d+)"),
        lambda match, _: f"must have {_LENGTHS[match[2]]} {match[3]} {_OF_LENGTHS[match[1]]}",
    ),
)
"""Messages of msgspec, and the same as people say it; the second argument is the field's path."""


def _in_words(what: str, path: str) -> str:
    for message, say in _WORDS:
        if match := message.fullmatch(what):
            return say(match, path)
    return what


def _kinds(union: str) -> str:
    """The kinds of values of a field that may have several; that it may be left out is known."""
    names = [each for each in union.split(" | ") if each != "null"]
    return listing([_KINDS[each] for each in names], last="or")


def _choices(path: str) -> str:
    """The values of a field that has a few."""
    parent, _, name = path.rpartition(".")
    part = _part_of(parent)
    named = dict(zip(part.__struct_encode_fields__, part.__struct_fields__, strict=True))
    return listing([*map(str, get_args(part.__annotations__[named[name]]))], last="or")
