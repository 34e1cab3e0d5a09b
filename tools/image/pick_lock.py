"""Copies what a lock file says of some packages and of what these need, to install them by hash.

    python3 tools/image/pick_lock.py requirements-dev.lock hatchling

Which package is needed by which stands in the lock's comments (`# via`).
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

_PIN = re.compile(r"([A-Za-z0-9._-]+)==")
_VIA = re.compile(r"    #   (?:via )?([A-Za-z0-9._-]+)(?: .*)?|    # via ([A-Za-z0-9._-]+).*")


def pick(lock: str, names: Sequence[str]) -> str:
    """The entries of these packages and of what they need, in the lock's order."""
    entries: dict[str, list[str]] = {}
    asked_by: dict[str, set[str]] = {}
    name = ""
    for line in lock.splitlines():
        if match := _PIN.match(line):
            name = match[1]
            entries[name], asked_by[name] = [], set()
        if match := _VIA.fullmatch(line):
            asked_by[name].add(match[1] or match[2])
        elif name and not line.lstrip().startswith("#"):
            entries[name].append(line)
    if missing := set(names) - entries.keys():
        raise KeyError(f"not in the lock file: {', '.join(sorted(missing))}")
    wanted, before = set(names), set[str]()
    while wanted != before:
        before = set(wanted)
        wanted |= {each for each, askers in asked_by.items() if askers & before}
    return "\n".join(line for each, lines in entries.items() if each in wanted for line in lines)


if __name__ == "__main__":
    print(pick(Path(sys.argv[1]).read_text(), sys.argv[2:]))
