"""The devices of claims in their status: who has which, and whether it is healthy."""

import json
from contextlib import ExitStack
from typing import Any, Final

import msgspec
import pytest

from plugin.dra.book import ClaimEntry
from plugin.dra.claim_reports import device_reports
from plugin.dra.claims import ClaimRef, Share
from plugin.dra.wants import Kind, Want
from plugin.process import Plugin
from services.process.problem import Problem
from simulator.apiserver.http_server import Request
from simulator.card_faults import Fault
from simulator.cards import NLB0
from tests.plugin.dra.support import NEVER, Bed, claim, config, parts, result
from tests.support import eventually_async

HOT: Final = Problem("overheated", "95 degrees")


def writes(bed: Bed) -> list[Any]:
    """What was written to the status of claims, in turn; a write is about one with its UID."""
    reports = [each.request for each in bed.api.seen if is_report(each.request)]
    bodies = [json.loads(each.body) for each in reports]
    names = [each.path.split("/")[-2] for each in reports]
    assert [each["metadata"]["uid"] for each in bodies] == [f"uid-of-{each}" for each in names]
    return [each["status"]["devices"] for each in bodies]


def is_report(request: Request) -> bool:
    return request.method == "PATCH" and request.path.endswith("/status")


def conditions(bed: Bed, name: str) -> list[tuple[str, str]]:
    """Status and reason of the condition of each device in the status of a claim."""
    item = bed.api.get("ResourceClaim", name, "ns")
    assert item is not None
    devices = item["status"].get("devices") or []
    return [(each["status"], each["reason"]) for device in devices for each in device["conditions"]]


async def is_left_alone(bed: Bed, dra: Plugin) -> None:
    """A refusal has been seen, and what is refused is not tried again and again."""
    await eventually_async(lambda: writes(bed))
    await parts(dra).reports.run_once()  # beside the driver's own round, which may be in the middle
    tried = len(writes(bed))
    for _ in range(3):
        parts(dra).state.steps.request()
        await parts(dra).reports.run_once()
    assert len(writes(bed)) == tried


async def test_a_claim_is_reported_once_and_when_the_health_of_its_device_changes(bed: Bed) -> None:
    fpga = bed.add_fpga()
    (address,) = bed.rack.addresses
    item = claim("c", result(fpga), configs=(config(NEVER),))
    async with bed.running(healthy_after=1):
        await bed.ready(item)
        await eventually_async(lambda: conditions(bed, "c") == [("True", "Prepared")])
        await bed.prepare(item)  # as after a restart of the kubelet
    ((device,),) = writes(bed)
    assert device.pop("conditions")[0].pop("lastTransitionTime").endswith("Z")
    assert device == {
        "driver": "accelbind.dev",
        "pool": "n1",
        "device": fpga,
        "data": {"type": "fpga", "card": address, "function": NLB0},
    }
    async with bed.running(healthy_after=1):
        bed.rack.break_(address, Fault.OVERHEATED)
        await eventually_async(lambda: conditions(bed, "c") == [("False", "Unhealthy")])
        bed.rack.heal(address, Fault.OVERHEATED)
        await eventually_async(lambda: conditions(bed, "c") == [("True", "Prepared")])
    assert len(writes(bed)) == 3


async def test_claims_are_prepared_without_the_right_to_report_them_and_reported_with_it(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = "a", "b"
    items = [claim(each, result(bed.add_fpga()), configs=(config(NEVER),)) for each in names]
    async with bed.running() as dra:
        with bed.api.faults.failing(403, matches=is_report):
            for each in items:
                await bed.ready(each)
            await eventually_async(lambda: len(writes(bed)) == len(items))
            await is_left_alone(bed, dra)
            assert [conditions(bed, each) for each in names] == [[], []]
    monkeypatch.setattr("plugin.dra.claim_reports.FORBIDDEN_SECONDS", 0.1)
    with ExitStack() as refusing:
        refusing.enter_context(bed.api.faults.failing(403, matches=is_report))
        async with bed.running():
            await eventually_async(lambda: len(writes(bed)) > 2 * len(items))
            refusing.close()
            await eventually_async(
                lambda: [conditions(bed, each) for each in names] == [[("True", "Prepared")]] * 2
            )


@pytest.mark.parametrize("code", [404, 409])
async def test_a_claim_that_is_gone_or_replaced_is_left_alone(bed: Bed, code: int) -> None:
    item = claim("c", result(bed.add_fpga()), configs=(config(NEVER),))
    with bed.api.faults.failing(code, matches=is_report):
        async with bed.running() as dra:
            await bed.ready(item)
            await is_left_alone(bed, dra)


def test_each_share_is_reported_and_a_device_that_two_requests_have_once() -> None:
    old = Want("one", Kind.PLAIN, ("d",), ("1",), ((),), "a/d", "a/d")
    new = msgspec.structs.replace(old, attributes=({"type": "t", "card": "x"},))
    wants = (
        msgspec.structs.replace(new, shares=(Share("s1", 2),)),
        msgspec.structs.replace(new, request="two", shares=(Share("s2", 1),)),
        msgspec.structs.replace(new, request="all", kind=Kind.ADMIN, shares=(Share("s2"),)),
    )
    entry = ClaimEntry(ClaimRef("ns", "c", "u"), "boot", wants)
    found = device_reports(entry, {"d": (HOT, HOT)}, pool="n1")
    assert [(each["shareID"], each["data"]["shares"]) for each in found] == [("s1", 2), ("s2", 1)]
    assert found[0]["conditions"][0] == {
        "type": "Ready",
        "status": "False",
        "reason": "Unhealthy",
        "message": "overheated: 95 degrees; overheated: 95 degrees",
    }
    (report,) = device_reports(ClaimEntry(entry.claim, "boot", (old,)), {"d": ()}, pool="n1")
    assert report["data"] == {}
