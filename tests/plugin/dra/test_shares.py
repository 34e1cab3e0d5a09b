"""Shares of a device of a type: one device in the slice, of which several claims have a part."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Final

import pytest
import yaml
from structlog.testing import capture_logs

from plugin.process import Plugin
from services.containers.holders import Holder
from simulator.apiserver.http_server import Request
from simulator.apiserver.standin import ApiServerStandIn, Options
from simulator.devices import DeviceTree
from tests.plugin.dra.support import Bed, claim, parts, result
from tests.support import eventually_async

RESOURCE: Final = "device.accelbind.dev/random"
WHOLE: Final = "random-hw-random"
REPLICA: Final = f"{WHOLE}-r0"


def share(number: int, amount: int = 1) -> dict[str, Any]:
    """A part of the device, as the scheduler allocates it."""
    consumed = {"shares": str(amount)}
    return result(WHOLE, "r", shareID=f"share-{number}", consumedCapacity=consumed)


class Node:
    """A device of which several claims may have a part."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.types = bed.folder / "types"
        self.types.mkdir()
        DeviceTree(bed.folder / "root").entry("", "misc", "hw_random", "10:183", "hwrng")

    def write_type(self, **sharing: object) -> None:
        item = {
            "apiVersion": "accelbind.dev/v1alpha1",
            "kind": "DeviceType",
            "metadata": {"name": "random"},
            "spec": {
                "match": [{"class": {"name": "misc", "entry": ["hw_random"]}}],
                "resource": {"domain": "device.accelbind.dev", "name": "random"},
                "sharing": sharing,
            },
        }
        (self.types / "type.yaml").write_text(yaml.safe_dump(item))

    def running(self, **settings: Any) -> AbstractAsyncContextManager[Plugin]:
        return self.bed.serving(device_types=self.types, **settings)

    async def until_published(self, *names: str) -> None:
        await eventually_async(lambda: sorted(self.bed.published) == sorted(names), timeout=20)


@pytest.fixture
def node(bed: Bed) -> Node:
    return Node(bed)


async def test_a_shared_device_is_one_device_with_a_capacity(node: Node) -> None:
    node.write_type(replicas=100)
    async with node.running():
        await node.until_published(WHOLE)
    (device,) = node.bed.published.values()
    assert device["allowMultipleAllocations"] is True
    policy = {"default": "1", "validRange": {"min": "1", "step": "1"}}
    assert device["capacity"] == {"shares": {"value": "100", "requestPolicy": policy}}
    assert device["attributes"]["card"] == {"string": "hw-random"}


async def test_a_type_can_keep_its_replicas(node: Node) -> None:
    node.write_type(replicas=2, dra="replicas")
    async with node.running():
        await node.until_published(REPLICA, f"{WHOLE}-r1")
    assert not any(
        {"capacity", "allowMultipleAllocations"} & each.keys()
        for each in node.bed.published.values()
    )


async def test_claims_have_parts_of_one_device_until_nothing_is_left(node: Node) -> None:
    node.write_type(replicas=3)
    bed = node.bed
    first, second = claim("a", share(1)), claim("b", share(2, 2))
    async with node.running() as dra:
        for each, number in ((first, 1), (second, 2)):
            (device,) = (await bed.ready(each)).devices
            assert (device.device_name, device.share_id) == (WHOLE, f"share-{number}")
        assert parts(dra).book.holders({}) == {
            (RESOURCE, "hw-random"): (
                Holder("ns", "", "", "a", "share-1"),
                Holder("ns", "", "", "b", "share-2"),
            )
        }
        third = claim("c", share(3))
        bed.api.put(third)
        parts(dra).preparation.ends = True  # it would wait for a part that is given back
        refused = (await bed.prepare(third))["c"].error
        assert f"others still have {WHOLE} (of claim ns/" in refused
        await bed.unprepare(first)
        await bed.ready(third)
    # As after a restart of driver and kubelet: the parts are counted as before.
    async with node.running() as dra:
        await node.until_published(WHOLE)
        for each in (second, third):
            await bed.ready(each)
        parts(dra).preparation.ends = True
        assert "others still have" in await bed.refused(claim("d", share(4)))
        await bed.unprepare(second, third)
        await bed.ready(claim("e", share(5, 3)))


