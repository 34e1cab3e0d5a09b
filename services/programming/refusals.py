"""Why the hardware didn't reconfigure: what it says in its registers, in words."""

from collections.abc import Iterator
from typing import Final

from services.devices.health import register_value
from services.process.text import clip, plain
from services.programming.port import DeviceFiles

PR_ERRORS: Final = (
    "operation error",
    "CRC error",
    "incompatible bitstream",
    "IP protocol error",
    "FIFO overflow",
    "time-out",
    "secure load error",
)
"""What the bits of a status mean, from bit 0 (`FME_PR_ERR`, and the OPAE SDK's `reconf.c`)."""

_REGISTERS: Final = ("errors", "errors/fme-errors")
_MANAGERS: Final = ("fpga_manager", "dfl-fme-mgr")
_MAX_REGISTERS: Final = 16
_MAX_STATUS: Final = 200
_MAX_SAID: Final = 500
"""Characters: what to do comes after it, in an event of a pod, and those end somewhere."""


def why_refused(engine: DeviceFiles, status: int) -> str:
    """What the hardware says of its last reconfiguration.

    Args:
        engine: Files of the management engine.
        status: What the driver gave back, 0 where it gives nothing.

    Returns:
        Empty if it says nothing.
    """
    said = [*_status(status), *_managers(engine), *_registers(engine)]
    return clip("; ".join(said), _MAX_SAID)


def _status(status: int) -> Iterator[str]:
    words = [word for bit, word in enumerate(PR_ERRORS) if status >> bit & 1]
    rest = status >> len(PR_ERRORS) << len(PR_ERRORS)
    if rest:
        words.append(f"status {rest:#x}")
    if words:
        yield ", ".join(words)


def _managers(engine: DeviceFiles) -> Iterator[str]:
    """What the FPGA manager says, the only place under the in-tree driver: a line a kind."""
    for name in engine.names():
        if not name.startswith(_MANAGERS):
            continue
        folder = name if name == "fpga_manager" else f"{name}/fpga_manager"
        for manager in engine.names(folder):
            text = engine.text(f"{folder}/{manager}/status")
            if text and register_value(text) != 0:
                lines = ", ".join(filter(None, map(str.strip, text.splitlines())))
                yield plain(lines, _MAX_STATUS)


def _registers(engine: DeviceFiles) -> Iterator[str]:
    shown = 0
    for folder in _REGISTERS:
        for name in engine.names(folder):
            if not name.endswith("errors") and name != "first_error":
                continue
            value = register_value(engine.text(f"{folder}/{name}"))
            if value and shown < _MAX_REGISTERS:
                shown += 1
                yield f"{folder}/{name} of {engine.name} reads {value:#x}"
