"""From the value of a YAML document to a device type, or to the field that is wrong and why."""

import re
from typing import Final

import msgspec

from services.devices.types.model import DeviceType
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


def parse(value: object, *, domains: tuple[str, ...] = ()) -> DeviceType:
    """A device type; with `domains`, its resource must be in one of them.

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
    return parsed


def _invalid(text: str) -> InvalidType:
    """The error of msgspec, or one of ours in it, as field and message."""
    match = _WHERE.fullmatch(text)
    what, at = (match["what"], match["at"] or "") if match else (text, "")
    own = _OWN_FIELD.fullmatch(what)
    if own:
        what, at = own["text"], f"{at}{own['field']}"
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", what, re.DOTALL)
    if unknown:
        what, at = "there is no such field", f"{at}.{plain(unknown[1])}"
    if re.fullmatch("Expected `str`, got `(?:int|float|bool)`", what):
        what += ": put it into quotes"
    return InvalidType(at.removeprefix("."), what.strip().replace("\n", " ")[:400])
