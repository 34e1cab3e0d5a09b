"""A plugin that is started again knows what the one before it offered."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from plugin.node_mode import ANNOTATION
from services.devices.model import Device, PluginMode
from services.devices.resources import AdvertisedResources, OfferMemory
from services.node.discovery import Discovery
from services.node.offer_memory import FILE, OfferMemoryFile
from services.process.blocking import BlockingCalls
from simulator.card_faults import Fault
from simulator.cards import NLB3, CardSpec
from tests.plugin.support import AF, REGION, Bed
from tests.services.node.support import background
from tests.support import eventually_async

pytestmark = pytest.mark.anyio

AF_NLB3 = "fpga.intel.com/af-ce4.f7d.zkiWk5jwXzOUbVYHCL4QivffQFy9es9yIvFEsLk6zRg"


def tree(*ids: str) -> AdvertisedResources:
    devices = {each: Device(each, AF, healthy=True, nodes=(each,), card="region0") for each in ids}
    memory = OfferMemory(
        PluginMode.AF, {(key, "0000:05:00.0"): each for key, each in devices.items()}
    )
    return AdvertisedResources({AF: devices} if devices else {}, (), memory)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@asynccontextmanager
async def recalling(folder: Path) -> AsyncIterator[OfferMemoryFile]:
    recall = OfferMemoryFile(folder, PluginMode.AF, BlockingCalls())
    async with background(recall.write_forever()):
        yield recall


async def test_a_port_that_is_bad_while_the_plugin_is_replaced_keeps_its_resource(
    bed: Bed,
) -> None:
    card = bed.rack.add_card(CardSpec())
    bed.rack.add_card(CardSpec())
    async with bed.running():
        await bed.offers(2)
        await eventually_async((bed.folder / "k/device-plugins" / FILE).exists)
    bed.rack.break_(card, Fault.AFU_ALL_F)
    async with bed.running():
        await bed.offers(1)
        assert bed.kubelet.capacity == {AF: 2}
        bed.rack.heal(card, Fault.AFU_ALL_F)
        await bed.offers(2)


@pytest.mark.parametrize("mode", PluginMode)
async def test_what_is_offered_no_more_after_a_restart_has_no_capacity(
    bed: Bed, mode: PluginMode
) -> None:
    card = bed.rack.add_card(CardSpec())
    bed.rack.add_card(CardSpec(afu_ids=(NLB3,)))
    kept = bed.folder / "k/device-plugins" / FILE
    async with bed.running(mode):
        await bed.kubelet.until(lambda: sum(bed.kubelet.allocatable.values()) > 0)
        await eventually_async(lambda: mode.value in kept.read_text())
    before = bed.kubelet.capacity
    bed.rack.remove_card(card)
    async with bed.running():
        await bed.offers(1, AF_NLB3)
        gone = dict.fromkeys(before.keys() - {AF_NLB3}, 0)
        await bed.kubelet.until(lambda: bed.kubelet.capacity == gone | {AF_NLB3: 1})
        await eventually_async(lambda: '"af"' in kept.read_text() and AF not in kept.read_text())


async def test_it_has_none_either_where_the_mode_changes_before_the_first_look_at_the_cards(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.rack.add_card(CardSpec())
    async with bed.running():
        await bed.offers(1)
        await eventually_async((bed.folder / "k/device-plugins" / FILE).exists)
    looks, look = asyncio.Event(), Discovery.run_once

    async def once_let(discovery: Discovery) -> None:
        await looks.wait()
        await look(discovery)

    monkeypatch.setattr(Discovery, "run_once", once_let)
    async with bed.running() as plugin:
        await eventually_async(lambda: plugin.serving._resources is not None)
        plugin.parts.mode.update({ANNOTATION: "region"})
        await eventually_async(lambda: plugin.serving.mode is PluginMode.REGION)
        looks.set()
        await bed.kubelet.until(lambda: bed.kubelet.capacity == {AF: 0, REGION: 1})


async def test_what_was_taken_is_loaded_by_the_next(tmp_path: Path) -> None:
    async with recalling(tmp_path) as recall:
        assert await recall.load() == OfferMemory(PluginMode.AF)
        recall.on_scan(tree("dfl-port.0", "dfl-port.1"))
        await eventually_async((tmp_path / FILE).exists)
    async with recalling(tmp_path) as recall:
        loaded = await recall.load()
        assert [key for key, _ in loaded.devices] == ["dfl-port.0", "dfl-port.1"]
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def removed(folder: Path) -> bool:
    """Whether a folder is gone, whoever writes into it meanwhile."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


async def test_a_folder_that_comes_later_or_is_made_anew_gets_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "device-plugins"
    async with recalling(folder) as recall:
        for _ in range(2):
            recall.on_scan(tree("dfl-port.0"))
            folder.mkdir()

            def there() -> bool:
                recall.on_scan(tree("dfl-port.0"))
                return (folder / FILE).exists()

            await eventually_async(there)
            await eventually_async(lambda: removed(folder))


async def test_an_unchanged_tree_is_not_written_again(tmp_path: Path) -> None:
    async with recalling(tmp_path) as recall:
        recall.on_scan(tree("dfl-port.0"))
        await eventually_async((tmp_path / FILE).exists)
        before = (tmp_path / FILE).stat().st_ino
        os.link(tmp_path / FILE, tmp_path / "kept")  # so that the inode is not given out again
        recall.on_scan(tree("dfl-port.0"))
        recall.on_scan(tree("dfl-port.0", "dfl-port.1"))
        await eventually_async(lambda: (tmp_path / FILE).stat().st_ino != before)
        assert not recall._due.is_set()


@pytest.mark.parametrize("made", ["rubbish", "folder", "fifo", "link"])
async def test_what_is_no_memory_is_said_once_and_replaced(
    tmp_path: Path, made: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / FILE
    path.parent.mkdir()
    match made:
        case "rubbish":
            path.write_bytes(b"\x00{")
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "link":
            path.symlink_to("/etc/passwd")
    async with recalling(tmp_path) as recall:
        assert await recall.load() == OfferMemory(PluginMode.AF)
        recall.on_scan(tree("dfl-port.0"))
        if made == "folder":
            await eventually_async(lambda: "can't be written" in recall._error)
        else:
            await eventually_async(lambda: path.is_file() and not path.is_symlink())
    assert "list of offered resources is kept in memory only" in capsys.readouterr().out
    assert names(path.parent) == [path.name], "no half is left"
