"""Answers the OCI hook: decides before a container starts, as `PreStartContainer` would.

A hook sends a line of JSON (`services.containers.hook_call`) and gets one: `[allowed, reason]`.
"""

import asyncio
import contextlib
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from plugin.device_plugin.starts import Starts
from services.containers.hook_call import held_regions, parse
from services.kubelet.checkpoint import KubeletFiles
from services.kubelet.sockets import Identity, identify
from services.node.kept_files import Kept, KeptFiles
from services.process.errors import AccelbindError, KubeletError
from services.process.files import remove_any
from services.process.text import clip

READ_SECONDS: Final = 5.0
"""For a hook to send its message."""

CHECK_SECONDS: Final = 1.0
"""Between two checks that the socket is there, and two attempts to make it."""

MODE: Final = 0o600

MAX_REASON: Final = 4000  # characters: runtimes put it into the pod's events

log = structlog.get_logger(component="plugin")


class HookServer:
    """Answers hooks on a socket; `count` gets the outcome of each: allowed, refused, failed."""

    def __init__(
        self,
        path: Path,
        *,
        files: KubeletFiles,
        starts: Starts,
        count: Callable[[str], None],
        kept: KeptFiles,
    ) -> None:
        self._path = path
        self._files = files
        self._starts = starts
        self._count = count
        self._kept = kept

    async def serve(self) -> None:
        """Answer hooks until cancelled; then those that are not answered yet are cut off.

        Raises:
            KubeletError: The socket can't be made at the start.
        """
        async with asyncio.TaskGroup() as group:
            try:
                found = await self._serve_once(group)
            except OSError as error:
                raise KubeletError(
                    f"{self._failure(error)}; set --state-dir to a folder that this process may"
                    " write to"
                ) from error
            while True:  # without the socket no container with a region starts
                try:
                    found = await self._serve_once(group, found)
                except OSError as error:
                    self._kept.update(Kept.HOOK_SOCKET, self._failure(error))
                    await asyncio.sleep(CHECK_SECONDS)

    def _failure(self, error: OSError) -> str:
        return f"the OCI hook's socket {self._path} can't be made: {error.strerror or error}"

    async def _serve_once(self, group: asyncio.TaskGroup, lost: str = "") -> str:
        """Answer hooks until the socket is lost; return how it was found then."""

        def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            group.create_task(self._serve(reader, writer))

        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        remove_any(self._path)
        server = await asyncio.start_unix_server(answer, self._path, start_serving=False)
        try:
            self._path.chmod(MODE)  # only root may connect, and nobody before this
            identity = identify(self._path)
            await server.start_serving()
            if lost:
                self._kept.restored(Kept.HOOK_SOCKET, self._path, lost)
            self._kept.update(Kept.HOOK_SOCKET, "")
            log.info("waiting for the OCI hook", socket=str(self._path))
            return await _until_lost(self._path, identity)
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            try:
                async with asyncio.timeout(READ_SECONDS):
                    message = await reader.readline()
                answer = await self._answer(message)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
            except (OSError, TimeoutError, ValueError) as error:  # ValueError: too long a line
                log.warning("a hook was not answered", reason=str(error) or "too slow")

    async def _answer(self, message: bytes) -> tuple[bool, str]:
        outcome, reason = "allowed", ""
        try:
            container, region = parse(message)
            # Which devices the container has is read from the kubelet, not believed of the hook.
            resource, ids = held_regions(container, region, await self._files.entries())
            await self._starts.authorize_start(resource, ids, hooked=container)
        except AccelbindError as error:
            outcome, reason = "refused", str(error)
            log.warning("refused", call="hook", reason=reason)
        except Exception as error:
            outcome, reason = "failed", f"internal error of accelbind: {error!r}"
            log.exception("internal error", call="hook")
        self._count(outcome)
        return outcome == "allowed", clip(reason, MAX_REASON)


async def _until_lost(path: Path, identity: Identity | None) -> str:
    """Wait until our socket isn't there as it was made; return how it is found."""
    while True:
        if found := _fault(path, identity):
            return found
        await asyncio.sleep(CHECK_SECONDS)


def _fault(path: Path, identity: Identity | None) -> str:
    try:
        mode = stat.S_IMODE(path.lstat().st_mode)
    except OSError:
        return "it is missing"
    if identify(path) != identity:
        return "it is another file"
    return "" if mode == MODE else f"its mode is {mode:o}"
