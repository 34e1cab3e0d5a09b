"""What `accelbind doctor` checks about devices, and the node that all node checks share."""

from collections.abc import Callable, Iterator

from accelbind.doctor.model import AS_ROOT, CheckTarget, Line, failed, ok, skipped, unseen, warning
from accelbind.node_devices import FoundDevices, NodeDevices
from accelbind.plain_port import PlainPort
from plugin.settings import PluginSettings
from services.devices.hardware.sysfs import Sysfs
from services.devices.model import PluginMode
from services.devices.ofs import IN_USE
from services.devices.reasons import remedy
from services.devices.types.build import NOT_MATCHED
from services.devices.types.discover import SysTree
from services.devices.types.load import load_types
from services.devices.types.misses import find_misses
from services.node.table import Table
from services.process.errors import AccelbindError
from services.process.problem import Problem
from services.process.text import count, plain


class Node(CheckTarget):
    """A node."""

    def __init__(self, options: PluginSettings, mode: PluginMode | None = None) -> None:
        super().__init__()
        self.options = options
        self.plugin = PlainPort.of(options)
        self._given_mode = mode

    @property
    def mode(self) -> PluginMode:
        """The given mode, or that of the running plugin, or that of the settings."""
        if self._given_mode is not None:
            return self._given_mode
        try:
            return PluginMode(self.table.mode)
        except (AccelbindError, ValueError):
            return self.options.mode

    @property
    def now(self) -> FoundDevices:
        """The node's cards and devices. Raises HardwareError if they can't be found out."""
        return self.once(_find)

    @property
    def table(self) -> Table:
        """The devices, from the running plugin."""
        return self.once(_read_table)


def _find(node: Node) -> FoundDevices:
    return NodeDevices(node.options.model_copy(update={"mode": node.mode})).find()


def _read_table(node: Node) -> Table:
    return node.plugin.devices()[1]


def check_devices(node: Node) -> Iterator[Line]:
    """Are drivers and device types loaded, and all devices healthy?"""
    ledger = node.now.ledger
    for problem in (*ledger.fpgas.problems, *ledger.types.problems):
        yield failed(plain(problem.text, 500), remedy(problem.code))
    if ledger.error:
        yield failed(plain(ledger.error, 500), remedy("device-types-unreadable"))
    for card in node.now.inventory.cards:
        for problem in card.problems:  # remarks: they make no device unhealthy
            yield _line(warning, f"{card.name}: {plain(problem.text, 400)}", problem)
    healthy, shown = 0, set[str]()
    for device in node.now.devices:
        healthy += not device.reasons
        where = f"{device.id} of type {device.type}" if device.type else device.card
        for problem in device.reasons:
            text = f"{where}: {plain(problem.text, 400)}"
            # In use is as it should be; a card's problem is one of each of its devices.
            if problem.code != IN_USE and text not in shown:
                shown.add(text)
                # Of near misses, some are meant.
                yield _line(warning if problem.code == NOT_MATCHED else failed, text, problem)
    options = node.options
    if options.device_types is not None:
        types = load_types(options.device_types).types
        for miss in find_misses(SysTree(Sysfs(options.root)), types):
            if miss.is_near:
                yield warning(miss.text, "change match: see docs/device-types.md")
            else:
                yield skipped(miss.text)
    yield ok(count(healthy, "healthy device"))


def _line(line: Callable[[str, str], Line], text: str, problem: Problem) -> Line:
    if "Permission denied" in text:
        return unseen(text, AS_ROOT)
    return line(text, remedy(problem.code))
