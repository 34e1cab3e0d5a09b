"""From the bytes of a file to a bitstream, and from ids to where a file of it is stored.

Storage, as the public suite has it: `<interface id>/<AFU id>.gbs`, or
`<interface id>/<program id>.aocx` for OpenCL; a GBS comes first. Files that users put there may
spell ids as tools print them: in capitals, with `-`.
"""

import re
from collections.abc import Iterator

from services.bitstreams.aocx import parse_aocx
from services.bitstreams.elf import is_elf
from services.bitstreams.gbs import is_gbs, parse_gbs
from services.bitstreams.model import Bitstream, BitstreamKind
from services.names import canonical_id
from services.process.errors import InvalidBitstream

_INTERFACE = re.compile(r"[0-9a-f]{8,32}")
_GZIP = b"\x1f\x8b"
_STORED = re.compile(r"([0-9a-f]{8,40})\.(gbs|aocx)")


def parse(data: bytes | memoryview) -> Bitstream:
    """Read all bytes of a GBS or an AOCX."""
    if is_gbs(data):
        return parse_gbs(data)
    if is_elf(data):
        return parse_aocx(data)
    first = bytes(data[:4])
    if not first:
        what = "it is empty"
    elif first.startswith(_GZIP):
        what = "it is packed with gzip, so unpack it first"
    else:
        what = f"it starts with {first.hex(' ')}"
    raise InvalidBitstream(f"it is neither a GBS nor an AOCX: {what}")


def stored_names(interface_id: str, function_id: str) -> Iterator[tuple[str, BitstreamKind]]:
    """Where below the storage's folder the file of canonical ids may be, the best place first."""
    for kind in (BitstreamKind.GBS, BitstreamKind.AOCX):
        yield f"{interface_id}/{function_id}.{kind}", kind


def stored_name(bitstream: Bitstream) -> str:
    """Where below the storage's folder this bitstream belongs."""
    return f"{bitstream.interface_id}/{bitstream.function_id}.{bitstream.kind}"


def interface_of(folder_name: str) -> str | None:
    """The interface id that the name of a folder in the storage spells; None if none."""
    spelt = canonical_id(folder_name)
    return spelt if _INTERFACE.fullmatch(spelt) else None


def function_of(file_name: str) -> tuple[str, BitstreamKind] | None:
    """The function id and the kind that the name of a stored file spells; None if none."""
    match = _STORED.fullmatch(canonical_id(file_name))
    return (match[1], BitstreamKind(match[2])) if match else None
