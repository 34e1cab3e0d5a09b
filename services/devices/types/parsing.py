"""From the value of a YAML document to a device type, or to the field that is wrong and why."""

import difflib
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, get_args

import msgspec

from services.devices.nodes import SETTINGS
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


def parse(
    value: object, *, domains: tuple[str, ...] = (), allowed: Collection[str] = SETTINGS
) -> DeviceType:
    """A device type; with `domains`, its resource must be in one of them.

    `allowed` are words of the plugin's setting about nodes.

    Raises:
        InvalidType: It can't be used.
    """
    try:
        parsed = msgspec.convert(value, DeviceType)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from error
    if domains and parsed.spec.resource.domain not in domains:
        text = f"{quote(parsed.spec.resource.domain)} is not {listing(domains, last='or')}"
        raise InvalidType("spec.resource.domain", text)
    for field, why in parsed.spec.denied(allowed):
        raise InvalidType(field, why)
    return parsed


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
_LISTED: Final = ("match", "attributes", "health", "nodes", "env")
_MOST: Final = 20


def find_problems(
    value: object, *, domains: tuple[str, ...] = (), allowed: Collection[str] = SETTINGS
) -> list[InvalidType]:
    """Return what is wrong with a device type: a problem of each of its parts, or of the whole."""
    found = [*_of_parts(value)]
    try:
        parse(value, domains=domains, allowed=allowed)
    except InvalidType as error:
        if error.field not in {each.field for each in found}:
            found.append(error)
    return found[:_MOST]


def _of_parts(value: object) -> Iterator[InvalidType]:
    if not isinstance(value, dict):
        return
    spec = value.get("spec")
    yield from _unknown(value, "")
    yield from _of_part(value, "metadata", "")
    if isinstance(spec, dict):
        yield from _unknown(spec, "spec")
        for name in ("resource", "sharing", *_LISTED):
            yield from _of_part(spec, name, "spec.")


def _unknown(value: dict[object, object], place: str) -> Iterator[InvalidType]:
    for name in value:
        if name not in _part_of(place).__struct_encode_fields__:
            yield _invalid(f"Object contains unknown field `{name}`", place)


def _of_part(value: dict[object, object], name: str, root: str) -> Iterator[InvalidType]:
    """Yield what is wrong with an object in a field, or with each object of its list."""
    part = value.get(name)
    if part is None:
        return
    is_list = name in _LISTED and isinstance(part, list)
    items = enumerate(part) if is_list and isinstance(part, list) else ()
    places = [(f"{root}{name}[{number}]", each) for number, each in items]
    of: Any = _PARTS[name]
    if not is_list:
        places = [(f"{root}{name}", part)]
        of = tuple[of, ...] if name in _LISTED else of
    for place, each in places:
        try:
            msgspec.convert(each, of)
        except msgspec.ValidationError as error:
            yield _invalid(str(error), place)


def _invalid(text: str, root: str = "") -> InvalidType:
    """The error of msgspec, or one of ours in it, as field and message."""
    match = _WHERE.fullmatch(text)
    what, at = (match["what"], match["at"] or "") if match else (text, "")
    own = _OWN_FIELD.fullmatch(what)
    if own:
        what, at = own["text"], f"{at}{own['field']}"
    path = f"{root}{at}".removeprefix(".")
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", what, re.DOTALL)
    if unknown:
        near = difflib.get_close_matches(unknown[1], _part_of(path).__struct_encode_fields__, n=1)
        what = f"there is no such field{f'; did you mean {near[0]}?' if near else ''}"
        path = f"{path}.{plain(unknown[1])}".removeprefix(".")
    return InvalidType(path, _in_words(what, path).strip().replace("\n", " ")[:400])


def _part_of(path: str) -> type[msgspec.Struct]:
    """The object at a path, by the field that it is in."""
    return _PARTS.get(re.sub(r"\[\d+\]", "", path).rpartition(".")[2], DeviceType)


_OF_KINDS: Final = {"array": "a list, in []", "object": "an object, in {}"}
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
        re.compile("Expected `str`, got `(?:int|float|bool)`"),
        lambda match, _: f"{match[0]}: put it into quotes",
    ),
    (
        re.compile(r"Invalid enum value (.*)"),
        lambda match, path: f"must be {_choices(path)}, not {match[1]}",
    ),
    (
        re.compile(r"Expected `(array|object)`, got `(\w+)`"),
        lambda match, _: f"must be {_OF_KINDS[match[1]]}, not `{match[2]}`",
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


def _choices(path: str) -> str:
    """The values of a field that has a few."""
    parent, _, name = path.rpartition(".")
    part = _part_of(parent)
    named = dict(zip(part.__struct_encode_fields__, part.__struct_fields__, strict=True))
    return listing([*map(str, get_args(part.__annotations__[named[name]]))], last="or")
