"""What `/devices` answers: this node's devices as the plugin sees them now, as JSON."""

from collections.abc import Callable, Iterable
from http import HTTPStatus

import msgspec

from plugin.holding import DENIED, Holding
from plugin.options import PluginOptions
from services.domain.device_table import Table, rows
from services.domain.tree import Tree
from services.runtime.metrics import Json

PLUGIN = "plugin"
"""The source of a table that a running plugin has made."""


class DeviceView:
    """Answers with the devices.

    Args:
        options: What the process was told.
        tree: Gives the tree as of now.
        problems: Gives what is wrong with the node.
        ready: Whether the cards have been looked at yet.
        holding: Knows whose the devices are.
    """

    def __init__(
        self,
        options: PluginOptions,
        *,
        tree: Callable[[], Tree],
        problems: Callable[[], Iterable[str]],
        ready: Callable[[], bool],
        holding: Holding,
    ) -> None:
        self._options = options
        self._tree = tree
        self._problems = problems
        self._ready = ready
        self._holding = holding

    async def answer(self) -> tuple[int, str]:
        """The devices now; who has them is asked of the kubelet, unless that is a second old.

        Before the first scan (another plugin serves here, a read hangs) the status is 503: what it
        tells then is no word on what the node has.
        """
        look = await self._holding.fresh()
        tree = self._tree()
        table = Table(
            node=self._options.node_name,
            mode=tree.memory.mode.value,
            root=str(self._options.root),
            kubelet_dir=str(self._options.kubelet_dir),
            source=PLUGIN,
            devices=rows(tree, look.holders),
            problems=told(self._problems(), look.problems),
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
