"""Plugins come and go: one test a fact, over the kubelet's real sockets."""

import asyncio
from pathlib import Path

import grpc
import grpc.aio
import pytest

from services.kubelet.sockets import plugins_folder
from simulator.kubelet.standin import KubeletStandIn
from tests.simulator.kubelet.fake_plugin import RESOURCE, FakePlugin, devices, registered

pytestmark = pytest.mark.anyio


async def test_a_broken_stream_keeps_capacity_and_a_restart_does_not(
    kubelet: KubeletStandIn,
) -> None:
    async with registered(FakePlugin(kubelet.folder, devices("a", "b"))) as plugin:
        await kubelet.until(lambda: kubelet.capacity == {RESOURCE: 2})
        plugin.end_stream()
        await kubelet.until(lambda: kubelet.allocatable == {RESOURCE: 0})
        assert kubelet.capacity == {RESOURCE: 2}
        await kubelet.restart()
        assert kubelet.capacity == kubelet.allocatable == {RESOURCE: 0}
    async with registered(FakePlugin(kubelet.folder, devices("a", "b"), endpoint="again.sock")):
        await kubelet.until(lambda: kubelet.allocatable == {RESOURCE: 2})


async def test_an_old_stream_that_ends_after_a_new_registration_takes_the_new_client_along(
    kubelet: KubeletStandIn,
) -> None:
    old = FakePlugin(kubelet.folder, devices("a"), endpoint="old.sock")
    new = FakePlugin(kubelet.folder, devices("a", "b"), endpoint="new.sock")
    async with registered(old):
        await kubelet.until(lambda: kubelet.capacity == {RESOURCE: 1})
        async with registered(new):
            await kubelet.until(lambda: kubelet.allocatable == {RESOURCE: 2})
            old.end_stream()
            await asyncio.wait_for(new.stream_ended.wait(), 60)
            await kubelet.until(lambda: kubelet.allocatable == {RESOURCE: 0})
            assert kubelet.capacity == {RESOURCE: 2}
            await new.register()
            await kubelet.until(lambda: kubelet.allocatable == {RESOURCE: 2})


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return sorted(each.name for each in folder.iterdir())


def sockets(folder: Path) -> dict[str, int]:
    """Names and inodes of the sockets in a kubelet's folder."""
    found = plugins_folder(folder).iterdir()
    return {each.name: each.stat().st_ino for each in found if each.is_socket()}


async def test_stopping_leaves_all_sockets_and_starting_deletes_all_but_a_new_one_of_its_own(
    kubelet: KubeletStandIn,
) -> None:
    folder = plugins_folder(kubelet.folder)
    (folder / "a-file").write_text("goes")
    (folder / "a-folder").mkdir()
    (folder / "a-folder" / "a-file").write_text("stays")
    async with registered(FakePlugin(kubelet.folder, devices("a"))) as plugin:
        await kubelet.until(lambda: kubelet.capacity == {RESOURCE: 1})
        before = sockets(kubelet.folder)
        assert set(before) == {"kubelet.sock", "fake.sock"}
        await kubelet.stop()
        await asyncio.wait_for(plugin.stream_ended.wait(), 60)
        assert sockets(kubelet.folder) == before
        with pytest.raises(grpc.aio.AioRpcError):
            await plugin.register()
        await kubelet.start()
        after = sockets(kubelet.folder)
        assert set(after) == {"kubelet.sock"}
        assert after["kubelet.sock"] != before["kubelet.sock"]
        assert not (folder / "a-file").exists()
        assert (folder / "a-folder" / "a-file").read_text() == "stays"
