"""What `/devices` answers: this node's devices as the plugin sees them now, as JSON."""

from collections.abc import Callable, Iterable
from http import HTTPStatus
from pathlib import Path

import msgspec

from services.containers.holder_cache import DENIED, HolderCache
from services.devices.resources import AdvertisedResources
from services.node.table import Table, rows
from services.process.http import Json

PLUGIN = "plugin"
"""The source of a table that a running plugin has made."""


class DeviceView:
    """Answers with the devices.

    Args:
        node: The node's name.
        root: Where the cards' files are.
        kubelet_dir: The kubelet's folder.
        tree: Gives the tree as of now.
        problems: Gives what is wrong with the node.
        ready: Whether the cards have been looked at yet.
        holding: Knows whose the devices are.
    """

    def __init__(
        self,
        *,
        node: str,
        root: Path,
        kubelet_dir: Path,
        tree: Callable[[], AdvertisedResources],
        problems: Callable[[], Iterable[str]],
        ready: Callable[[], bool],
        holding: HolderCache,
    ) -> None:
        self._node = node
        self._root = root
        self._kubelet_dir = kubelet_dir
        self._tree = tree
        self._problems = problems
        self._ready = ready
        self._holding = holding

    async def answer(self) -> tuple[int, str]:
        """The devices now; who has them is asked of the kubelet, unless that is a second old.

        Before the first scan (another plugin serves here, a read hangs) the status is 503: what it
        tells then is no word on what the node has.
        """
        snapshot = await self._holding.fresh()
        tree = self._tree()
        table = Table(
            node=self._node,
            mode=tree.memory.mode.value,
            root=str(self._root),
            kubelet_dir=str(self._kubelet_dir),
            source=PLUGIN,
            devices=rows(tree, snapshot.holders),
            problems=told(self._problems(), snapshot.problems),
        )
        status = HTTPStatus.OK if self._ready() else HTTPStatus.SERVICE_UNAVAILABLE
        return status, Json(msgspec.json.encode(table).decode())


def told(problems: Iterable[str], of_holders: Iterable[str]) -> tuple[str, ...]:
    """All problems; those of holders that are missing permissions are among the others already.

    Args:
        problems: What is wrong with the node, missing permissions among it.
        of_holders: What couldn't be found out about holders.
    """
    return (*problems, *(problem for problem in of_holders if DENIED not in problem))
