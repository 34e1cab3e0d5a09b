"""Each mode of a node: what it offers, what its sample gets, and what region mode programmes."""

import pytest

from services.names import DOMAIN
from simulator.cards import A10_INTERFACE, NLB0, NLB3
from tests.e2e.hosts import CARDS, Hosts
from tests.e2e.pods import Given, Pods, containers, sample_pods, simple

pytestmark = pytest.mark.usefixtures("can_run")

KEPT = f"{DOMAIN}/arria10-nlb0-programmed"
PROGRAMMED = f"{DOMAIN}/other-programmed"


def given_to(pods: Pods, sample: str) -> Given:
    """What the container of a sample is given, which is made to tell."""
    (item,) = sample_pods()[sample]
    told = simple(item["metadata"]["name"], {})
    (container,) = containers(item)
    container["command"] = containers(told)[0]["command"]
    name = pods.start(item)
    return pods.given(name)["show"]


def kinds(given: Given) -> list[str]:
    """`port` and `fme` for each device node."""
    return sorted(path.rpartition("-")[2].partition(".")[0] for path in given.devices)


def test_a_region_that_has_the_function_keeps_it(pods: Pods, hosts: Hosts) -> None:
    hosts.serve("region")
    hosts.install(NLB0)
    first = pods.start(simple("first", {KEPT: CARDS}))
    pods.given(first)  # it is programmed for this pod: no region has a record yet
    pods.remove(first)
    hosts.uninstall(NLB0)
    given = given_to(pods, "region")
    assert kinds(given) == ["port"]
    assert given.env["FPGA_AFU_1"] == NLB0
    assert given.env["FPGA_REGION_1"] == A10_INTERFACE
    assert hosts.functions() == [NLB0] * CARDS


def test_a_function_is_programmed_once_its_bitstream_is_there(pods: Pods, hosts: Hosts) -> None:
    hosts.serve("region")
    name = pods.start(simple("programmed", {PROGRAMMED: 1}))
    pods.until_waiting(name, "no bitstream for AFU")
    hosts.install(NLB3)
    given = pods.given(name)["show"]
    assert kinds(given) == ["port"]
    assert given.env["FPGA_AFU_1"] == NLB3
    assert hosts.functions() == sorted([NLB0] * (CARDS - 1) + [NLB3]), "one was programmed"


def test_regiondevel_hands_out_the_engine_as_well(pods: Pods, hosts: Hosts) -> None:
    hosts.serve("regiondevel")
    given = given_to(pods, "regiondevel")
    assert kinds(given) == ["fme", "port"]
    assert "FPGA_AFU_1" not in given.env


@pytest.mark.parametrize("mode", ["units", "bdf"])
def test_units_are_told_by_their_ids(pods: Pods, hosts: Hosts, mode: str) -> None:
    hosts.serve(mode)
    given = given_to(pods, "units")
    assert given.env["ACCELERATOR_UNITS"] == given.env["ACCELERATOR_DEVICES"] != ""
    assert kinds(given) == ([] if mode == "units" else ["port"])
