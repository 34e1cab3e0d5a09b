"""A restart of the node's kubelet: the container runs on, and there are devices again."""

import subprocess

import pytest

from services.kubelet.sockets import registration_socket
from tests.e2e.api import until
from tests.e2e.cluster import NODES, Cluster, ready
from tests.e2e.hosts import Hosts
from tests.e2e.pods import STAY, Broken, Pods, simple

RESTART_SECONDS = 180


def socket_of(cluster: Cluster) -> tuple[int, int] | None:
    """What tells one kubelet's socket from the next one's, if it is on this machine."""
    try:
        found = registration_socket(cluster.settings.kubelet_dir).stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def restart(cluster: Cluster) -> None:
    before = socket_of(cluster)
    command = cluster.settings.kubelet_restart
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        capture_output=True,
        text=True,
        timeout=RESTART_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"KUBELET_RESTART={command}: {done.stdout}{done.stderr}"

    def back() -> None:
        now = socket_of(cluster)
        assert before is None or now not in (None, before), f"its socket: {now}, before: {before}"
        node = cluster.api.get(NODES, cluster.node)
        assert ready(node), str(node["status"].get("conditions"))

    until(back, seconds=cluster.settings.patience, what="the kubelet to be back")


def life(pods: Pods, name: str) -> tuple[int, str]:
    """How many times a container was started, and when the last time."""
    (state,) = pods.get(name)["status"]["containerStatuses"]
    return state["restartCount"], state["state"]["running"]["startedAt"]


def test_a_restart_of_the_kubelet_takes_no_device(
    cluster: Cluster, pods: Pods, function: str, suite: Hosts | None
) -> None:
    if not cluster.settings.kubelet_restart:
        pytest.skip("KUBELET_RESTART=… is not set: the command that restarts the kubelet")
    if suite is not None:
        suite.serve("af")
    offer = cluster.allocatable()
    holder = pods.start(simple("holder", {function: 1}, STAY))
    pods.begun(holder)
    before = life(pods, holder)
    restart(cluster)
    cluster.until_offered(offer, "the offer of before the restart")

    def another() -> None:
        """A pod that comes before the kubelet knows the plugin again fails for good."""
        name = pods.start(simple("after", {function: 1}))
        try:
            assert len(pods.given(name)["show"].devices) == 1
        except Broken as error:
            raise AssertionError(str(error)) from error
        finally:
            pods.remove(name)

    until(another, seconds=cluster.settings.patience, what="a pod to get a device")
    assert life(pods, holder) == before, "its container ran on"
