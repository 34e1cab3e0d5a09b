"""Devices of device types, from a YAML file to a container and its restart."""

import asyncio
import random
import shutil
from collections import Counter
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import yaml

from services.devices.model import PluginMode
from services.devices.types.discover import SysTree
from services.devices.types.parsing import parse
from simulator.cards import CardSpec
from simulator.devices import DEVICES, DeviceTree, SimulatedDevice
from tests.plugin.support import Bed
from tests.services.devices.types.making import ENGINE
from tests.support import REPOSITORY, eventually_async

pytestmark = pytest.mark.anyio

VE = "device.accelbind.dev/ve"


class Engines:
    """Vector engines below a root, and the types that serve them."""

    def __init__(self, folder: Path, count: int = 2) -> None:
        self.tree = DeviceTree(folder / "root")
        self.types = folder / "types"
        self.types.mkdir()
        (self.types / "ve.yaml").write_text(ENGINE)
        self.folders = [self.tree.pci(f"0000:b{n}:00.0", "1bcf:001c") for n in range(count)]
        for number, each in enumerate(self.folders):
            self.place(number, each)

    def place(self, number: int, folder: str) -> None:
        """Give an engine the node of a number."""
        entry = self.tree.entry(folder, "ve", f"ve{number}", f"237:{number}")
        self.tree.file(f"{entry}/ve_state", 1)
        self.tree.file(f"{entry}/os_state", 0)


@pytest.fixture
def engines(short_dir: Path) -> Engines:
    return Engines(short_dir)


async def test_a_device_whose_file_hangs_takes_nothing_from_cards(
    bed: Bed, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, read = Event(), SysTree.attribute

    def hang(tree: SysTree, subject: Any, path: str) -> Any:
        if subject.name.startswith("0000:b0"):
            release.wait(60)
        return read(tree, subject, path)

    monkeypatch.setattr(SysTree, "attribute", hang)
    bed.rack.add_card(CardSpec())
    async with bed.running(device_types=engines.types):
        await bed.offers(1)
        await bed.offers(1, VE)
        bed.rack.add_card(CardSpec())
        await bed.offers(2)
        release.set()
        await bed.offers(2, VE)


async def test_after_a_storm_the_kubelet_has_what_is_plugged_in(bed: Bed, short_dir: Path) -> None:
    tree, types, chance = DeviceTree(short_dir / "root"), short_dir / "types", random.Random(1)  # noqa: S311 - repeatable
    shutil.copytree(REPOSITORY / "manifests" / "device-types", types)
    resources = {path.stem: parse(yaml.safe_load(path.read_text())) for path in types.iterdir()}
    slots: dict[int, tuple[str, SimulatedDevice]] = {}

    def happen(slot: int, kind: str) -> None:
        if slot in slots:
            slots.pop(slot)[1].remove(tree)
        else:
            slots[slot] = kind, DEVICES[kind](tree, slot)

    async with bed.running(PluginMode.NONE, device_types=types, healthy_after=1):
        for _ in range(50):
            kind = chance.choice(sorted(DEVICES))
            await asyncio.to_thread(happen, chance.randrange(12), kind)
        expected = Counter(resources[kind].resource for kind, _ in slots.values())
        assert len(expected) > 2
        await eventually_async(lambda: +Counter(bed.kubelet.allocatable) == expected)
