"""The node's mark of mode `regiondevel`: containers have programmed its ports themselves.

A container of that mode can load an image that shows any AFU ID, so what a port shows afterwards
says nothing. The mark covers every port of the node, also one whose card is away or that a virtual
function has at that moment. It is a file with one of two contents:

    {"since": null}      mode regiondevel is served: the content of no port is known
    {"since": "5f0c…"}   the mode is over: only what was recorded under this token is known

A port is known again once a function has been programmed and verified under the token. Without the
file the node has never served that mode. A file that cannot be read counts as the first content.
The mark is never removed: FPGAs can keep their content through a warm reboot.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.process.files import replace_file

FILE: Final = "untrusted.json"
"""In a folder that survives reboots, and in the folder of locks and records."""

_MOST: Final = 4096


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark.

    Args:
        since: The token under which programming counts; None while mode regiondevel is served.
    """

    since: str | None = None


def read_mark(folder: Path) -> Mark | None:
    """The mark in a folder; None if there is none.

    Args:
        folder: The folder that holds it.
    """
    try:
        with (folder / FILE).open("rb") as file:
            content = json.loads(file.read(_MOST))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError):
        return Mark()
    since = content.get("since") if isinstance(content, dict) else None
    return Mark(since if isinstance(since, str) and since else None)


def read_marks(*folders: Path) -> Mark | None:
    """The mark of a node that has it in several folders; None if none of them has one.

    Where they differ, writing one of them has failed: then the content of no port is known.

    Args:
        folders: The folders that hold it.
    """
    marks = {mark for mark in map(read_mark, folders) if mark is not None}
    if not marks:
        return None
    return marks.pop() if len(marks) == 1 else Mark()


def write_mark(folder: Path, mark: Mark, *, parents: bool = False) -> None:
    """Write a mark, unless it is there already.

    Args:
        folder: The folder that holds it, which is made if it is not there.
        mark: The mark.
        parents: Whether the folders above it are made too.

    Raises:
        OSError: It cannot be written; what was there is still there.
    """
    if read_mark(folder) == mark and (folder / FILE).is_file():
        return
    folder.mkdir(mode=0o755, parents=parents, exist_ok=True)
    replace_file(folder / FILE, json.dumps({"since": mark.since}).encode() + b"\n", mode=0o600)


def closed_mark() -> Mark:
    """A mark for the end of mode regiondevel, with a token that no record has yet."""
    return Mark(os.urandom(16).hex())
