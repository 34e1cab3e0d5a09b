"""Answers the OCI hook: decides before a container starts, as `PreStartContainer` would.

The socket is in `--state-dir`, and only root may connect. A hook sends what it got from its runtime
and closes its side. It gets one line of JSON: `allowed` and, if it is false, `message`. The
kubelet's checkpoint says which regions the container has; then the start policy is asked for each
resource, with the container that starts.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from services.containers.hook_call import MAX_MESSAGE, HookCall, held_regions, parse
from services.containers.identity import ContainerIdentity
from services.kubelet.checkpoint import read_checkpoint
from services.node.start_gate import RegionStartPolicy
from services.process.blocking import BlockingCalls
from services.process.errors import AccelbindError, KubeletError
from services.process.text import clip
from services.programming.assignment import Region

READ_SECONDS: Final = 5.0
"""For a hook to send its message."""

FILES_SECONDS: Final = 10.0

MAX_REASON: Final = 4000
"""Characters of a reason; runtimes put it into the pod's events."""

log = structlog.get_logger(component="plugin")


class HookServer:
    """Answers hooks on a socket.

    `regions` returns the node's regions as the last scan found them. `count` counts the outcome of
    each call: allowed, refused, failed. `on_call` gets each container that a hook was called for.
    """

    def __init__(
        self,
        path: Path,
        *,
        checkpoint: Path,
        regions: Callable[[], Mapping[str, Region]],
        policy: RegionStartPolicy,
        calls: BlockingCalls,
        count: Callable[[str], None],
        on_call: Callable[[ContainerIdentity], None],
    ) -> None:
        self._path = path
        self._checkpoint = checkpoint
        self._regions = regions
        self._policy = policy
        self._calls = calls
        self._count = count
        self._on_call = on_call

    async def serve(self) -> None:
        """Answer hooks until cancelled.

        Raises:
            KubeletError: The socket can't be made.
        """
        server = await self._listen()
        log.info("waiting for the OCI hook", socket=str(self._path))
        try:
            async with server:
                await server.serve_forever()
        finally:
            with contextlib.suppress(OSError):
                self._path.unlink()

    async def _listen(self) -> asyncio.Server:
        try:
            self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._path.unlink(missing_ok=True)
            return await asyncio.start_unix_server(self._serve, sock=_bound(self._path))
        except OSError as error:
            raise KubeletError(
                f"the OCI hook's socket {self._path} can't be made: {error.strerror or error}; set"
                " --state-dir to a folder that this process may write to"
            ) from error

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await self._answer(reader)
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        except (OSError, TimeoutError) as error:
            log.warning(
                "a hook has closed its connection before it was answered",
                reason=str(error) or "too slow",
            )
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> dict[str, object]:
        async with asyncio.timeout(READ_SECONDS):
            message = await _whole(reader)
        try:
            await self._decide(parse(message))
        except AccelbindError as error:
            self._count("refused")
            log.warning("refused", call="hook", reason=str(error))
            return _refused(str(error))
        except Exception as error:
            self._count("failed")
            log.exception("internal error", call="hook")
            return _refused(f"internal error of accelbind: {type(error).__name__}: {error}")
        self._count("allowed")
        return {"allowed": True}

    async def _decide(self, call: HookCall) -> None:
        """Return if a container may start.

        Raises:
            AccelbindError: It may not.
        """
        if call.who is not None:
            self._on_call(call.who)
        entries = await self._calls.run(
            "kubelet files",
            lambda: read_checkpoint(self._checkpoint),
            timeout=FILES_SECONDS,
            what=f"reading {self._checkpoint}",
        )
        held = held_regions(call, entries, self._regions())
        checks = [
            self._policy.authorize_start(resource, ids, only=call.who)
            for resource, ids in held.items()
        ]
        for result in await asyncio.gather(*checks, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result


async def _whole(reader: asyncio.StreamReader) -> bytes:
    found = bytearray()
    while piece := await reader.read(65536):
        found += piece
        if len(found) > MAX_MESSAGE:
            raise OSError(f"it sends more than {MAX_MESSAGE} bytes")
    return bytes(found)


def _refused(reason: str) -> dict[str, object]:
    return {"allowed": False, "message": clip(reason, MAX_REASON)}


def _bound(path: Path) -> socket.socket:
    """A socket to which only its owner may connect."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        os.fchmod(listener.fileno(), 0o600)  # bound with this mode from the start
        listener.bind(str(path))
    except OSError:
        listener.close()
        raise
    return listener
