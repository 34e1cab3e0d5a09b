"""What the plugin keeps on the disk is there again after somebody removed or changed it."""

import asyncio
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from structlog.testing import capture_logs

from plugin.process import Plugin
from services.devices.model import PluginMode
from services.kubelet.sockets import plugins_folder
from services.process.errors import AccelbindError
from simulator.cards import CardSpec, Rack
from tests.damages import remove_folder, replace_by_folder, restored, written
from tests.plugin.support import AF, Bed, container, is_ready, serving, settings
from tests.plugin.test_hook import Runtime
from tests.support import eventually_async

Damage: TypeAlias = Callable[[Path], None]


def open_to_all(path: Path) -> None:
    path.chmod(0o666)


def replace_by_file(path: Path) -> None:
    path.unlink()
    path.touch()


def has_restored(plugin: Plugin, kind: str, wanted: int) -> bool:
    return restored(plugin.process.registry, kind) == wanted


def removed(folder: Path) -> bool:
    """Whether a folder is gone; the process may write a file into it while it is emptied."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


@pytest.fixture(autouse=True)
def card(rack: Rack) -> str:
    return rack.add_card(CardSpec())


FILES = {"cdi-fpga": "cdi/accelbind-fpga.json", "mode": "k/device-plugins/accelbind/mode"}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("damage", [Path.unlink, replace_by_folder, remove_folder])
async def test_a_file_is_restored_after_the_next_scan(bed: Bed, kind: str, damage: Damage) -> None:
    path = bed.folder / FILES[kind]
    async with bed.running(cdi_dir=bed.folder / "cdi") as plugin:
        await bed.offers(1)
        before = await eventually_async(lambda: written(path))
        await eventually_async(lambda: is_ready(plugin))
        with capture_logs() as logs:
            damage(path)
            await eventually_async(lambda: written(path) == before)
            await eventually_async(lambda: restored(plugin.process.registry, kind) == 1)
        lines = [each["file"] for each in logs if each["event"] == "a lost file is restored"]
        assert lines == [str(path)]
        await eventually_async(lambda: is_ready(plugin))


async def test_a_deleted_socket_is_served_anew_and_pods_go_on_getting_devices(bed: Bed) -> None:
    async with bed.running() as plugin:
        await bed.offers(1)
        damages: tuple[Damage, ...] = (Path.unlink, replace_by_file, replace_by_folder)
        for number, damage in enumerate(damages, 1):
            server = serving(plugin).resources.registrations[AF].server
            assert server is not None
            damage(server.path)
            await eventually_async(partial(has_restored, plugin, "socket", number))
            await eventually_async(lambda: is_ready(plugin))
            await bed.offers(1)
        assert (await plugin.probes.healthz())[0] == 200
        started = await bed.start("p", container("c", AF))
        assert started["c"].granted.devices


@pytest.mark.parametrize("damage", [Path.unlink, open_to_all, remove_folder])
async def test_the_hook_is_answered_after_its_socket_was_lost(bed: Bed, damage: Damage) -> None:
    path = bed.folder / "state/hook.sock"
    values: dict[str, Any] = {"programming": "oci-hook", "hook_path": bed.folder / "hook"}
    async with bed.running(PluginMode.REGION, cdi_dir=bed.folder / "cdi", **values) as plugin:
        await eventually_async(path.is_socket)
        runtime = Runtime(bed.folder)
        runtime.configure("uid")
        damage(path)
        await eventually_async(lambda: restored(plugin.process.registry, "hook-socket") == 1)
        assert path.stat().st_mode & 0o7777 == 0o600
        code, text = await asyncio.to_thread(runtime.run, runtime.state(), str(path), "dfl-fme.0")
        assert (code, "which the kubelet has not allocated to it" in text) == (1, True), text


@pytest.mark.parametrize(
    ("which", "from_the_start"),
    [("cdi", False), ("state", False), ("device-plugins", False), ("device-plugins", True)],
)
async def test_a_mounted_folder_that_was_removed_ends_the_plugin(
    short_dir: Path, which: str, *, from_the_start: bool
) -> None:
    host, kubelet = short_dir / "host", short_dir / "k"
    host.mkdir()
    kubelet.mkdir()
    place = plugins_folder(kubelet) if which == "device-plugins" else short_dir / which
    if which != "device-plugins":
        plugins_folder(kubelet).mkdir()
    folder = os.open(host, os.O_RDONLY)
    try:  # such a link leads to a folder that was removed, as a mount does
        place.symlink_to(f"/proc/self/fd/{folder}")
        plugin = Plugin(settings(short_dir, cdi_dir=short_dir / "cdi"))
        if from_the_start:
            shutil.rmtree(host)
        task = asyncio.create_task(plugin.serve(asyncio.Event()))
        if not from_the_start:
            await eventually_async(lambda: plugin.face and plugin.face.node.state.ledger.inventory)
            await eventually_async(lambda: removed(host))
        async with asyncio.timeout(60):
            with pytest.raises(AccelbindError, match=f"{which} was removed on the host"):
                await task
    finally:
        os.close(folder)
