"""`accelbind doctor` on nodes and on the DaemonSets that select them."""

from typing import NamedTuple

import pytest

from simulator.apiserver.standin import ApiServerStandIn
from tests.accelbind.doctor import answers as cluster
from tests.accelbind.doctor.answers import Json, expect
from tests.simulator.apiserver.support import PHYSICAL, node_with


def tainted(key: str) -> Json:
    return {"key": key, "effect": "NoSchedule"}


def without_labels(name: str, capacity: str) -> Json:
    return node_with(name, {PHYSICAL: capacity})


class Scene(NamedTuple):
    """Nodes and slices, the plugin's DaemonSets, and the nodes on which the first has pods."""

    nodes: list[Json]
    daemonsets: list[Json]
    running: tuple[str, ...] = ()


PUBLISHED = cluster.published("n1", cluster.attributes(type="rng"))
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
            "kubectl label node n1 n2 accelbind.dev/plugin=true, tolerate",
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
            "2 nodes (n1 and n2) with accelerators or the label accelbind.dev/plugin (taints: team",
        ),
        (
            Scene([cluster.labelled("n1", {}, tainted("accelbind.dev/fpga"))], ONE, ("n2",)),
            ["failed", "ok"],
            "has a pod on node n1 with accelerators or the label",
        ),
        (
            Scene([without_labels(f"n{number}", "1") for number in range(10, 23)], ONE),
            ["failed"],
            "13 nodes (n10, n11, n12, n13, n14, n15, n16, n17, n18, n19 and 3 more)",
        ),
        (
            Scene([without_labels("n1", "0"), PUBLISHED], ONE),
            ["failed"],
            "has a pod on node n1 with accelerators",
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
    said = {name: cluster.says("af", PHYSICAL) for name in scene.running}
    answers = cluster.pools(scene.daemonsets, pods, **said)
    result = await expect(api, "cluster.pools", worst, words, answers=answers)
    assert [str(line.state) for line in result.lines] == states


REGION = "fpga.intel.com/region-ce48969398f05f33946d560708be108a"


@pytest.mark.parametrize(
    ("mode", "resources", "state"),
    [("region", [REGION], "warning"), ("regiondevel", [REGION], "ok"), ("region", ["x/y"], "ok")],
)
async def test_one_region_resource_in_two_modes_is_reported(
    mode: str, resources: list[str], state: str, api: ApiServerStandIn
) -> None:
    node = cluster.labelled("n1", {})
    node["metadata"]["annotations"] = {"fpga.intel.com/device-plugin-mode": mode}
    for each in (node, cluster.labelled("n2", {})):
        api.put(each)
    answers = cluster.pools(
        [cluster.daemonset(mode="regiondevel")],
        [cluster.plugin_on("n1"), cluster.plugin_on("n2")],
        n1=cluster.says(mode, *resources),
        n2=cluster.says("regiondevel", REGION),
    )
    words = "" if state == "ok" else f"{REGION} is offered in mode region (node n1) and in mode"
    result = await expect(api, "cluster.pools", state, words, answers=answers)
    assert ("--enforce-mappings=never a pod" in str(result.lines)) is (state == "warning")


async def test_what_plugins_say_is_shown(api: ApiServerStandIn) -> None:
    for name in ("n1", "n2", "n3"):
        api.put(cluster.labelled(name, {}))
    said = cluster.says("region", PHYSICAL, problems=["no right to write Events"])
    broken: Json = {"device": "d1", "health": "Unhealthy", "reasons": []}
    broken["reasons"] = [{"reason": "port-errors", "message": "0x40"}]
    in_use = {"device": "d2", "reasons": [{"reason": "function-in-use", "message": "held"}]}
    said["devices"] += [broken, in_use]
    pods = [cluster.plugin_on("n1", mode="af"), cluster.plugin_on("n2", phase="Pending")]
    pods.append(cluster.plugin_on("n3"))
    answers = cluster.pools(ONE, pods, n1=said, n3=cluster.says("af"))
    words = (
        "node n1: no right to write Events → accelbind devices --cluster --node n1",
        "node n1: it is to serve mode af, and its plugin serves region, as when it started",
        "node n1: devices are not healthy: port-errors (1) → accelbind devices --cluster",
        "node n2: its pod accelbind-plugin-n2 is Pending",
        "plugins cover 3 nodes",
    )
    result = await expect(api, "cluster.pools", "warning", *words, answers=answers)
    assert "function-in-use" not in str(result.lines)


@pytest.mark.parametrize(
    ("capacities", "state", "words"),
    [
        ([], "skipped", "there is no plugin DaemonSet in namespace accelbind-system → "),
        (["1", "0"], "failed", "no plugin of namespace accelbind-system has a pod on node n0 with"),
        (["1", "2"], "failed", "accelbind.dev/plugin → if accelbind runs in another namespace"),
    ],
)
async def test_without_a_plugin_daemonset_nodes_with_accelerators_are_listed(
    capacities: list[str], state: str, words: str, api: ApiServerStandIn
) -> None:
    for number, capacity in enumerate(capacities):
        api.put(without_labels(f"n{number}", capacity))
    other = {"metadata": {"name": "exporter"}, "spec": {"template": {"spec": {"containers": []}}}}
    await expect(api, "cluster.pools", state, words, answers=cluster.pools([other], []))
