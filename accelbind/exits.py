"""Exit codes of the command line: yes, no and no answer are as of grep and diff."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes, which scripts rely on."""

    YES = 0
    """Done, or the answer is yes."""
    NO = 1
    """The answer is no: a refusal, a finding, a device that refuses."""
    UNKNOWN = 2
    """There is no answer: the request is wrong (arguments, settings, names), or something that it
    needs can't be read, written or reached."""
    BUSY = 3
    """`accelbind fpga`: somebody else has the device."""
    GONE = 4
    """`accelbind fpga`: the device does not exist or was removed."""
    NO_ANSWER = 5
    """`accelbind fpga`: the device does not answer in time."""
    OURS = 70
    """A bug in accelbind; `accelbind --debug` shows where."""
    INTERRUPTED = 130
    """Interrupted."""
