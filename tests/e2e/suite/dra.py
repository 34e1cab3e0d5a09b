"""The DRA driver in the place of the plugin: resources, templates, health, restarts."""

import time
from collections.abc import Callable, Iterator

import pytest

from services.names import DOMAIN, dns_label
from simulator.card_faults import Fault
from simulator.cards import NLB0, NLB3
from tests.e2e.api import Place, place_of, until
from tests.e2e.cluster import Cluster
from tests.e2e.dra import GROUP, Driver, claim_of, driver_of, require_claims, with_template
from tests.e2e.hosts import CARDS, FUNCTION, Hosts
from tests.e2e.pods import STAY, Pods, simple
from tests.e2e.suite.kubelet import life, restart
from tests.services.building import function
from tests.support import soaking

pytestmark = pytest.mark.usefixtures("can_run")

KEPT = "arria10-nlb0-programmed"
PROGRAMMED = "other-programmed"
HOOK_SECONDS = 20 if soaking() else 4
RETRY_SECONDS = 100.0
"""Within which the kubelet has asked again."""


@pytest.fixture(scope="module")
def driver(cluster: Cluster, pods: Pods, hosts: Hosts) -> Iterator[Driver]:
    """The driver, and the classes for the mappings of the run."""
    require_claims(cluster)
    assert pods.namespace, "its mappings are made"
    for afu in (NLB0, NLB3):
        hosts.install(afu)
    with driver_of(hosts, CARDS) as running:
        yield running
    for afu in (NLB0, NLB3):
        hosts.uninstall(afu)


def test_a_node_moves_to_dra_and_back_while_a_pod_has_a_device_of_the_plugin(
    cluster: Cluster, pods: Pods, hosts: Hosts
) -> None:
    """First of all, before the driver serves; the kubelet is not restarted."""
    require_claims(cluster)
    hosts.install(NLB0)
    hosts.serve("region")
    pod = {f"{DOMAIN}/{KEPT}": 1}
    name = pods.start(simple("of-the-plugin", pod, STAY))
    pods.begun(name)
    before = life(pods, name)
    with driver_of(hosts, CARDS - 1) as driver:
        driver.until_published(CARDS - 1)
        pods.given(pods.start(simple("of-the-driver", pod)))
        assert life(pods, name) == before, "its container ran on"
        pods.remove(name)
        driver.until_published(CARDS)
        pods.tidy()
    hosts.serve("region")
    pods.given(pods.start(simple("of-the-plugin-again", pod)))
    pods.tidy()
    hosts.uninstall(NLB0)


def test_a_pod_that_requests_a_function_gets_a_claim(pods: Pods, driver: Driver) -> None:
    name = pods.create(simple("of-2019", {FUNCTION: 1}, STAY))
    pods.begun(name)
    (claim,) = pods.claims()
    assert claim["metadata"]["name"].startswith(f"{name}-extended-resources-")
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert result["device"] in driver.devices()
    pods.remove(name)
    pods.until_unclaimed()


def test_a_region_pod_gets_its_function_through_the_webhook(
    pods: Pods, driver: Driver, hosts: Hosts
) -> None:
    before = driver.programmings()
    given = pods.given(pods.start(simple("region", {f"{DOMAIN}/{PROGRAMMED}": 1})))["show"]
    assert given.env["FPGA_AFU_1"] == NLB3
    assert len(given.devices) == 1
    assert driver.programmings() == before + 1
    assert NLB3 in hosts.functions()


def test_successive_pods_of_two_functions_are_programmed_once_each(
    pods: Pods, driver: Driver
) -> None:
    templates = [driver.template(pods, each) for each in (KEPT, PROGRAMMED)]
    before = driver.programmings()
    for number in range(6):
        name = pods.create(with_template(f"pod-{number}", templates[number % 2]))
        wanted = (NLB0, NLB3)[number % 2]
        (device,) = pods.given(name)["show"].devices
        assert driver.carried(device) == wanted
        pods.remove(name)
        if number == 1:
            assert driver.programmings() <= before + 2
            before = driver.programmings()
    assert driver.programmings() == before, "the rest found its function"


def test_a_foreign_function_is_refused_until_it_is_mapped(
    pods: Pods, driver: Driver, elsewhere: Pods, figure: Callable[[str], None]
) -> None:
    """The template of a namespace that maps the function, in one that doesn't."""
    name, api = driver.template(pods, PROGRAMMED), pods.cluster.api
    item = api.get(Place(GROUP, "ResourceClaimTemplate", pods.namespace), name)
    item["metadata"] = {"name": name, "namespace": elsewhere.namespace}
    api.create(item)
    before, begun = driver.programmings(), time.monotonic()
    made = elsewhere.create(with_template("foreign", name, STAY))
    mapped = function(PROGRAMMED, "region", afu=NLB3, namespace=elsewhere.namespace)
    try:
        elsewhere.until_waiting(made, "is not mapped in namespace")
        assert driver.programmings() == before
        refused = time.monotonic()
        api.create(mapped)
        elsewhere.begun(made)
        waited = time.monotonic() - refused
        figure(f"refused after {refused - begun:.1f} s, running {waited:.0f} s after the mapping")
        assert waited <= RETRY_SECONDS
    finally:
        elsewhere.tidy()  # while there is a driver: without one, the pod would stay
        api.delete(place_of(mapped), PROGRAMMED)


