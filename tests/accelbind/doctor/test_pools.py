"""`accelbind doctor` on nodes and on the DaemonSets that select them."""

from typing import NamedTuple

import pytest

from simulator.apiserver.standin import ApiServerStandIn
from tests.accelbind.doctor import answers as cluster
from tests.accelbind.doctor.answers import Json, expect
from tests.simulator.apiserver.support import PHYSICAL, node_with

pytestmark = pytest.mark.anyio


def tainted(key: str, effect: str = "NoSchedule") -> Json:
    return {"key": key, "effect": effect}


def without_labels(name: str, capacity: str) -> Json:
    return node_with(name, {PHYSICAL: capacity})


class Scene(NamedTuple):
    """A cluster's nodes, and the plugin's DaemonSets and pods."""

    nodes: list[Json]
    daemonsets: list[Json]
    pods: list[Json]


TWO = [cluster.daemonset(), cluster.daemonset("accelbind-plugin-b", nodeSelector={"pool": "b"})]
RUNNING = [cluster.plugin_on("n1")]


@pytest.mark.parametrize(
    ("scene", "states", "words"),
    [
        (
            Scene([cluster.labelled("n1", {PHYSICAL: "1"})], TWO[:1], RUNNING),
            ["ok"],
            "plugins cover 1 node",
        ),
        (
            Scene([without_labels("n1", "1"), without_labels("n2", "2")], TWO[:1], RUNNING),
            ["failed"],
            "kubectl label node n1 n2 accelbind.dev/plugin=true",
        ),
        (
            Scene([without_labels("n1", "1")], TWO[1:], []),
            ["failed"],
            "labels that the node selector or affinity of accelbind-plugin-b requires",
        ),
        (
            Scene([without_labels("n1", "0")], TWO[:1], []),
            ["warning", "ok"],
            "nothing, if the cards are gone; else kubectl label node n1",
        ),
        (
            Scene(
                [cluster.labelled("n1", {PHYSICAL: "1"}, pool="b")],
                TWO,
                [*RUNNING, cluster.plugin_on("n1", "accelbind-plugin-b")],
            ),
            ["failed", "ok"],
            "DaemonSets accelbind-plugin and accelbind-plugin-b select node n1",
        ),
        (
            Scene(
                [
                    cluster.labelled("n1", {PHYSICAL: "1"}, tainted("team")),
                    cluster.labelled("n2", {}, tainted("team")),
                ],
                TWO[:1],
                RUNNING,
            ),
            ["failed"],
            "accelbind-plugin does not tolerate team:NoSchedule of 2 nodes (n1, n2)",
        ),
        (
            Scene([cluster.labelled("n1", {}, tainted("accelbind.dev/fpga"))], TWO[:1], RUNNING),
            ["ok"],
            "plugins cover 1 node",
        ),
        (
            Scene(
                [cluster.labelled("n1", {PHYSICAL: "1"})],
                TWO[:1],
                [cluster.plugin_on("n2"), cluster.plugin_on("n1", phase="Failed")],
            ),
            ["failed"],
            "DaemonSet accelbind-plugin selects node n1, but has no pod there",
        ),
        (
            Scene([node_with("n1", {"cpu": "4"})], TWO, []),
            ["ok"],
            "plugins cover 0 nodes",
        ),
        (
            Scene([without_labels(f"n{number}", "1") for number in range(10, 23)], TWO[:1], []),
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
    answers = cluster.pools(scene.daemonsets, scene.pods)
    result = await expect(api, "cluster.pools", worst, words, answers=answers)
    assert [str(line.state) for line in result.lines] == states


@pytest.mark.parametrize(
    ("capacities", "state", "words"),
    [
        ([], "skipped", "there is no plugin DaemonSet in namespace accelbind-system → "),
        (["0"], "skipped", "there is no plugin DaemonSet"),
        (["1", "0"], "failed", "accelbind-system, but node n0 has accelerators"),
        (["1", "2"], "failed", "but 2 nodes (n0, n1) have accelerators → if accelbind"),
    ],
)
async def test_without_a_plugin_daemonset_nodes_with_accelerators_are_listed(
    capacities: list[str], state: str, words: str, api: ApiServerStandIn
) -> None:
    for number, capacity in enumerate(capacities):
        api.put(without_labels(f"n{number}", capacity))
    other = {"metadata": {"name": "exporter"}, "spec": {"template": {"spec": {"containers": []}}}}
    await expect(api, "cluster.pools", state, words, answers=cluster.pools([other], []))


async def test_pools_are_held_to_the_account_of_their_own_mode(api: ApiServerStandIn) -> None:
    api.put(cluster.labelled("n1", {PHYSICAL: "1"}))
    region = cluster.daemonset(
        "accelbind-plugin-b", mode="region", serviceAccountName="accelbind-plugin-region"
    )
    there = cluster.pools([cluster.daemonset(), region], [])
    answers = cluster.first_of(there, cluster.judging(lambda _: True))
    words = ("4 of 4 rights", "9 of 9 rights")
    result = await expect(api, "cluster.access.plugin", "failed", *words, answers=answers)
    yellow = [line.what for line in result.lines if str(line.state) == "warning"]
    assert {text.split()[0] for text in yellow} == {"accelbind-plugin"}
