"""A plugin of the public suite is replaced by ours under a running container.

A plugin of the tests' own, with the public one's socket names, device ids and answers, stands for
the suite's.
"""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from accelbind.plain_port import PlainPort
from simulator.cards import CardSpec, Rack
from simulator.kubelet.other_plugin import OtherPlugin
from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.support import AF, container, pod, running, settings
from tests.support import eventually_async


async def all_registered(ports: Path) -> None:
    def look() -> bool:
        if not ports.exists():
            return False
        port = json.loads(ports.read_text())["metrics"]
        status, answer = PlainPort("127.0.0.1", port).get("/readyz")
        return status == 200 and AF in answer.decode()

    async def in_thread() -> bool:
        return await asyncio.to_thread(look)

    await eventually_async(in_thread, timeout=120, what="the plugin's readiness")


def registered_again(kubelet: KubeletStandIn) -> bool:
    """Whether a plugin has registered since the kubelet last dropped one."""
    methods = [each.method for each in kubelet.calls]
    return "Disconnected" in methods and "Registered" in methods[methods.index("Disconnected") :]


@pytest.mark.parametrize("overlap", [False, True], ids=["one-after-the-other", "both-for-a-while"])
async def test_the_plugin_changes_under_a_container_in_either_order(
    short_dir: Path, *, overlap: bool
) -> None:
    """A container keeps its device, restarts with what it was given, and nobody else gets it."""
    rack = Rack(short_dir / "root")
    for _ in range(2):
        rack.add_card(CardSpec())
    plugin = OtherPlugin(short_dir / "k", ["dfl-port.0", "dfl-port.1"], resource=AF)
    async with (
        KubeletStandIn(short_dir / "k", node_name="n1", retry_seconds=0.02) as kubelet,
        AsyncExitStack() as old,
    ):
        await old.enter_async_context(plugin)
        await kubelet.until(lambda: kubelet.allocatable.get(AF) == 2)
        held = await kubelet.settled(await kubelet.admit(pod("held", container("c", AF))))
        (device,) = kubelet.in_use(AF)
        if not overlap:
            await old.aclose()
            await kubelet.until(lambda: kubelet.allocatable.get(AF) == 0)
        async with running(settings(short_dir)):
            await all_registered(short_dir / "ports")
            if overlap:
                await old.aclose()  # the kubelet drops the plugin that registered last
                await kubelet.until(lambda: registered_again(kubelet))
                await all_registered(short_dir / "ports")
            await kubelet.until(lambda: kubelet.allocatable.get(AF) == 2)
            assert (held["c"].running, held["c"].restarts) == (True, 0)
            await kubelet.restart_container(held, "c")
            await kubelet.until(lambda: held["c"].running)
            assert kubelet.in_use(AF) == {device}
            new = await kubelet.settled(await kubelet.admit(pod("new", container("c", AF))))
            assert new["c"].running
            assert kubelet.in_use(AF) == {"dfl-port.0", "dfl-port.1"}
            third = await kubelet.admit(pod("third", container("c", AF)))
            assert third.message.startswith("Pod was rejected"), "both are taken"
