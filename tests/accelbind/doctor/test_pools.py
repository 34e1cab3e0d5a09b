"""`accelbind doctor` on nodes and on the DaemonSets that select them."""

from typing import NamedTuple

import pytest

from accelbind.doctor.pools import untolerated_taints
from simulator.apiserver.standin import ApiServerStandIn
from tests.accelbind.doctor import answers as cluster
from tests.accelbind.doctor.answers import Json, expect
from tests.simulator.apiserver.support import PHYSICAL, node_with

pytestmark = pytest.mark.anyio


def tainted(key: str) -> Json:
    return {"key": key, "effect": "NoSchedule"}


def without_labels(name: str, capacity: str) -> Json:
    return node_with(name, {PHYSICAL: capacity})


class Scene(NamedTuple):
    """A cluster's nodes, the plugin's DaemonSets, and the nodes on which the first has pods."""

    nodes: list[Json]
    daemonsets: list[Json]
    running: tuple[str, ...] = ()


ONE = [cluster.daemonset()]
TWO = [*ONE, cluster.daemonset("accelbind-plugin-b", nodeSelector={"pool": "b"})]


@pytest.mark.parametrize(
    ("scene", "states", "words"),
    [
        (
            Scene([cluster.labelled("n1", {PHYSICAL: "1"})], TWO, ("n1",)),
            ["ok"],
            "plugins cover 1 node",
        ),
        (
            Scene([without_labels("n1", "1"), without_labels("n2", "2")], TWO),
            ["failed"],
            "kubectl label node n1 n2 accelbind.dev/plugin=true, and what else",
        ),
        (Scene([without_labels("n1", "0")], ONE), ["failed"], "plugins cover 0 nodes, and none"),
        (
            Scene(
                [
                    cluster.labelled("n1", {PHYSICAL: "1"}, tainted("team")),
                    cluster.labelled("n2", {}, tainted("team")),
                ],
                TWO,
            ),
            ["failed"],
            "no plugin DaemonSet tolerates team:NoSchedule of 2 nodes (n1 and n2)",
        ),
        (
            Scene([cluster.labelled("n1", {}, tainted("accelbind.dev/fpga"))], ONE, ("n2",)),
            ["failed"],
            "no plugin DaemonSet has a pod on node n1 with accelerators or the label",
        ),
        (
            Scene([without_labels(f"n{number}", "1") for number in range(10, 23)], ONE),
            ["failed"],
            "13 nodes (n10, n11, n12, n13, n14, n15, n16, n17, n18, n19 and 3 more)",
        ),
    ],
)
async def test_nodes_are_covered_by_one_plugin_daemonset_each(
    scene: Scene, states: list[str], words: str, api: ApiServerStandIn
) -> None:
    for node in scene.nodes:
        api.put(node)
    worst = "failed" if "failed" in states else states[0]
    pods = [cluster.plugin_on(name) for name in scene.running]
    pods.append(cluster.plugin_on("n1", "accelbind-plugin-b", phase="Failed"))
    answers = cluster.pools(scene.daemonsets, pods)
    result = await expect(api, "cluster.pools", worst, words, answers=answers)
    assert [str(line.state) for line in result.lines] == states


async def test_a_node_that_publishes_devices_without_a_class_needs_a_plugin(
    api: ApiServerStandIn,
) -> None:
    api.put(without_labels("n1", "0"))
    api.put(cluster.published("n1", cluster.attributes(type="rng")))
    answers = cluster.pools(ONE, [])
    words = "no plugin DaemonSet has a pod on node n1 with accelerators"
    await expect(api, "cluster.pools", "failed", words, answers=answers)


REGION = "fpga.intel.com/region-ce48969398f05f33946d560708be108a"


@pytest.mark.parametrize(
    ("annotation", "devices", "state"),
    [
        ("region", "1", "warning"),
        ("regiondevel", "1", "ok"),
        ("region", "0", "ok"),
        ("", "1", "ok"),
    ],
)
async def test_one_region_resource_in_two_modes_is_reported(
    annotation: str, devices: str, state: str, api: ApiServerStandIn
) -> None:
    """A pool of mode regiondevel, of which node n2 may have another mode by its annotation."""
    api.put(cluster.labelled("n1", {REGION: "1"}))
    other = cluster.labelled("n2", {REGION: devices})
    other["metadata"]["annotations"] = {"fpga.intel.com/device-plugin-mode": annotation}
    api.put(other)
    pods = [cluster.plugin_on("n1"), cluster.plugin_on("n2")]
    answers = cluster.pools([cluster.daemonset(mode="regiondevel")], pods)
    words = "" if state == "ok" else f"{REGION} is offered in mode region (node n2) and in mode"
    result = await expect(api, "cluster.pools", state, words, answers=answers)
    assert ("--enforce-mappings=never a pod" in str(result.lines)) is (state == "warning")


