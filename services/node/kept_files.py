"""The files and sockets that a process keeps on its node: what was restored, and what is missing.

Whoever keeps one compares it with what it should be after each scan, and reports here.
"""

from enum import StrEnum
from pathlib import Path

import structlog
from prometheus_client import Counter

log = structlog.get_logger(component="node")


class Kept(StrEnum):
    """A kind of files; the values are labels of a metric."""

    CDI_FPGA = "cdi-fpga"
    """The CDI file of the node's FPGAs."""
    CDI_DEVICE = "cdi-device"
    """The CDI file of the devices of device types."""
    CDI_CLAIM = "cdi-claim"
    """The CDI files of claims."""
    CLAIM = "claim"
    """The entries of claims."""
    MODE = "mode"
    """The mode that is served."""
    SOCKET = "socket"
    """The sockets for the kubelet."""
    HOOK_SOCKET = "hook-socket"
    """The socket for the OCI hook."""


class KeptFiles:
    """Which files of a process are missing; `counter` counts those `restored` and `failed`."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._errors: dict[Kept, str] = {}

    @property
    def errors(self) -> list[str]:
        """Why files are not as they should be, a reason for each kind."""
        return [self._errors[kind] for kind in Kept if kind in self._errors]

    def expect(self, kind: Kept) -> None:
        """Count files of a kind as missing until `update` says otherwise."""
        self._errors[kind] = f"files are not checked yet: {kind}"

    def restored(self, kind: Kept, path: Path, found: str) -> None:
        """Note that a file, found as the text says, is as it was again."""
        self._counter.labels(kind, "restored").inc()
        log.warning("a lost file is restored", kind=kind.value, file=str(path), found=found)

    def update(self, kind: Kept, error: str) -> None:
        """Note why files of a kind are not as they should be; empty if they are."""
        if error:
            self._counter.labels(kind, "failed").inc()
            self._errors[kind] = error
        else:
            self._errors.pop(kind, None)
