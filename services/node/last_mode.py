"""The mode that was served last on this node: a file near the plugin's sockets.

It also counts at a start at which the API server doesn't return the node's annotation: a plugin
that is restarted during an outage must not offer the ports of regions that containers have.
"""

import asyncio
from pathlib import Path
from typing import Final, NoReturn

import structlog

from services.devices.model import PluginMode
from services.node.kept_files import Kept, KeptFiles
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError
from services.process.files import file_fault, open_regular, replace_file
from services.process.outage import Outage
from services.process.retry import Backoff
from services.programming.host_state import PortRecords

FILE: Final = "accelbind/mode"
"""In a folder of our own in the kubelet's folder of device plugins: a kubelet that starts deletes
every file there but its checkpoint, and leaves folders alone
(`pkg/kubelet/cm/devicemanager/manager.go`)."""

SECONDS: Final = 5.0
"""For reading and writing once."""

MODE: Final = 0o600

_MAX_BYTES: Final = 64

log = structlog.get_logger(component="node")


def last_mode(plugins: Path) -> PluginMode | None:
    """The mode that was served last on this node; None if it is unknown."""
    try:
        with open_regular(plugins / FILE) as file:
            return PluginMode(file.read(_MAX_BYTES).decode().strip())
    except (OSError, ValueError):
        return None


async def enter_mode(
    mode: PluginMode,
    plugins: Path,
    records: PortRecords,
    calls: BlockingCalls,
    *,
    keep_empty: bool = False,
) -> bool:
    """Delete records that don't outlive a mode, and write it; return once it may be served.

    `keep_empty` keeps the empty ones: in DRA, also workloads that program may have such ports.
    Returns whether the mode may be noted: not if there may be records that don't count.
    """
    backoff = Backoff()
    outage = Outage(
        log,
        "no device is offered until the mode is written",
        "the mode is written, and devices are offered",
        mode=mode.value,
    )
    while True:
        try:
            may_be_noted = await calls.run(
                "state files",
                lambda: _enter(mode, plugins, records, keep_empty=keep_empty),
                timeout=SECONDS,
                what=f"writing {plugins / FILE}",
            )
        except (OSError, HardwareError) as error:
            outage.failed(str(error))
            await asyncio.sleep(backoff.pause())
        else:
            outage.ended()
            return may_be_noted


def _enter(mode: PluginMode, plugins: Path, records: PortRecords, *, keep_empty: bool) -> bool:
    last = last_mode(plugins)
    # Mode regiondevel hands out the power to program, so no record outlives it. An unknown mode may
    # have been that one.
    if last is None or mode.hands_out_engines or last.hands_out_engines:
        try:
            records.delete_all(keep_empty=keep_empty)
        except HardwareError as error:
            # Where SELinux confines modes without programming, the folder may be out of reach. No
            # mode is written then, so that a region mode finds none, and deletes the records.
            if last is not None or mode.has_regions:
                raise
            log.warning("records of what is in ports are not deleted", reason=str(error))
            return False
    if last is mode:
        return True
    try:
        _write(mode, plugins)
    except OSError as error:
        if last is not None:  # the file says another mode
            raise
        # As where there is no kubelet yet. The next start finds none, and deletes all records.
        log.warning("the mode that is served is not remembered", reason=str(error))
    return True


def _write(mode: PluginMode, plugins: Path) -> str:
    """Write the file if it differs; return how it was found, if so."""
    path, content = plugins / FILE, f"{mode}\n".encode()
    found = file_fault(path, content, mode=MODE)
    if found:
        path.parent.mkdir(mode=0o755, exist_ok=True)
        replace_file(path, content, mode=MODE)
    return found


class ModeKeeper:
    """Keeps the mode on the disk while it is served."""

    def __init__(
        self, state: NodeState, plugins: Path, calls: BlockingCalls, kept: KeptFiles
    ) -> None:
        self._mode = state.ledger.rules.mode
        self._plugins = plugins
        self._calls = calls
        self._kept = kept
        self._due = state.steps.follow()

    async def keep_forever(self) -> NoReturn:
        """Check after each scan, until cancelled."""
        await self._due.run_forever(self.run_once)

    async def run_once(self) -> None:
        """Restore the file if it is lost."""
        path = self._plugins / FILE
        try:
            found = await self._calls.run(
                "state files",
                lambda: _write(self._mode, self._plugins),
                timeout=SECONDS,
                what=f"writing {path}",
            )
        except FileNotFoundError:  # no kubelet has been here, or its folder is just deleted
            found, error = "", ""
        except (OSError, HardwareError) as failure:
            found, error = "", f"{path} can't be written: {failure}"
        else:
            error = ""
        if found:
            self._kept.restored(Kept.MODE, path, found)
        self._kept.update(Kept.MODE, error)