async def test_a_device_is_withheld_while_claims_have_replicas_of_it(node: Node) -> None:
    """As after an update of a driver that published replicas, or of a type."""
    node.write_type(replicas=2, dra="replicas")
    old, new = claim("old", result(REPLICA)), claim("new", share(1))
    async with node.running() as dra:
        await node.until_published(REPLICA, f"{WHOLE}-r1")
        await node.bed.ready(old)
        file = node.bed.cdi(old)
        node.write_type(replicas=2)
        await node.until_published()
        parts(dra).preparation.ends = True
        assert "others still have" in await node.bed.refused(new)
    async with node.running():
        await node.until_published()
        assert node.bed.cdi(old) == file  # its containers may restart
        await node.bed.unprepare(old)
        await node.until_published(WHOLE)
        await node.bed.ready(new)
        node.write_type(replicas=2, dra="replicas")
        await node.until_published()
        node.write_type()
        await node.until_published()
        await node.bed.unprepare(new)
        await node.until_published(WHOLE)
    assert "capacity" not in node.bed.published[WHOLE]


def is_trial(request: Request) -> bool:
    return request.query.get("dryRun") == "All"


@pytest.fixture
async def old_server(node: Node, anyio_backend: str) -> AsyncIterator[Node]:  # noqa: ARG001 - async fixtures of anyio need it
    """A node whose API server drops what says that devices have shares."""
    folder = node.bed.folder / "old"
    folder.mkdir()
    shares = ("allowMultipleAllocations", "requestPolicy")
    async with ApiServerStandIn(folder, Options(dropped=shares)) as api:
        node.bed = replace(node.bed, api=api)
        api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "u1"}})
        yield node


@pytest.mark.parametrize("mode", ["region", "none"])
async def test_fpgas_can_be_left_to_nobody(node: Node, mode: str) -> None:
    fpga = node.bed.add_fpga()
    node.write_type()
    async with node.running(mode=mode):
        await node.until_published(*[fpga] * (mode == "region"), WHOLE)


async def test_on_a_server_that_drops_shares_replicas_are_published(old_server: Node) -> None:
    node, old = old_server, claim("old", result(REPLICA))
    node.write_type(replicas=2)
    both = REPLICA, f"{WHOLE}-r1"
    with capture_logs() as logs:
        async with node.running():
            await node.until_published(*both)
            await node.bed.ready(old)
    assert "the API server drops shares" in str(logs)
    # Claims of an earlier process keep nothing from being published.
    async with node.running():
        await node.until_published(*both)
    stored = [
        each.request.method
        for each in node.bed.api.seen
        if "/resourceslices" in each.request.path and not is_trial(each.request)
    ]
    assert [each for each in stored if each != "GET"] == ["POST"]


async def test_shares_are_published_where_a_trial_is_refused(node: Node) -> None:
    """As by an API server that asks a webhook which has side effects."""
    node.write_type(replicas=2)
    with node.bed.api.faults.failing(400, matches=is_trial):
        async with node.running():
            await node.until_published(WHOLE)
    with node.bed.api.faults.failing(503, count=1, matches=is_trial):
        async with node.running():
            await node.until_published(WHOLE)


async def test_replicas_are_published_once_a_stored_slice_lacks_shares(old_server: Node) -> None:
    """As where trials are refused, or say what the API server doesn't keep to later."""
    old_server.write_type(replicas=2)
    api = old_server.bed.api
    with api.faults.failing(400, matches=is_trial), capture_logs() as logs:
        async with old_server.running() as dra:
            await old_server.until_published(REPLICA, f"{WHOLE}-r1")
            # The feature was on until now.
            parts(dra).state.divides = True
            parts(dra).state.rescan.request()
            await eventually_async(lambda: str(logs).count("the API server drops shares") == 2)
            await old_server.until_published(REPLICA, f"{WHOLE}-r1")


@pytest.mark.parametrize("sharing", [{}, {"dra": "replicas"}])
async def test_claims_of_replicas_are_prepared_again_while_the_api_server_is_away(
    old_server: Node, sharing: dict[str, Any]
) -> None:
    node, old = old_server, claim("old", result(REPLICA))
    node.write_type(replicas=2, **sharing)
    async with node.running():
        await node.until_published(REPLICA, f"{WHOLE}-r1")
        await node.bed.ready(old)
    with node.bed.api.faults.failing(503, matches=lambda _: True):
        async with node.bed.running(device_types=node.types):
            await node.bed.register()
            done = await node.bed.prepare(old)
            assert [each.device_name for each in done["old"].devices] == [REPLICA]
            assert not done["old"].error
