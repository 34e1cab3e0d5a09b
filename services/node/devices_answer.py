"""The answer to `GET /devices`: this node's devices as the plugin knows them now, as JSON."""

from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import msgspec

from services.containers.holder_cache import HolderCache
from services.node.permissions_watch import PermissionWatch
from services.node.state import NodeState
from services.node.table import Table, rows
from services.process.http import Json

PLUGIN = "plugin"
"""The source of a table that a running plugin has made."""


class DevicesAnswer:
    """Answers with the devices."""

    def __init__(
        self,
        state: NodeState,
        *,
        node: str,
        root: Path,
        kubelet_dir: Path,
        holders: HolderCache,
        permissions: PermissionWatch,
    ) -> None:
        self._state = state
        self._node = node
        self._root = root
        self._kubelet_dir = kubelet_dir
        self._holders = holders
        self._permissions = permissions

    async def respond(self) -> tuple[int, str]:
        """The devices now; the kubelet is asked who has them, unless the answer is a second old.

        Before the first scan (another plugin serves here, or a read hangs) the status is 503: the
        answer then says nothing about the node's devices.
        """
        snapshot = await self._holders.fresh()
        advertised = self._state.advertised
        table = Table(
            node=self._node,
            mode=advertised.memory.mode.value,
            root=str(self._root),
            kubelet_dir=str(self._kubelet_dir),
            source=PLUGIN,
            devices=rows(advertised, snapshot.holders),
            problems=(*self._problems(), *snapshot.problems),
        )
        ready = self._state.inventory is not None
        status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
        return status, Json(msgspec.json.encode(table).decode())

    def _problems(self) -> Iterator[str]:
        state = self._state
        if state.scan_error:
            yield state.scan_error
        if state.inventory is None:
            yield "the first scan is under way"
        else:
            yield from (problem.message for problem in state.inventory.problems)
        yield from map(str, self._permissions.missing)
