"""What `accelbind doctor` checks about a node's cards, and the node that all node checks share.

It reads below `--root` and `--kubelet-dir`, as the plugin does, and writes nothing.
"""

from collections.abc import Iterator

from accelbind.doctor.model import AS_ROOT, Line, Subject, failed, ok, skipped, unseen, warning
from accelbind.functions import scan_with_functions
from accelbind.plain_port import PlainPort
from plugin.settings import PluginSettings
from services.devices.model import Card, Inventory, PluginMode, Port, Problem
from services.devices.ofs import IN_USE, NO_AFU
from services.devices.reasons import remedy
from services.devices.resources import advertise
from services.node.table import Table
from services.process.errors import AccelbindError
from services.process.text import count, plain


class Node(Subject):
    """A node."""

    def __init__(self, options: PluginSettings, mode: PluginMode | None = None) -> None:
        super().__init__()
        self.options = options
        self.plugin = PlainPort.of(options)
        self._given_mode = mode

    @property
    def mode(self) -> PluginMode:
        """The given mode, or else that of the running plugin, or that of the settings."""
        if self._given_mode is not None:
            return self._given_mode
        try:
            return PluginMode(self.table.mode)
        except (AccelbindError, ValueError):
            return self.options.mode

    @property
    def inventory(self) -> Inventory:
        """The cards; none in mode units."""
        return self.once(_scan) if self.mode.has_cards else Inventory()

    @property
    def table(self) -> Table:
        """The devices, from the running plugin."""
        return self.once(_read_table)


def _scan(node: Node) -> Inventory:
    return scan_with_functions(node.options, node.mode)


def _read_table(node: Node) -> Table:
    return node.plugin.devices()[1]


def check_cards(node: Node) -> Iterator[Line]:
    """Are the cards' drivers loaded, and are all cards healthy?"""
    if not node.mode.has_cards:
        yield skipped(f"mode {node.mode} needs no driver")
        return
    for problem in node.inventory.problems:
        yield failed(plain(problem.message, 500), remedy(problem.reason))
    by_card = _device_problems(node)
    for card in node.inventory.cards:
        lines = [*_card_lines(card), *by_card.get(card.name, ())]
        region = f", interface {card.fme.interface_id}" if card.fme else ""
        yield from lines or [
            ok(f"{card.name}: driver {card.driver}, {count(len(card.ports), 'port')}{region}")
        ]


def _device_problems(node: Node) -> dict[str, list[Line]]:
    """Problems that show only in the devices made of cards, such as a port without an engine."""
    known = {problem for card in node.inventory.cards for _, problem in _problems(card)}
    by_card: dict[str, list[Line]] = {}
    advertised = advertise(node.inventory, node.mode, units=node.options.units)
    for device in (*advertised.devices(), *advertised.not_offered):
        for problem in device.reasons:
            if problem not in known and problem.reason != IN_USE:  # that is as it should be
                known.add(problem)
                text = f"{device.card}: {plain(problem.message, 400)}"
                by_card.setdefault(device.card, []).append(failed(text, remedy(problem.reason)))
    return by_card


def _card_lines(card: Card) -> Iterator[Line]:
    for serious, problem in _problems(card):
        what = f"{card.name}: {plain(problem.message, 400)}"
        if serious:
            yield failed(what, remedy(problem.reason))
        elif problem.message.endswith("Permission denied"):
            yield unseen(what, AS_ROOT)
        else:
            yield warning(what, remedy(problem.reason))


def _problems(card: Card) -> Iterator[tuple[bool, Problem]]:
    """Each problem of a card, with whether it makes a device unhealthy."""
    if card.failure is not None:
        yield True, card.failure
    yield from ((False, problem) for problem in card.problems)
    for part in (card.fme, *card.ports):
        problems = part.problems if part else ()
        if isinstance(part, Port) and card.functions is not None:
            problems = tuple(each for each in problems if each.reason != NO_AFU)
        yield from ((True, problem) for problem in problems)
