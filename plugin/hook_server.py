"""Answers the OCI hook: decides before a container starts, as `PreStartContainer` would.

A hook sends a line of JSON (`services.containers.hook_call`) and gets one: `[allowed, reason]`.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from services.containers.hook_call import held_regions, parse
from services.kubelet.checkpoint import KubeletFiles
from services.node.start_gate import RegionStartPolicy
from services.process.errors import AccelbindError, KubeletError
from services.process.text import clip

READ_SECONDS: Final = 5.0
"""For a hook to send its message."""

MAX_REASON: Final = 4000  # characters: runtimes put it into the pod's events

log = structlog.get_logger(component="plugin")


class HookServer:
    """Answers hooks on a socket; `count` gets the outcome of each: allowed, refused, failed."""

    def __init__(
        self,
        path: Path,
        *,
        files: KubeletFiles,
        policy: RegionStartPolicy,
        count: Callable[[str], None],
    ) -> None:
        self._path = path
        self._files = files
        self._policy = policy
        self._count = count

    async def serve(self) -> None:
        """Answer hooks until cancelled; then those that are not answered yet are cut off.

        Raises:
            KubeletError: The socket can't be made.
        """
        async with asyncio.TaskGroup() as group:

            def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                group.create_task(self._serve(reader, writer))

            try:
                self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                server = await asyncio.start_unix_server(answer, self._path, start_serving=False)
                self._path.chmod(0o600)  # only root may connect, and nobody before this
            except OSError as error:
                raise KubeletError(
                    f"the OCI hook's socket {self._path} can't be made: {error.strerror or error};"
                    " set --state-dir to a folder that this process may write to"
                ) from error
            try:
                await server.start_serving()
                log.info("waiting for the OCI hook", socket=str(self._path))
                await asyncio.Event().wait()
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
            await self._policy.authorize_start(resource, ids, only=container)
        except AccelbindError as error:
            outcome, reason = "refused", str(error)
            log.warning("refused", call="hook", reason=reason)
        except Exception as error:
            outcome, reason = "failed", f"internal error of accelbind: {error!r}"
            log.exception("internal error", call="hook")
        self._count(outcome)
        return outcome == "allowed", clip(reason, MAX_REASON)
