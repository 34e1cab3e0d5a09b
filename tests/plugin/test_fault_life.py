"""The kubelet's life cycle as the plugin meets it: both of them real processes."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pytest

from services.kubelet.sockets import plugins_folder
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


def test_a_kubelet_that_is_absent_at_the_start_is_waited_for(
    node: Storm, processes: Processes
) -> None:
    plugin = start(node, processes)
    plugin.process.wait_for_output("kubelet is away: waiting for its socket")
    assert not plugins_folder(node.kubelet.folder).exists()
    node.kubelet.start()
    node.await_truth()
    assert plugin.errors() == []


def test_several_restarts_a_second_end_in_one_registration_a_resource(
    node: Storm, processes: Processes
) -> None:
    node.kubelet.start()
    start(node, processes)
    for _ in range(4):
        node._restart_often()
    node.await_truth()
    eventually(lambda: one_socket_each(node), timeout=SECONDS)
    lives = registered(node)
    assert lives >= len(node.model.offered(node.mode))


@pytest.mark.parametrize("call", ["Register", "GetDevicePluginOptions", "ListAndWatch"])
def test_a_kubelet_that_dies_in_the_middle_of_a_call_is_found_again(
    node: Storm, processes: Processes, call: str
) -> None:
    node.kubelet.start()
    node.kubelet.ask("fault", hang=call == "Register")
    start(node, processes)
    for _ in range(3):
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
    for number in range(5):
        node.kubelet.ask("admit", pod=make_pod(f"p{number}", resource, 1))
        time.sleep(node.chance.choice((0, 0.001, 0.004)))  # as long as a call takes
        node.kubelet.kill()
        node.kubelet.start()
        node.await_truth()
    node.kubelet.ask("admit", pod=make_pod("last", resource, 1))
    eventually(lambda: "last" in node.kubelet.view().running, timeout=SECONDS)


def test_sockets_deleted_behind_its_back_are_made_again(
    node: Storm, processes: Processes, figure: Callable[[str], None]
) -> None:
    node.kubelet.start()
    plugin = start(node, processes)
    node.await_truth()
    for _ in range(3):
        before = plugin.sockets()
        assert sorted(node.kubelet.ask("delete_sockets")) == [Path(each).name for each in before]
        eventually(lambda: plugin.sockets() and not {*plugin.sockets()} & {*before}, SECONDS)  # noqa: B023 - called within the turn
        node.await_truth()
    eventually(lambda: one_socket_each(node), timeout=SECONDS)
    took = []
    for _ in range(5):
        began = time.monotonic()
        node.kubelet.ask("restart")
        node.await_truth()
        took.append(time.monotonic() - began)
    figure(f"the truth again {median(took):.2f} s (median) after a restart was asked for")


def test_the_folder_may_be_removed_and_made_again(node: Storm, processes: Processes) -> None:
    node.kubelet.start()
    plugin = start(node, processes)
    for _ in range(3):
        node.await_truth()
        node.kubelet.ask("remove_folder")
        eventually(lambda: node.kubelet.view().offered == {}, timeout=SECONDS)
        plugin.process.assert_running()
        node.kubelet.ask("restart")
    node.await_truth()
    eventually(lambda: one_socket_each(node), timeout=SECONDS)


def test_a_stream_cut_with_no_change_in_the_folder_is_registered_again(
    node: Storm, processes: Processes
) -> None:
    node.kubelet.start()
    start(node, processes)
    for _ in range(3):
        node.await_truth()
        before = registered(node)
        for resource in sorted(node.kubelet.view().offered):
            node.kubelet.ask("cut_stream", resource=resource)
        eventually(lambda: registered(node) > before, timeout=SECONDS)  # noqa: B023 - as above
    node.await_truth()
    eventually(lambda: one_socket_each(node), timeout=SECONDS)


def test_a_refused_registration_is_said_once_and_tried_until_it_is_taken(
    node: Storm, processes: Processes
) -> None:
    node.kubelet.start()
    node.kubelet.ask("fault", refuse="the node is not in the mood")
    plugin = start(node, processes)
    eventually(
        lambda: node.kubelet.view().calls.get("Register", 0) >= 3 * len(node.model.offered("af")),
        timeout=SECONDS,
    )
    assert node.kubelet.view().offered == {}
    node.kubelet.ask("fault", refuse="")
    node.await_truth()
    assert plugin.process.stderr.count("the node is not in the mood") == len(
        node.model.offered("af")
    )


def test_a_registration_that_hangs_is_given_up_and_tried_again(
    node: Storm, processes: Processes
) -> None:
    node.kubelet.start()
    node.kubelet.ask("fault", hang=True)
    plugin = start(node, processes)
    plugin.process.wait_for_output("the kubelet doesn't answer a registration", timeout=SECONDS)
    node.kubelet.ask("fault", hang=False)
    node.await_truth()


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


def test_a_version_mismatch_says_clearly_what_to_do(node: Storm, processes: Processes) -> None:
    node.kubelet.start()
    node.kubelet.ask("fault", version="v2")
    plugin = start(node, processes)
    line = plugin.process.wait_for_output("doesn't speak v1beta1", timeout=SECONDS)
    assert "Supported version is" in line
    assert "upgrade" in line
    node.kubelet.ask("fault", version="v1beta1")
    node.await_truth()


def test_of_two_plugins_the_second_waits_through_restarts_of_the_kubelet(
    node: Storm, processes: Processes
) -> None:
    node.kubelet.start()
    first = start(node, processes)
    node.await_truth()
    sockets = first.sockets()
    second = Plugin(processes, node.folder)
    second.process.wait_for_output("another accelbind plugin serves on this node", timeout=SECONDS)
    for _ in range(3):
        node.kubelet.ask("restart")
        node.await_truth()
    names = {Path(each).name.split("-")[1] for each in (*sockets, *first.sockets())}
    assert len(names) == 1, "all sockets are the first one's"
    first.process.kill()
    node.plugin = second
    second.process.wait_for_output("the other plugin has ended", timeout=SECONDS)
    node.await_truth()
    eventually(lambda: one_socket_each(node), timeout=SECONDS)


def test_what_its_last_card_leaves_is_a_capacity_of_nothing_even_if_the_stream_was_cut(
    node: Storm, processes: Processes
) -> None:
    node.kubelet.start()
    start(node, processes)
    node.await_truth()
    node.kubelet.ask("fault", refuse="not now")
    for resource in sorted(node.kubelet.view().offered):
        node.kubelet.ask("cut_stream", resource=resource)
    eventually(lambda: node.kubelet.view().offered == {}, timeout=SECONDS)
    for address in node.model.physical():
        node.model.remove(address)
    eventually(lambda: node.plugin and node.plugin.cdi_devices() == set(), timeout=SECONDS)
    node.kubelet.ask("fault", refuse="")
    eventually(lambda: not any(node.kubelet.view().capacity.values()), timeout=SECONDS)
