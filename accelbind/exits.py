"""Exit codes of the command line."""

from enum import IntEnum


class Exit(IntEnum):
    """What a command ends with; scripts rely on these."""

    DONE = 0
    """Done, or the answer is yes."""
    WORLD = 1
    """The world stands in the way, or the answer is no: a refusal, something found."""
    ASKER = 2
    """The request itself is wrong: arguments, settings, names; for `explain` and `check` also a
    file that isn't there or can't be read, so that 1 always means an answer."""
    BUSY = 3
    """`accelbind fpga`: somebody else has the device."""
    GONE = 4
    """`accelbind fpga`: there is no such device, or not any more."""
    HUNG = 5
    """`accelbind fpga`: the device gives no answer in time."""
    OURS = 70
    """A mistake of accelbind's own; `--debug` before the command shows where."""
    INTERRUPTED = 130
    """Interrupted."""
