"""Ids and names of devices: as DNS labels, and in the order of their numbers."""

import hashlib
import re
from typing import Final

MAX_ID: Final = 56
"""Characters of an id: a DNS label has 63, and replicas add some."""

_NUMBERS: Final = re.compile(r"[0-9]+")
_NOT_IN_LABEL: Final = re.compile(r"[^a-z0-9]+")


def by_number(text: str) -> tuple[str, str]:
    """A key that sorts `ve10` behind `ve2`."""
    return _NUMBERS.sub(lambda number: number[0].zfill(20), text), text


def dns_label(text: str) -> str:
    """A text as a DNS label: `0000:b1:00.5` is `0000-b1-00-5`."""
    plain = _NOT_IN_LABEL.sub("-", text.lower()).strip("-")
    if plain and len(plain) <= MAX_ID:
        return plain
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{plain[: MAX_ID - 9].rstrip('-')}-{digest}".lstrip("-")


def dra_name(of: str, device_id: str) -> str:
    """The name of a type's device in DRA."""
    return dns_label(f"{of}-{device_id}")
