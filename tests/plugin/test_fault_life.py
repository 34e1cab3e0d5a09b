"""A kubelet that is killed or frozen: it and the plugin are processes of their own."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.plugin_chaos import Storm, make_pod
from tests.faults.plugin_process import Plugin
from tests.faults.plugin_storm import calm
from tests.support import Processes, eventually, soak

SECONDS = 90.0
"""For what takes a second on a machine at rest."""


@pytest.fixture
def node(short_dir: Path, processes: Processes) -> Iterator[Storm]:
    """Three cards and a kubelet that doesn't run yet."""
    with calm(short_dir, processes, "af", soak(short=0, full=0).seed) as made:
        for _ in range(3):
            made.model.add()
        yield made


def start(node: Storm, processes: Processes, *flags: str) -> Plugin:
    node.plugin = Plugin(processes, node.folder, *flags)
    node.plugin.ready_for_signals()
    return node.plugin


def registered(node: Storm) -> int:
    return node.kubelet.view().calls.get("Registered", 0)


def one_socket_each(node: Storm) -> bool:
    """Whether each resource has just one socket, which is served."""
    assert node.plugin is not None
    truth, sockets = node.model.offered(node.mode), node.plugin.sockets()
    assert len(sockets) == len(truth)
    assert sockets == node.plugin.held().listening
    return True


@pytest.mark.parametrize("call", ["Register", "ListAndWatch"])
def test_a_kubelet_that_dies_in_the_middle_of_a_call_is_found_again(
    node: Storm, processes: Processes, call: str
) -> None:
    node.kubelet.start()
    node.kubelet.ask("fault", hang=call == "Register")
    start(node, processes)
    for _ in range(2):
        eventually(lambda: node.kubelet.view().calls.get(call), timeout=SECONDS, interval=0)
        node.kubelet.kill()
        node.kubelet.start()
    node.await_truth()
    eventually(lambda: one_socket_each(node), timeout=SECONDS)


def test_a_kubelet_that_dies_while_it_allocates_gets_the_same_for_the_next_pod(
    node: Storm, processes: Processes
) -> None:
    node.kubelet.start()
    start(node, processes)
    node.await_truth()
    resource = min(node.kubelet.view().offered)
    for number in range(2):
        node.kubelet.ask("admit", pod=make_pod(f"p{number}", resource, 1))
        time.sleep(node.chance.choice((0, 0.001, 0.004)))  # as long as a call takes
        node.kubelet.kill()
        node.kubelet.start()
        node.await_truth()
    node.kubelet.ask("admit", pod=make_pod("last", resource, 1))
    eventually(lambda: "last" in node.kubelet.view().running, timeout=SECONDS)


def test_a_kubelet_that_freezes_is_found_again_once_it_goes_on(
    node: Storm, processes: Processes
) -> None:
    node.kubelet.start()
    plugin = start(node, processes)
    node.await_truth()
    node.kubelet.freeze()
    node.model.remove(node.model.physical()[0])
    node.model.add()
    plugin.process.assert_running()
    node.kubelet.thaw()
    node.await_truth()
