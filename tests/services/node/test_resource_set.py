import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from plugin.device_plugin.server import ResourceServer
from services.containers.holders import Holder
from services.devices.model import Device
from services.node import registration
from services.node.device_list import CountedResources
from services.node.kubelet_folder import KubeletFolder
from services.node.ledger import Rules
from services.node.registration import Registration, RegistrationReports, ResourceSet
from services.node.state import NodeState
from services.process.errors import KubeletError
from services.process.retry import Backoff
from tests.services.node.support import set_state
from tests.support import background, eventually_async


def tree(**resources: str) -> Mapping[str, Mapping[str, Device]]:
    """Resources with a device for each letter."""
    return {name: {key: Device(key, name) for key in keys} for name, keys in resources.items()}


class Hopeless:
    """Has no server: the kubelet takes too long."""

    def create_server(
        self, resource: str, devices: Mapping[str, Device], path: Path
    ) -> ResourceServer:
        raise KubeletError(f"the kubelet did not ask for {len(devices)} of {resource} on {path}")


@asynccontextmanager
async def fleet(counted: CountedResources) -> AsyncIterator[ResourceSet]:
    """Registrations, which wait for a kubelet for ever unless its folder has one."""
    ours = ResourceSet(Hopeless(), KubeletFolder(Path("/nowhere")), counted)
    async with ours.serving():
        yield ours


async def test_a_resource_without_devices_ends_once_the_kubelet_counts_none_of_them(
    short_dir: Path,
) -> None:
    """Also one of an earlier process; not while pods have devices of it."""
    (short_dir / "kubelet.sock").touch()
    folder, state = KubeletFolder(short_dir), NodeState(Rules())
    folder.check()
    counted = CountedResources(folder, state)
    counted.note_sent("a", is_empty=False)
    counted.take_over(["of-another-mode"])
    async with fleet(counted) as ours:
        ours.offer(tree(a="x", b="y"))
        back = ours.registrations["b"]
        for _ in range(2):
            ours.offer({})
            assert not any(each.devices for each in ours.registrations.values())
        assert set(ours.registrations) == {"a", "of-another-mode"}
        for resource in ("a", "of-another-mode"):
            counted.note_sent(resource, is_empty=True)
        holder = (Holder("ns", "p", "c"),)
        held = {(resource, "x"): holder for resource in ("of-another-mode", "of-others")}
        set_state(state, holders=held)
        ours.offer(tree(b="y"))
        assert set(ours.registrations) == {"b", "of-another-mode"}
        set_state(state, holders={})
        ours.offer(tree(b="y"))
        assert set(ours.registrations) == {"b"}
        assert ours.registrations["b"] is not back


async def test_a_resource_that_comes_back_late_waits_for_the_end_of_its_last_endpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[str] = []
    let_go = asyncio.Event()

    async def run(_endpoint: Registration) -> None:
        steps.append("begins")
        try:
            await asyncio.Event().wait()
        finally:
            await let_go.wait()
            steps.append("has ended")

    monkeypatch.setattr(Registration, "keep_registered", run)
    async with fleet(CountedResources(KubeletFolder(Path("/nowhere")), NodeState(Rules()))) as ours:
        ours.offer(tree(a="x"))
        await eventually_async(lambda: steps == ["begins"])
        for _ in range(2):
            ours.offer({})
        assert not ours.registrations
        ours.offer(tree(a="x"))
        for _ in range(3):
            await asyncio.sleep(0)
        assert steps == ["begins"]
        let_go.set()
        await eventually_async(lambda: steps == ["begins", "has ended", "begins"])


async def test_a_registration_that_fails_slowly_makes_the_next_pause_longer_too(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "STABLE_SECONDS", 0.0)
    monkeypatch.setattr(registration, "REGISTER_FIRST_SECONDS", 0.0001)

    pauses: list[float] = []
    pause = Backoff.pause

    def noted(self: Backoff, asked: float = 0) -> float:
        pauses.append(pause(self, asked))
        return pauses[-1]

    monkeypatch.setattr(Backoff, "pause", noted)
    short_dir.joinpath("kubelet.sock").touch()
    folder = KubeletFolder(short_dir)
    counted = CountedResources(folder, NodeState(Rules()))
    devices = {"x": Device("x", "a")}
    ours = Registration(
        "a",
        devices,
        owner=Hopeless(),
        folder=folder,
        counted=counted,
        reports=RegistrationReports(),
    )
    async with background(ours.keep_registered()):
        await eventually_async(lambda: len(pauses) > 8)
    assert max(pauses) > 10 * pauses[0]
