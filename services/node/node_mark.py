"""Marks the node if containers may have programmed its ports themselves.

Mode `regiondevel` hands out the power to program, so no AFU ID that a port shows afterwards can be
trusted. Before a mode is served, the node's mark (`services.programming.records`) is brought up to
date:

    mode to serve   mark now           what happens
    regiondevel     absent, closed     the mark is opened
    another         open               the mark is closed with a new token
    another         absent, closed     the same if regiondevel was served last: by a version of the
                                       plugin that keeps no mark

No device is offered before that is done. The mark is kept in the kubelet's folder of device
plugins, which survives reboots, and in `--state-dir`, where `accelbind fpga` sees it. One of the
two is enough. Where they differ nothing is trusted.
"""

import asyncio
from pathlib import Path
from typing import Final

import structlog

from services.devices.model import PluginMode
from services.node.offer_memory import FILE, last_mode
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError
from services.process.retry import Backoff
from services.programming.records import Mark, closed_mark, read_marks, write_mark

WRITE_SECONDS: Final = 5.0
"""For reading and writing the mark once."""

FIRST_SECONDS: Final = 0.5
MOST_SECONDS: Final = 30.0
"""Between two tries to write it."""

FOLDER_SECONDS: Final = 1.0
"""Between two tries while the kubelet's folder is not there."""

log = structlog.get_logger(component="plugin")


def lasting_folder(plugins: Path) -> Path:
    """Where the mark is, below the kubelet's folder of device plugins."""
    return (plugins / FILE).parent


def wanted_mark(mode: PluginMode, mark: Mark | None, last: PluginMode | None) -> Mark | None:
    """The mark of a node that is about to serve a mode; `last` is the mode that was served last."""
    if mode is PluginMode.REGIONDEVEL:
        return Mark()
    is_open = mark == Mark() or last is PluginMode.REGIONDEVEL
    return closed_mark() if is_open else mark


async def update_mark(
    mode: PluginMode, plugins: Path, state_dir: Path, calls: BlockingCalls
) -> None:
    """Bring the node's mark up to date; return once a mode can be served safely."""
    folder, backoff, logged = lasting_folder(plugins), Backoff(FIRST_SECONDS, MOST_SECONDS), ""
    while True:
        try:
            await calls.run(
                "state files",
                lambda: _update(mode, plugins, state_dir),
                timeout=WRITE_SECONDS,
                what=f"marking ports as untrusted in {folder}",
            )
            break
        except FileNotFoundError:  # there is no kubelet yet, which KubeletFolder logs
            pause = FOLDER_SECONDS
        except (OSError, HardwareError) as error:
            pause = backoff.pause()
            reason = getattr(error, "strerror", None) or str(error)
            if reason != logged:
                log.warning(
                    "no device is offered until the node's mark of mode regiondevel is written",
                    folder=str(folder),
                    reason=reason,
                )
            logged = reason
        await asyncio.sleep(pause)
    if logged:
        log.info("the node's mark of mode regiondevel is up to date", mode=mode.value)


def _update(mode: PluginMode, plugins: Path, state_dir: Path) -> None:
    """In a thread of its own.

    Raises:
        OSError: The mark has to be changed, and neither folder takes it.
    """
    folder = lasting_folder(plugins)
    mark = read_marks(folder, state_dir)
    wanted = wanted_mark(mode, mark, last_mode(plugins))
    if wanted is None:
        return
    failure = _written(folder, wanted)
    if isinstance(failure, FileNotFoundError):
        raise failure
    copied = _written(state_dir, wanted, parents=True)
    if failure and copied and mark != Mark():
        raise failure
    if wanted != mark:
        log.info(
            "the content of all ports is untrusted until they are programmed again",
            mode=mode.value,
            folder=str(folder),
        )
    for where, error, loss in (
        (folder, failure, "it is lost in a reboot"),
        (state_dir, copied, "accelbind fpga does not see it"),
    ):
        if error is not None:
            log.warning(
                "the node's mark of mode regiondevel is not written everywhere",
                loss=loss,
                folder=str(where),
                reason=error.strerror or str(error),
            )


def _written(folder: Path, mark: Mark, *, parents: bool = False) -> OSError | None:
    """Why a mark could not be written, None if it was."""
    try:
        write_mark(folder, mark, parents=parents)
    except OSError as error:
        return error
    return None
