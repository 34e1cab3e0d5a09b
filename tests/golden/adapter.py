"""The only module of the golden tests that knows the product's modules.

When the product is rebuilt, this module changes and the golden files stay. Everything that it takes
and returns is bytes, paths and plain values.
"""

import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from accelbind.cli import COMMANDS, load, main
from services.admission.mutate import Policy
from services.admission.pod_review import answer
from services.devices.hardware.afu_ids import AfuIds
from services.devices.hardware.scan import scan
from services.devices.model import Device, Inventory, PluginMode
from services.devices.resources import NOTHING_ADVERTISED, AdvertisedResources
from services.mappings.index import build_index
from services.mappings.model import read_entry
from services.pods.reasons import ReviewOutcome, ReviewReason
from services.process.blocking import BlockingCalls
from services.process.errors import InvalidReview
from tests.services.cards import advertise
from webhook.app import status_body

RULE = "=" * 100

# Reviews -----------------------------------------------------------------------------------------


class Webhook:
    """Answers reviews, with a fixed set of mappings: objects of which some can't serve."""

    def __init__(self, mappings: Iterable[dict[str, Any]], domains: Sequence[str]) -> None:
        self.index = build_index(entry for each in mappings if (entry := read_entry(each)))
        self._policy = Policy(domains=tuple(domains))

    def answer(self, endpoint: str, body: bytes) -> tuple[int, bytes, str]:
        """HTTP status, body, and the metric's labels `outcome` and `reason`."""
        try:
            found = answer(body, self.index, self._policy, validating=endpoint == "/validate")
        except InvalidReview as error:
            rejected = f"{ReviewOutcome.REJECTED} {ReviewReason.INVALID_REVIEW}"
            return 400, status_body(400, str(error)), rejected
        return 200, found.body, f"{found.outcome} {found.reason}".strip()


# Devices -----------------------------------------------------------------------------------------


class Node:
    """A node whose cards are looked at again and again."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._afu_ids = AfuIds(root, BlockingCalls())
        self._before: dict[PluginMode, AdvertisedResources] = {}

    def offered(self) -> dict[str, Any]:
        scanned, tables = scan(self._root), {}
        identified = asyncio.run(self._afu_ids.identify(scanned, ()))
        for mode in (each for each in PluginMode if each is not PluginMode.NONE):
            inventory = identified if mode is PluginMode.AF else scanned
            before = self._before.get(mode, NOTHING_ADVERTISED)
            tree = self._before[mode] = advertise(inventory, mode, previous=before.devices())
            tables[str(mode)] = _table(inventory, tree)
        return tables


def _table(inventory: Inventory, tree: AdvertisedResources) -> dict[str, Any]:
    table: dict[str, Any] = {
        resource: {key: _device(each) for key, each in devices.items()}
        for resource, devices in tree.resources.items()
    }
    if tree.not_offered:
        table["not offered"] = {each.id: _device(each) for each in tree.not_offered}
    if inventory.problems:
        table["node"] = [each.code for each in inventory.problems]
    return table


def _device(device: Device) -> str:
    """Health, reasons, NUMA node and device files in one line."""
    words = ["healthy" if device.healthy else "unhealthy"]
    words += [each.code for each in device.reasons]
    words += [] if device.numa_node is None else [f"numa={device.numa_node}"]
    words += [f"{each.name}:{each.permissions}" for each in device.nodes]
    return " ".join(words)


# The command line --------------------------------------------------------------------------------


def command_lines() -> Iterator[list[str]]:
    """Every command and group of commands, as the words that are typed."""
    yield []
    for name in COMMANDS:
        yield from _with_subcommands([name], load(name))


def _with_subcommands(words: list[str], command: Any) -> Iterator[list[str]]:
    yield words
    for name, each in (getattr(command, "commands", None) or {}).items():
        yield from _with_subcommands([*words, name], each)


def print_help_pages() -> None:
    """Print the help of every command; in a process of its own the terminal is always the same."""
    for words in command_lines():
        sys.stdout.write(f"{RULE}\n{' '.join(['accelbind', *words, '--help'])}\n")
        code = main([*words, "--help"])
        if code:
            raise ValueError(f"{words} --help ends with {code}")


if __name__ == "__main__":
    print_help_pages()
