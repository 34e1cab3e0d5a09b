"""Exit codes of the command line."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes, which scripts rely on."""

    DONE = 0
    """Done, or the answer is yes."""
    WORLD = 1
    """Something outside the request failed, or the answer is no: a refusal, a finding."""
    ASKER = 2
    """The request is wrong: arguments, settings, names. For `explain` and `check` also a file that
    is missing or unreadable, so that 1 is always an answer."""
    BUSY = 3
    """`accelbind fpga`: somebody else has the device."""
    GONE = 4
    """`accelbind fpga`: the device does not exist or was removed."""
    HUNG = 5
    """`accelbind fpga`: the device does not answer in time."""
    OURS = 70
    """A bug in accelbind; `accelbind --debug` shows where."""
    INTERRUPTED = 130
    """Interrupted."""
