"""All nodes at once, through the API server's pod proxy, as a person sees them."""

import json

import pytest

from tests.e2e.api import Json, accelbind, until
from tests.e2e.cluster import Cluster
from tests.e2e.hosts import CARDS, FUNCTION, Hosts
from tests.e2e.pods import STAY, Pods, simple


def node_of(cluster: Cluster, *flags: str) -> Json:
    """The node of the run, as `accelbind devices --cluster` shows it."""
    whole = ("--cluster", "--api-server", cluster.settings.api_server, "-o", "json")
    found: list[Json] = json.loads(accelbind("devices", *whole, *flags))["nodes"]
    (node,) = [each for each in found if each["node"] == cluster.node]
    return node


def stand_for_plugin(hosts: Hosts, cluster: Cluster) -> None:
    """Start a pod for the plugin, which is a process of the host: it has its address."""
    level = {"pod-security.kubernetes.io/enforce": "privileged"}
    made = simple("plugin", {}, STAY)
    made["metadata"] |= {
        "namespace": cluster.namespace("plugins", **level),
        "labels": {"app.kubernetes.io/component": "accelbind-plugin"},
    }
    made["spec"] |= {"hostNetwork": True, "nodeName": cluster.node}
    port = {"name": "metrics", "containerPort": hosts.plugin_port}
    made["spec"]["containers"][0]["ports"] = [port]

    def begin() -> None:  # a namespace has its account after a moment
        cluster.api.create(made)

    until(begin, seconds=30, what="a pod for the plugin")


def test_every_node_is_shown_and_told_when_its_plugin_is_away(
    cluster: Cluster, pods: Pods, function: str, hosts: Hosts
) -> None:
    if not cluster.is_real:
        pytest.skip("the simulator has no pod proxy")
    hosts.serve("af")
    holder = pods.start(simple("holder", {function: 1}, STAY))
    pods.begun(holder)
    stand_for_plugin(hosts, cluster)

    def look() -> None:
        node = node_of(cluster)
        assert (node["source"], node["error"], node["mode"]) == ("plugin", "", "af")
        assert node["counted"].get(FUNCTION) == CARDS
        holders = [one["pod"] for each in node["devices"] for one in each["holders"]]
        assert holders == [holder], node["problems"]
        (held,) = node_of(cluster, "--namespace", pods.namespace)["devices"]
        assert held["resource"] == FUNCTION

    until(look, seconds=cluster.settings.patience, what="devices --cluster to show the node")
    hosts.stop_plugin()
    node = node_of(cluster)
    assert "API servers do not reach its process" in node["error"]
    assert node["devices"] == []
