"""Cards that come back in another order: their ports and engines have other numbers then."""

import pytest

from services.devices.held import HELD
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
def test_no_container_gets_a_port_that_another_one_has(
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
            had = cluster.runs(f"p{number}")["c"]
            (device,) = (key for key, each in before.items() if each == had)
            given[device] = f"p{number}"
        take_away_and_bring_back_the_second_card_first(bed, card)
        # What is gone and held is listed too, without nodes.
        eventually(lambda: nodes() != before and all(nodes().values()), SECONDS)
        now = nodes()
        stale = {key: before[key] - now[key] for key in now}
        bed.call("shell", f"kill -USR1 {cluster.kubelet}")
        for device, name in given.items():
            if stale[device]:
                cluster.waits(name, "the device has another node now")
            else:
                cluster.runs(name)
        assert any(stale.values())
        while given:
            taken = set[str]().union(*(stale[key] for key in given))
            rightly = {key: before[key] if key in given else set[str]() for key in now}
            held = [key for key in now if now[key] & taken - rightly[key]]
            cluster.offers(*(now.keys() - held), **dict.fromkeys(held, HELD))
            cluster.allocatable(resource, count - len(held))
            cluster.delete(given.popitem()[1])
        cluster.offers(*now)
        cluster.allocatable(resource, count)
        cluster.create("p", container("c", resource, count))
        assert cluster.runs("p")["c"] == set[str]().union(*now.values())


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
