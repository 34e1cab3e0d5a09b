"""Definitions and mappings: what can be made, and what is refused where it is made."""

from collections.abc import Iterator

import pytest

from services.names import DOMAIN
from simulator.cards import A10_INTERFACE, NLB0, NLB3
from tests.e2e.api import Json, Place, Refused, until
from tests.e2e.cluster import Cluster
from tests.e2e.pods import Pods, containers, limits_of, simple
from tests.services.building import function

FUNCTIONS = "AcceleratorFunction"


def functions_of(pods: Pods) -> Place:
    return Place(f"{DOMAIN}/v2", FUNCTIONS, pods.namespace)


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        (function("not-hex", "af", afu="xyz"), "afuId"),
        (function("no-mode", "fast"), "mode"),
        (function(f"region-{A10_INTERFACE}", "region"), "physical resource name"),
        (function("odd", "af", afu=NLB0[:31]), "even total number"),
    ],
    ids=lambda value: value["metadata"]["name"] if isinstance(value, dict) else "",
)
def test_a_mapping_that_no_pod_could_use_is_refused(
    cluster: Cluster, pods: Pods, mapping: Json, words: str
) -> None:
    mapping["metadata"]["namespace"] = pods.namespace
    with pytest.raises(Refused) as caught:
        cluster.api.create(mapping, dry_run=True)
    assert (caught.value.code, words in caught.value.text) == (422, True), caught.value


def test_a_name_that_the_other_kind_has_is_refused(cluster: Cluster, pods: Pods) -> None:
    item = function("arria10", "af", namespace=pods.namespace)

    def look() -> str:
        try:
            cluster.api.create(item, dry_run=True)
        except Refused as error:
            return error.text
        raise AssertionError("it is accepted")

    text = until(look, seconds=60, what="a refusal of the mapping")
    assert "FpgaRegion" in text


def test_a_mapping_can_be_changed_and_counts_as_it_is_then(
    cluster: Cluster, pods: Pods, changing: Json
) -> None:
    place, name = functions_of(pods), changing["metadata"]["name"]
    cluster.api.patch(place, name, {"spec": {"afuId": NLB3}})

    def look() -> None:
        (container,) = containers(pods.admitted(simple("asks", {f"{DOMAIN}/{name}": 1})))
        (resource,) = [each for each in limits_of(container) if each.startswith(DOMAIN)]
        assert resource.startswith(f"{DOMAIN}/af-ce4.f7d."), resource

    until(look, seconds=60, what="pods that get the changed function")


@pytest.fixture
def changing(cluster: Cluster, pods: Pods) -> Iterator[Json]:
    made = cluster.api.create(function("changing", "af", namespace=pods.namespace))
    yield made
    cluster.api.delete(functions_of(pods), "changing")
