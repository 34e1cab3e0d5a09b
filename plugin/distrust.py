"""Marking the node when containers may have programmed its ports themselves.

Mode `regiondevel` hands out the power to program, so no AFU ID that a port shows afterwards can be
trusted. Before a mode is served, the node's mark (`services.hardware.distrust`) is brought up to
date:

    mode to serve   mark now           what happens
    regiondevel     absent, closed     the mark is opened
    another         open               the mark is closed with a new token
    another         absent, closed     the same if regiondevel was served last: by a version of the
                                       plugin that keeps no mark

No device is offered before that is done. The mark is kept in the kubelet's folder of device
plugins, which survives reboots and is writable for every plugin that can serve. `--state-dir` gets
a copy for `accelbind fpga`.
"""

import asyncio
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from plugin.backoff import Backoff
from plugin.mode_memory import last_mode
from plugin.recall import FILE
from plugin.worker import Worker
from services.domain.devices import PluginMode
from services.domain.errors import HardwareError
from services.hardware.distrust import Mark, closed, read_mark, write_mark

WRITE_SECONDS: Final = 5.0
"""For reading and writing the mark once."""

FIRST_SECONDS: Final = 0.5
MOST_SECONDS: Final = 30.0
"""Between two tries to write it."""

FOLDER_SECONDS: Final = 1.0
"""Between two tries while the kubelet's folder is not there."""

log = structlog.get_logger(room="plugin")


def lasting_folder(plugins: Path) -> Path:
    """Where the mark is.

    Args:
        plugins: The kubelet's folder of device plugins.
    """
    return (plugins / FILE).parent


def wanted_mark(mode: PluginMode, mark: Mark | None, last: PluginMode | None) -> Mark | None:
    """The mark of a node that is about to serve a mode.

    Args:
        mode: The mode.
        mark: The mark as it is.
        last: The mode that was served last, None where nobody can tell.
    """
    if mode is PluginMode.REGIONDEVEL:
        return Mark()
    is_open = mark == Mark() or last is PluginMode.REGIONDEVEL
    return closed() if is_open else mark


class NodeMark:
    """Keeps the node's mark up to date.

    Args:
        plugins: The kubelet's folder of device plugins.
        state_dir: The folder of locks and records.
        worker: Where to read and write.
        backoff: How long to wait between tries.
    """

    def __init__(
        self, plugins: Path, state_dir: Path, worker: Worker, backoff: Backoff | None = None
    ) -> None:
        self._plugins = plugins
        self._folder = lasting_folder(plugins)
        self._state_dir = state_dir
        self._worker = worker
        self._backoff = backoff or Backoff(FIRST_SECONDS, MOST_SECONDS)
        self._trouble = ""

    async def settle(self, mode: PluginMode) -> None:
        """Brings the mark up to date; returns once a mode can be served safely.

        Args:
            mode: The mode.
        """
        while True:
            pause = await self._try(mode)
            if pause is None:
                break
            await asyncio.sleep(pause)
        if self._trouble:
            log.info("the node's mark of mode regiondevel is up to date", mode=mode.value)
        self._trouble = ""

    async def _try(self, mode: PluginMode) -> float | None:
        """One try; the seconds to wait before the next one, None if there need be no other."""
        try:
            await self._worker.run(
                partial(self._update, mode),
                seconds=WRITE_SECONDS,
                what=f"marking ports as untrusted in {self._folder}",
            )
        except FileNotFoundError:  # there is no kubelet yet, which KubeletWatch says
            return FOLDER_SECONDS
        except (OSError, HardwareError) as error:
            self._say(error)
            return self._backoff.next()
        return None

    def _update(self, mode: PluginMode) -> None:
        """In the worker's thread.

        Raises:
            OSError: The mark has to be changed and cannot be written.
        """
        mark = read_mark(self._folder)
        wanted = wanted_mark(mode, mark, last_mode(self._plugins))
        if wanted is None:
            return
        try:
            write_mark(self._folder, wanted)
        except OSError as error:
            if mark != Mark():
                raise
            wanted = Mark()  # it stays open: every port is programmed before each start
            log.warning(
                "the node's mark of mode regiondevel stays open, so every port is programmed"
                " before each start",
                folder=str(self._folder),
                reason=error.strerror or str(error),
            )
        if wanted != mark:
            log.info(
                "the content of all ports is untrusted until they are programmed again",
                mode=mode.value,
                folder=str(self._folder),
            )
        self._copy(wanted)

    def _copy(self, mark: Mark) -> None:
        try:
            self._state_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
            write_mark(self._state_dir, mark)
        except OSError as error:
            log.warning(
                "accelbind fpga does not know which ports are untrusted on this node",
                folder=str(self._state_dir),
                reason=error.strerror or str(error),
            )

    def _say(self, error: Exception) -> None:
        trouble = getattr(error, "strerror", None) or str(error)
        if trouble != self._trouble:
            log.warning(
                "no device is offered until the node's mark of mode regiondevel is written",
                folder=str(self._folder),
                reason=trouble,
            )
        self._trouble = trouble
