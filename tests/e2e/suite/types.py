"""A device of a device type: what its container can open, and that it keeps its node."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.names import DEVICE_DOMAIN
from simulator.devices import DeviceTree
from simulator.kubelet.reports import GIVEN_ANNOTATION
from tests.e2e.cluster import Cluster
from tests.e2e.hosts import Hosts
from tests.e2e.pods import Given, Pods, simple

pytestmark = pytest.mark.usefixtures("can_run")

RESOURCE = f"{DEVICE_DOMAIN}/hw-random"
TYPE = f"""\
apiVersion: accelbind.dev/v1alpha1
kind: DeviceType
metadata: {{name: hw-random}}
spec:
  match: [{{class: {{name: misc, entry: [hw_random]}}}}]
  resource: {{domain: {DEVICE_DOMAIN}, name: hw-random}}
"""
NUMBER = "10:183"
"""Of the kernel's random number generator, which a node with one has at /dev/hwrng."""
OPEN = """\
opens() { (: <"$1") 2>/dev/null && echo yes || echo no; }
mknod /tmp/fuse c 10 229
{ [ -c /dev/hwrng ] && echo "device /dev/hwrng"
  env | grep ^ACCELBIND_
  echo "HWRNG=$(opens /dev/hwrng)"
  echo "FUSE=$(opens /tmp/fuse)"
} >/dev/termination-log; true"""
ENDS = "sleep 8"


class Node:
    """A random number generator among the node's devices, and the plugin that serves it."""

    def __init__(self, hosts: Hosts) -> None:
        self.tree = DeviceTree(hosts.root, devices=hosts.cluster.is_real)
        self.place = self.tree.entry("", "misc", "hw_random", NUMBER, "hwrng")

    def renumber(self) -> None:
        """Give the device another node, as a restart of the machine may."""
        self.tree.remove(self.place)
        self.place = self.tree.entry("", "misc", "hw_random", NUMBER, "hwrng1")


@pytest.fixture
def node(cluster: Cluster, hosts: Hosts) -> Iterator[Node]:
    made, types = Node(hosts), hosts.folder / "types"
    types.mkdir(exist_ok=True)
    (types / "hw-random.yaml").write_text(TYPE)
    hosts.stop_plugin()
    hosts.start_plugin("none", "--device-types", str(types))
    cluster.until_offered({RESOURCE: 1}, "the offer of a device type")
    yield made
    hosts.leave()
    made.tree.remove(made.place)


def begun(pods: Pods, name: str) -> bool:
    """Wait until a pod runs; whether a container runtime runs it, and no stand-in."""
    pod = pods.begun(name)
    return GIVEN_ANNOTATION not in pod["metadata"].get("annotations", {})


def test_a_container_opens_its_device_and_no_other(pods: Pods, node: Node) -> None:
    assert node.place
    # As most containers are, with CAP_MKNOD.
    name = pods.start(simple("opens", {RESOURCE: 1}, OPEN, securityContext={}))
    is_real = begun(pods, name)
    given: Given = pods.given(name)["show"]
    assert given.devices == {"/dev/hwrng"}
    assert given.env["ACCELBIND_HW_RANDOM"] == "hw-random"
    if is_real:
        has_one = "yes" if Path("/dev/hwrng").exists() else "no"
        assert (given.env["HWRNG"], given.env["FUSE"]) == (has_one, "no")


def test_a_container_does_not_restart_with_a_node_that_is_another_now(
    pods: Pods, node: Node
) -> None:
    item = simple("renumbered", {RESOURCE: 1}, ENDS)
    item["spec"]["restartPolicy"] = "Always"
    name = pods.start(item)
    is_real = begun(pods, name)
    node.renumber()
    if is_real:  # a stand-in's containers don't end; tests/plugin restarts one
        pods.until_waiting(name, "the device has another node now")
        pods.until_waiting(name, "DeviceNodeChanged")
