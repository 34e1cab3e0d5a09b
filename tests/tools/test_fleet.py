"""The simulated fleet against the API server stand-in: what its scenes count."""

from pathlib import Path

import pytest

from simulator.apiserver.standin import ApiServerStandIn
from tools.fleet import scenes
from tools.fleet.plot import plot
from tools.fleet.scenes import Fleet


async def test_scenes_count_what_nodes_ask(
    api: ApiServerStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenes, "CALM_SECONDS", 1)
    monkeypatch.setattr(scenes, "CLAIM_SECONDS", 0)
    fleet = Fleet(api.access, tmp_path, 3, dra=True, minutes=0.02, restart="true")
    start = await fleet.play("start")
    assert start.requests["WATCH resourceslices"] == 3
    assert len(api.objects("Node")) == 3
    rest = start
    for _ in range(30):  # until all that follows the start is written
        rest = await fleet.play("rest")
        if not rest.requests:
            break
    assert (rest.requests, rest.watches) == ({}, 3), "at rest a node asks for nothing"
    began, asked = fleet.counts.second, rest.requests
    await fleet.play("claim")
    while asked.get("PATCH resourceclaims", 0) < 24:
        await fleet.play("rest")
        asked = fleet.counts.by_kind(began, fleet.counts.second)
    await fleet.play("rest")
    assert asked == {"GET resourceclaims": 24, "PATCH resourceclaims": 24}
    release = await fleet.play("release")
    assert not release.requests
    assert not api.objects("ResourceClaim")
    roll = await fleet.play("roll")
    assert roll.requests["WATCH resourceslices"] == 3
    for each in fleet.nodes:
        await each.stop()
        await each.client.aclose()
    assert plot([start, rest]).count("<polyline") == 2
