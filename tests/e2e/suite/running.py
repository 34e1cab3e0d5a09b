"""Pods that run on the node: their devices, whose they are, and that there are no more of them."""

import json
import re

import pytest

from tests.e2e.api import accelbind, until
from tests.e2e.cluster import Cluster
from tests.e2e.hosts import CARDS, FUNCTION, Hosts
from tests.e2e.pods import STAY, Pods, limits_of, pod_of, sample_pods, simple


def resource_of(pods: Pods, name: str) -> str:
    (resource,) = limits_of(pods.get(name)["spec"]["containers"][0])
    return resource


def test_a_container_gets_one_device_and_its_address(pods: Pods, function: str) -> None:
    name = pods.start(simple("one", {function: 1}))
    given = pods.given(name)["show"]
    assert len(given.devices) == 1
    (node,) = given.devices
    assert node.startswith(("/dev/dfl-port.", "/dev/intel-fpga-port."))
    (address,) = [value for key, value in given.env.items() if key.startswith("ACCELBIND_")]
    assert re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", address)


def test_a_container_gets_as_many_as_it_asks_for(pods: Pods, function: str, hosts: Hosts) -> None:
    hosts.serve("af")
    name = pods.start(simple("several", {function: CARDS}))
    assert len(pods.given(name)["show"].devices) == CARDS


def test_nobody_else_gets_a_device_until_it_is_given_back(
    pods: Pods, function: str, hosts: Hosts
) -> None:
    hosts.serve("af")
    holder = pods.start(simple("holder", {function: CARDS}, STAY))
    pods.begun(holder)
    waiting = pods.start(simple("waiting", {function: 1}))
    pods.until_waiting(waiting, f"Insufficient {FUNCTION}")
    pods.remove(holder)
    assert len(pods.given(waiting)["show"].devices) == 1


def test_people_see_who_has_a_device(
    cluster: Cluster, pods: Pods, function: str, hosts: Hosts
) -> None:
    name = pods.start(simple("seen", {function: 1}, STAY))
    pods.begun(name)

    def look() -> None:
        told = json.loads(accelbind("devices", "--files", *hosts.files, "-o", "json"))
        holders = [each for device in told["devices"] for each in device["holders"]]
        wanted = {
            "namespace": pods.namespace,
            "pod": name,
            "container": "show",
            "claim": "",
            "share": "",
        }
        assert holders == [wanted], f"{holders}, {told['problems']}"

    until(look, seconds=cluster.settings.patience, what="accelbind devices to name the pod")


@pytest.mark.parametrize("which", ["af", "init-container"])
def test_a_sample_runs(cluster: Cluster, pods: Pods, function: str, which: str) -> None:
    (item,) = sample_pods()[which]
    if FUNCTION not in cluster.allocatable():
        pytest.skip(f"node {cluster.node} doesn't offer the samples' function, but {function}")
    name = pods.start(item)
    assert pods.begun(name)["spec"]["nodeName"] == cluster.node


def test_an_init_container_hands_its_device_on(pods: Pods, function: str) -> None:
    item = simple("handed-on", {function: 1})
    item["spec"]["initContainers"] = [item["spec"]["containers"][0] | {"name": "before"}]
    name = pods.start(item)
    given = pods.given(name)
    assert given["before"].devices == given["show"].devices != frozenset()


def test_the_sample_deployment_runs(cluster: Cluster, pods: Pods, function: str) -> None:
    if FUNCTION not in cluster.allocatable():
        pytest.skip(f"node {cluster.node} doesn't offer the samples' function, but {function}")
    (item,) = sample_pods()["deployment"]
    replicas = item["spec"]["replicas"]
    labels = item["spec"]["template"]["metadata"]["labels"]
    pods.admitted(pod_of(item, "of-a-deployment"))
    if cluster.api.serves("apps/v1", "deployments"):
        pods.create(item)
    else:
        cluster.notes.append(
            "no controller for Deployments runs here; pods of its template were created instead"
        )
        for number in range(replicas):
            pods.create(pod_of(item, f"loopback-{number}"))

    def all_there() -> list[str]:
        names = [each["metadata"]["name"] for each in pods.labelled(**labels)]
        assert len(names) == replicas, f"{names}"
        return names

    names = until(all_there, seconds=cluster.settings.patience, what="the Deployment's pods")
    for name in names:
        assert pods.begun(name)["spec"]["nodeName"] == cluster.node
        assert resource_of(pods, name) == FUNCTION
