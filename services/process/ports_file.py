"""Tells others which ports a process got when it asked for any free one."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from services.process.errors import WorldError
from services.process.files import replace_file


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
        content = json.dumps(dict(ports), sort_keys=True) + "\n"
        replace_file(path, content.encode(), mode=0o644, writer=str(os.getpid()))
    except OSError as error:
        raise WorldError(f"can't write the ports file {path}: {error.strerror}") from error
