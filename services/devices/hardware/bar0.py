"""Prints the first three 64-bit words of the file that its argument names; a program of its own.

A load from a card that has just gone ends a process with SIGBUS, and may take forever. It imports
little, so that it starts fast.
"""

import mmap
import os
import resource
import signal
import stat
import sys
from contextlib import suppress

WORDS = 3
SIZE = 8 * WORDS
SECONDS = 30
"""After which it ends itself."""


def read_words(path: str) -> tuple[int, ...]:
    """Load the words."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size < SIZE:
            raise ValueError(f"not a file of {SIZE} bytes or more")
        with (
            mmap.mmap(descriptor, SIZE, access=mmap.ACCESS_READ) as bar,
            memoryview(bar) as octets,
            octets.cast("Q") as words,
        ):
            # Each is one aligned load of eight bytes, as the card requires.
            return tuple(words[number] for number in range(WORDS))
    finally:
        os.close(descriptor)


def main() -> None:
    """Print the words of the file in hex, or why it can't be read."""
    signal.alarm(SECONDS)
    # It may be killed every minute: no core is written, and with 1 none is piped (core(5)).
    with suppress(ValueError, OSError):  # where none may be written anyway
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    try:
        line = " ".join(f"{word:016x}" for word in read_words(sys.argv[1]))
    except (OSError, ValueError) as error:
        line = str(error)
    print(line)  # noqa: T201 - its result


if __name__ == "__main__":
    main()
