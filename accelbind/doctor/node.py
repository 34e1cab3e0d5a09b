"""What `accelbind doctor` checks about devices, and the node that all node checks share."""

from collections.abc import Collection, Iterator
from typing import Final

from accelbind.devices import DeviceSource
from accelbind.doctor.model import AS_ROOT, CheckTarget, Line, failed, ok, unseen, warning
from accelbind.plain_port import NoAnswer, PlainPort
from plugin.settings import PluginSettings
from services.devices.ofs import IN_USE
from services.devices.reasons import remedy
from services.devices.types.build import NOT_MATCHED
from services.devices.types.misses import MATCHES_NOTHING
from services.node.table import Table
from services.process.text import count, plain

_SHOWN: Final = "accelbind devices shows the devices that are known"
_MISSED: Final = "correct its match; if this node has no such device, nothing"


class Node(CheckTarget):
    """A node, and the names of the settings that were given for it."""

    def __init__(self, options: PluginSettings, given: Collection[str] = ()) -> None:
        super().__init__()
        self.options = options
        self.plugin = PlainPort.of(options)
        self._given = given

    @property
    def table(self) -> Table:
        """The devices: those of the plugin, or without one those that files show."""
        return self.once(Node._read)

    def _read(self) -> Table:
        source = DeviceSource(self.options, self._given, None, files=True)
        if "device_types" in self._given:  # a running plugin has its own
            return source.read()
        try:
            return source.from_plugin()
        except NoAnswer:  # another check says why
            return source.read()


def check_devices(node: Node) -> Iterator[Line]:
    """Are drivers and device types loaded, and all devices healthy?"""
    table, healthy, shown = node.table, 0, set[str]()
    for row in table.devices:
        healthy += not row.reasons
        where = f"{row.device} of type {row.type}" if row.type else row.card or row.device
        for problem in row.reasons:
            text = f"{where}: {plain(problem.text, 400)}"
            # In use is as it should be; a card's problem is one of each of its devices.
            if problem.code != IN_USE and text not in shown:
                shown.add(text)
                # Of near misses, some are meant.
                line = warning if problem.code == NOT_MATCHED else failed
                yield _unless_denied(line(text, remedy(problem.code)))
    for note in table.problems:
        line = warning if table.devices else failed
        todo = _MISSED if MATCHES_NOTHING in note else _SHOWN
        yield _unless_denied(line(plain(note, 600), todo))
    yield ok(count(healthy, "healthy device"))


def _unless_denied(line: Line) -> Line:
    return unseen(line.what, AS_ROOT) if "Permission denied" in line.what else line