def test_a_loaded_function_that_is_not_mapped_is_refused(driver: Driver, elsewhere: Pods) -> None:
    """The webhook sees no claims."""
    (name,) = [
        each["metadata"]["name"]
        for each in driver.print_classes()
        if each["spec"].get("extendedResourceName") == FUNCTION
    ]
    request = {"name": "fpga", "exactly": {"deviceClassName": name}}
    item = claim_of({"requests": [request]}, "loaded", elsewhere.namespace)
    elsewhere.cluster.api.create(item)
    made = elsewhere.create(with_template("unmapped", "loaded"))
    try:
        elsewhere.until_waiting(made, "no AcceleratorFunction of mode af in namespace")
    finally:
        elsewhere.tidy()


def test_a_device_waits_for_containers_whose_pod_was_deleted_by_force(
    pods: Pods, driver: Driver
) -> None:
    """The kubelet unprepares a claim once the containers of its pod have ended."""
    every = {f"{DOMAIN}/{KEPT}": CARDS}
    first = simple("forced", every, STAY)
    first["spec"]["terminationGracePeriodSeconds"] = 2 * HOOK_SECONDS
    hook = {"preStop": {"sleep": {"seconds": HOOK_SECONDS}}}
    first["spec"]["containers"][0]["lifecycle"] = hook
    name = pods.start(first)
    pods.begun(name)
    (before,) = pods.claims()
    pods.cluster.api.delete(pods.place, name)
    pods.cluster.api.delete(pods.place, name, grace=0)
    pods.begun(pods.start(simple("next", every, STAY)))
    (after,) = pods.claims()
    lines = driver.logged("claim prepared", "claim unprepared")
    last = [(each["event"], each["uid"]) for each in lines][-2:]
    assert last == [
        ("claim unprepared", before["metadata"]["uid"]),
        ("claim prepared", after["metadata"]["uid"]),
    ]


def test_a_hot_card_is_tainted_shown_and_avoided(
    pods: Pods, driver: Driver, hosts: Hosts, figure: Callable[[str], None]
) -> None:
    template = driver.template(pods, KEPT)
    name = pods.create(with_template("hot", template, STAY))
    pods.begun(name)
    (claim,) = pods.claims()
    device = claim["status"]["allocation"]["devices"]["results"][0]["device"]
    address = next(each for each in hosts.rack.addresses if dns_label(each) in device)

    def shown(health: str) -> None:
        (status,) = pods.get(name)["status"]["containerStatuses"]
        found = [one for each in status["allocatedResourcesStatus"] for one in each["resources"]]
        assert [each["health"] for each in found] == [health], str(found)

    def reported(ready: str) -> None:
        (found,) = pods.claims()[0]["status"].get("devices") or [{}]
        assert [each["status"] for each in found.get("conditions", ())] == [ready], str(found)

    def tainted(wanted: bool) -> None:
        assert bool(driver.devices()[device].get("taints")) is wanted

    patience = pods.patience
    until(lambda: shown("Healthy"), seconds=patience, what="the health in the pod's status")
    until(lambda: reported("True"), seconds=patience, what="the claim's status")
    hosts.rack.break_(address, Fault.OVERHEATED)
    hot = time.monotonic()
    try:
        until(lambda: tainted(True), seconds=patience, what="the taint")
        taken = time.monotonic() - hot
        until(lambda: shown("Unhealthy"), seconds=patience, what="the pod's status")
        until(lambda: reported("False"), seconds=patience, what="the claim's status")
        figure(f"tainted after {taken:.1f} s, shown after {time.monotonic() - hot:.1f} s")
        pods.given(pods.create(with_template("cool", template)))
    finally:
        hosts.rack.heal(address, Fault.OVERHEATED)
    until(lambda: tainted(False), seconds=patience, what="the end of the taint")
    until(lambda: shown("Healthy"), seconds=patience, what="the pod's status")


def test_slices_come_back_after_a_restart_of_the_kubelet(
    cluster: Cluster, pods: Pods, driver: Driver
) -> None:
    if not cluster.settings.kubelet_restart:
        pytest.skip("KUBELET_RESTART=… is not set: the command that restarts the kubelet")
    holder = pods.create(simple("holder", {FUNCTION: 1}, STAY))
    pods.begun(holder)
    before, slices = life(pods, holder), {each["metadata"]["uid"] for each in driver.slices()}
    restart(cluster)

    def renewed() -> None:
        found = {each["metadata"]["uid"] for each in driver.slices()}
        assert found, "deleted"
        assert not found & slices, "not deleted yet"

    until(renewed, seconds=cluster.settings.patience, what="new slices")
    driver.until_published(CARDS)
    pods.given(pods.create(simple("after", {FUNCTION: 1})))
    assert life(pods, holder) == before, "its container ran on"
