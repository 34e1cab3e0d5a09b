"""Whose the devices are, as a kubelet with running pods tells it."""

from pathlib import Path

import pytest

from services.containers.holder_source import HolderSource
from services.containers.holders import Holder
from services.process.blocking import BlockingCalls
from services.process.errors import KubeletError
from simulator.cards import CardSpec, Rack
from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.support import AF, container, pod, running, settings

pytestmark = pytest.mark.anyio


def source(folder: Path) -> HolderSource:
    return HolderSource(
        kubelet_dir=folder / "k", pod_logs_dir=folder / "k/pod-logs", calls=BlockingCalls()
    )


async def test_running_pods_hold_devices_and_deleted_ones_do_not(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    for _ in range(3):
        rack.add_card(CardSpec())
    async with running(settings(short_dir)):
        await kubelet.until(lambda: kubelet.allocatable.get(AF) == 3)
        first = await kubelet.admit(pod("p", container("c", AF), init=[container("i", AF, 2)]))
        second = await kubelet.admit(pod("q", container("c", AF)))
        for each in (first, second):
            await kubelet.settled(each)
        found = await source(short_dir).read()
        assert len(found) == 3
        assert {name for names in found.values() for name in names} == {
            Holder("ns", "p", "c"),
            Holder("ns", "p", "i"),
            Holder("ns", "q", "c"),
        }
        await kubelet.delete_pod(first)
        found = await source(short_dir).read()
        assert list(found.values()) == [(Holder("ns", "q", "c"),)]
        await kubelet.delete_pod(second)
        assert await source(short_dir).read() == {}


async def test_without_log_folders_the_devices_of_a_pod_that_ended_are_free(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    """The checkpoint still has its entries, under a UID that only the past explains."""
    rack.add_card(CardSpec())
    checkpoint = short_dir / "k/device-plugins/kubelet_internal_checkpoint"
    async with running(settings(short_dir)):
        await kubelet.until(lambda: kubelet.allocatable.get(AF) == 1)
        await kubelet.admit(pod("idle", container("c", "example.com/none", 0)))
        (short_dir / "k/pod-logs").rename(short_dir / "elsewhere")
        spec = pod("p", container("c", AF), init=[container("i", AF)])
        first = await kubelet.settled(await kubelet.admit(spec))
        kept = source(short_dir)
        assert (await kept.read()).keys() == {(AF, "dfl-port.0")}
        text = checkpoint.read_bytes()
        await kubelet.delete_pod(first)
        checkpoint.write_bytes(text)  # the real kubelet writes it with the next allocation only
        assert await kept.read() == {}
        assert (await source(short_dir).read()).keys() == {(AF, "dfl-port.0")}


async def test_a_kubelet_that_is_away_tells_nothing(
    short_dir: Path, kubelet: KubeletStandIn
) -> None:
    await kubelet.stop()
    (short_dir / "k/device-plugins/kubelet_internal_checkpoint").unlink(missing_ok=True)
    with pytest.raises(KubeletError, match="list the active pods"):
        await source(short_dir).read()


async def test_what_can_be_told_is_told_though_a_part_is_missing(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec())
    checkpoint = short_dir / "k/device-plugins/kubelet_internal_checkpoint"
    async with running(settings(short_dir)):
        await kubelet.until(lambda: kubelet.allocatable.get(AF) == 1)
        spec = pod("p", container("c", AF), init=[container("i", AF)])
        await kubelet.settled(await kubelet.admit(spec))
        both = (Holder("ns", "p", "c"), Holder("ns", "p", "i"))
        snapshot = await source(short_dir).snapshot()
        assert (snapshot.holders, snapshot.problems) == ({(AF, "dfl-port.0"): both}, ())

        text = checkpoint.read_bytes()
        checkpoint.write_bytes(b"{")
        snapshot = await source(short_dir).snapshot()
        assert snapshot.holders == {(AF, "dfl-port.0"): (Holder("ns", "p", "c"),)}
        assert snapshot.problems[0].startswith("init containers that have devices are unknown: ")
        checkpoint.write_bytes(text)

        (short_dir / "k/pod-logs").rename(short_dir / "elsewhere")
        snapshot = await source(short_dir).snapshot()
        assert (snapshot.holders, snapshot.problems) == ({(AF, "dfl-port.0"): both}, ())
        (short_dir / "k/pod-logs").touch()
        snapshot = await source(short_dir).snapshot()
        assert snapshot.holders == {(AF, "dfl-port.0"): both}
        assert snapshot.problems[0].startswith("pods of init containers are unknown: ")
        (short_dir / "k/pod-logs").unlink()
        (short_dir / "elsewhere").rename(short_dir / "k/pod-logs")

        await kubelet.stop()
        snapshot = await source(short_dir).snapshot()
        assert snapshot.holders == {(AF, "dfl-port.0"): both}
        assert snapshot.problems[0].startswith("pods that have ended may be among the holders: ")


async def test_a_node_without_a_kubelet_is_one_problem(short_dir: Path) -> None:
    snapshot = await source(short_dir).snapshot()
    assert snapshot.holders == {}
    (problem,) = snapshot.problems
    assert problem.startswith("cannot tell which pods hold devices, since there is no checkpoint: ")
    assert problem.endswith("No such file or directory")


async def test_the_checkpoint_alone_tells_who_may_have_a_device(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    for _ in range(2):
        rack.add_card(CardSpec())
    async with running(settings(short_dir)):
        await kubelet.until(lambda: kubelet.allocatable.get(AF) == 2)
        await kubelet.settled(await kubelet.admit(pod("p", container("c", AF))))
        (short_dir / "k/pod-logs").rename(short_dir / "elsewhere")
        held = await source(short_dir).read()
        assert len(held) == 1
        await kubelet.stop()
        (short_dir / "k/pod-resources/kubelet.sock").unlink(missing_ok=True)
        assert (await source(short_dir).read()).keys() == held.keys()


async def test_where_nothing_was_given_yet_no_file_needs_to_say_so(
    short_dir: Path, kubelet: KubeletStandIn
) -> None:
    checkpoint = short_dir / "k/device-plugins/kubelet_internal_checkpoint"
    checkpoint.unlink(missing_ok=True)
    assert await source(short_dir).read() == {}
    checkpoint.write_bytes(b"{")
    with pytest.raises(KubeletError, match="not a checkpoint of the kubelet"):
        await source(short_dir).read()
    checkpoint.unlink()
    await kubelet.stop()
    (short_dir / "k/pod-resources/kubelet.sock").unlink(missing_ok=True)
    with pytest.raises(KubeletError, match="list the active pods"):
        await source(short_dir).read()
