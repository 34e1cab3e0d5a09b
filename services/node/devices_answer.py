"""The answer to `GET /devices`: this node's devices as the plugin knows them now, as JSON."""

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


async def answer_devices(
    state: NodeState,
    holders: HolderCache,
    permissions: PermissionWatch,
    *,
    node: str,
    root: Path,
    kubelet_dir: Path,
) -> tuple[int, str]:
    """The devices now; the kubelet is asked who has them, unless the answer is a second old.

    Before the first scan (another plugin serves here, or a read hangs) the status is 503: the
    answer then says nothing about the node's devices.
    """
    snapshot = await holders.fresh()
    inventory, advertised = state.inventory, state.advertised
    if inventory is None:
        problems = ["the first scan is under way"]
    else:
        problems = [problem.message for problem in inventory.problems]
    lacking = map(str, permissions.missing)
    table = Table(
        node=node,
        mode=advertised.memory.mode.value,
        root=str(root),
        kubelet_dir=str(kubelet_dir),
        source=PLUGIN,
        devices=rows(advertised, snapshot.holders),
        problems=(*filter(None, [state.scan_error]), *problems, *lacking, *snapshot.problems),
    )
    status = HTTPStatus.SERVICE_UNAVAILABLE if inventory is None else HTTPStatus.OK
    return status, Json(msgspec.json.encode(table).decode())