@pytest.mark.parametrize(
    ("mode", "annotation", "offered", "args", "state"),
    [
        ("af", "region", {PHYSICAL: "1"}, [], "warning"),
        ("af", "region", {PHYSICAL: "0", REGION: "1"}, [], "ok"),
        ("region", "", {PHYSICAL: "1"}, [], "warning"),
        ("units", "", {"b-com.com/accelerator": "8"}, [], "ok"),
        ("none", "", {REGION: "1"}, [], "warning"),
        ("af", "", {REGION: "1"}, ["plugin", "--api=dra"], "ok"),
    ],
)
async def test_a_node_whose_plugin_started_in_another_mode_is_named(
    *, mode: str, annotation: str, offered: Json, args: list[str], state: str, api: ApiServerStandIn
) -> None:
    node = cluster.labelled("n1", offered)
    node["metadata"]["annotations"] = {"fpga.intel.com/device-plugin-mode": annotation}
    api.put(node)
    daemonset = cluster.daemonset(mode=mode)
    daemonset["spec"]["template"]["spec"]["containers"][0]["args"] = args
    answers = cluster.pools([daemonset], [cluster.plugin_on("n1")])
    words = f"node n1 is to serve mode {annotation or mode}, and offers" if state != "ok" else ""
    await expect(api, "cluster.pools", state, words, answers=answers)


async def test_two_plugins_on_a_node_are_a_fault(api: ApiServerStandIn) -> None:
    api.put(node_with("n1", {PHYSICAL: "1"}))
    pods = [cluster.plugin_on("n1"), cluster.plugin_on("n1", "accelbind-plugin-b")]
    words = "DaemonSets accelbind-plugin and accelbind-plugin-b select node n1"
    answers = cluster.pools(TWO, pods)
    await expect(api, "cluster.pools", "failed", words, answers=answers)


@pytest.mark.parametrize(
    ("toleration", "taint", "kept_away"),
    [
        ({}, "key=team value=a effect=NoSchedule", "team=a:NoSchedule"),
        ({}, "key=team effect=PreferNoSchedule", ""),
        ({}, "key=node.kubernetes.io/unschedulable effect=NoSchedule", ""),
        ({"operator": "Exists", "effect": "NoExecute"}, "key=t effect=NoSchedule", "t:NoSchedule"),
        ({"key": "team", "operator": "Exists"}, "key=team value=a effect=NoSchedule", ""),
        ({"key": "other", "operator": "Exists"}, "key=t effect=NoSchedule", "t:NoSchedule"),
        ({"key": "t", "value": "b"}, "key=t value=a effect=NoSchedule", "t=a:NoSchedule"),
        ({"value": "a"}, "key=t value=a effect=NoSchedule", "t=a:NoSchedule"),
    ],
)
def test_taints_that_nothing_tolerates_keep_a_pod_away(
    toleration: Json, taint: str, kept_away: str
) -> None:
    node = {"spec": {"taints": [dict(word.split("=") for word in taint.split())]}}
    found = untolerated_taints({"tolerations": [toleration] if toleration else []}, node)
    assert found == ([kept_away] if kept_away else [])


@pytest.mark.parametrize(
    ("capacities", "state", "words"),
    [
        ([], "skipped", "there is no plugin DaemonSet in namespace accelbind-system → "),
        (["1", "0"], "failed", "accelbind-system, but node n0 has accelerators"),
        (["1", "2"], "failed", "but 2 nodes (n0 and n1) have accelerators → if accelbind"),
    ],
)
async def test_without_a_plugin_daemonset_nodes_with_accelerators_are_listed(
    capacities: list[str], state: str, words: str, api: ApiServerStandIn
) -> None:
    for number, capacity in enumerate(capacities):
        api.put(without_labels(f"n{number}", capacity))
    other = {"metadata": {"name": "exporter"}, "spec": {"template": {"spec": {"containers": []}}}}
    await expect(api, "cluster.pools", state, words, answers=cluster.pools([other], []))
