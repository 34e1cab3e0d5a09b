"""Cards that come back in another order: their ports and engines have other numbers then."""

import pytest

from simulator.registers.cards import PAC_A10, TWO_PORTS, DflCard
from tests.kernel.bed import Bed
from tests.kernel.cluster import SECONDS, Cluster
from tests.kernel.pods_scenarios import take_away_and_bring_back_the_second_card_first
from tests.plugin.support import container
from tests.support import eventually

CARDS = (TWO_PORTS, PAC_A10)


@pytest.fixture(scope="module")
def cluster(bed: Bed) -> Cluster:
    return Cluster(bed)


@pytest.mark.parametrize(("mode", "count"), [("bdf", 3), ("regiondevel", 2)])
def test_no_container_starts_again_with_the_port_of_another_one(
    bed: Bed, cluster: Cluster, card: DflCard, mode: str, count: int
) -> None:
    def nodes() -> dict[str, set[str]]:
        return {each.device: {*each.nodes} for each in cluster.offered()}

    with cluster.serving("--mode", mode, "--enforce-mappings", "never", "--scan-interval", "0.5"):
        eventually(lambda: len(nodes()) == count, SECONDS)
        before, (resource,) = nodes(), {*cluster.resources().values()}
        cluster.allocatable(resource, count)
        given = {}
        for number in range(count):
            cluster.create(f"p{number}", container("c", resource))
            given[f"p{number}"] = cluster.runs(f"p{number}")["c"]
        take_away_and_bring_back_the_second_card_first(bed, card)
        # What is gone and held is listed too, without nodes.
        eventually(lambda: nodes() != before and all(nodes().values()), SECONDS)
        now = nodes()
        bed.call("shell", f"kill -USR1 {cluster.kubelet}")
        for name, had in given.items():
            (device,) = (key for key, each in before.items() if each == had)
            if had == now[device]:
                cluster.runs(name)
            else:
                cluster.waits(name, "the device has another node now")


def test_no_container_starts_again_on_another_function(
    bed: Bed, cluster: Cluster, card: DflCard
) -> None:
    with cluster.serving("--mode", "af", "--scan-interval", "0.5"):
        eventually(lambda: len(cluster.resources()) == 3, SECONDS)
        resource = cluster.resources()["dfl-port.1"]
        cluster.allocatable(resource, 1)
        cluster.create("p", container("c", resource))
        assert cluster.runs("p")["c"] == {"/dev/dfl-port.1"}
        take_away_and_bring_back_the_second_card_first(bed, card)
        eventually(lambda: cluster.resources().get("dfl-port.1") not in (None, resource), SECONDS)
        bed.call("shell", f"kill -USR1 {cluster.kubelet}")
        cluster.waits("p", "another function is in it")
