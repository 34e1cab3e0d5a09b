"""Tells others which ports a process got when it asked for any free one."""

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from services.domain.errors import WorldError


def write_ports(path: Path | None, ports: Mapping[str, int]) -> None:
    """Writes the ports as a JSON object, whole or not at all: a reader that polls sees no half.

    Args:
        path: Where to; nothing happens with None. An existing file is replaced.
        ports: By purpose, e.g. `{"admission": 8443, "metrics": 9101}`.

    Raises:
        WorldError: The file can't be written.
    """
    if path is None:
        return
    try:
        _replace(path, json.dumps(dict(ports), sort_keys=True) + "\n")
    except OSError as error:
        raise WorldError(f"can't write the ports file {path}: {error.strerror}") from error


def _replace(path: Path, text: str) -> None:
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        Path(scratch).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(scratch).unlink()
        raise
