"""Whose the devices are, as a kubelet with running pods tells it."""

from pathlib import Path

import pytest

from services.containers.holder_source import HolderSource
from services.containers.holders import Holder
from services.process.blocking import BlockingCalls
from services.process.errors import KubeletError
from simulator.cards import CardSpec
from tests.plugin.support import AF, Bed, container

pytestmark = pytest.mark.anyio

PORT = (AF, "dfl-port.0")
APP, INIT = Holder("ns", "p", "c"), Holder("ns", "p", "i")
CHECKPOINT = "k/device-plugins/kubelet_internal_checkpoint"
SOCKET = "k/pod-resources/kubelet.sock"


def source(folder: Path) -> HolderSource:
    return HolderSource(
        kubelet_dir=folder / "k", pod_logs_dir=folder / "k/pod-logs", calls=BlockingCalls()
    )


async def test_running_pods_hold_devices_and_deleted_ones_do_not(bed: Bed) -> None:
    for _ in range(3):
        bed.rack.add_card(CardSpec())
    async with bed.running():
        await bed.offers(3)
        first = await bed.start("p", container("c", AF), init=[container("i", AF, 2)])
        second = await bed.start("q", container("c", AF))
        found = await source(bed.folder).read()
        assert len(found) == 3
        assert {each for holders in found.values() for each in holders} == {
            APP,
            INIT,
            Holder("ns", "q", "c"),
        }
        await bed.kubelet.delete_pod(first)
        found = await source(bed.folder).read()
        assert list(found.values()) == [(Holder("ns", "q", "c"),)]
        await bed.kubelet.delete_pod(second)
        assert await source(bed.folder).read() == {}


async def test_without_log_folders_the_devices_of_a_pod_that_ended_are_free(bed: Bed) -> None:
    """The checkpoint still has its entries, under a UID that only the past explains."""
    bed.rack.add_card(CardSpec())
    checkpoint = bed.folder / CHECKPOINT
    async with bed.running():
        await bed.offers(1)
        await bed.start("idle", container("c", "example.com/none", 0))
        (bed.folder / "k/pod-logs").rename(bed.folder / "elsewhere")
        first = await bed.start("p", container("c", AF), init=[container("i", AF)])
        kept = source(bed.folder)
        assert (await kept.read()).keys() == {PORT}
        text = checkpoint.read_bytes()
        await bed.kubelet.delete_pod(first)
        checkpoint.write_bytes(text)  # the real kubelet writes it with the next allocation only
        assert await kept.read() == {}
        assert (await source(bed.folder).read()).keys() == {PORT}


async def test_with_a_part_missing_a_snapshot_has_the_rest_and_says_what_is_unknown(
    bed: Bed,
) -> None:
    bed.rack.add_card(CardSpec())
    checkpoint, logs = bed.folder / CHECKPOINT, bed.folder / "k/pod-logs"

    async def snapshot(*holders: Holder) -> str:
        found = await source(bed.folder).snapshot()
        assert found.holders == {PORT: holders}
        return "; ".join(found.problems)

    async with bed.running():
        await bed.offers(1)
        await bed.start("p", container("c", AF), init=[container("i", AF)])
        assert await snapshot(APP, INIT) == ""
        text = checkpoint.read_bytes()
        checkpoint.write_bytes(b"{")
        assert (await snapshot(APP)).startswith("init containers that have devices are unknown: ")
        checkpoint.write_bytes(text)
        logs.rename(bed.folder / "elsewhere")
        assert await snapshot(APP, INIT) == ""
        logs.touch()
        assert (await snapshot(APP, INIT)).startswith("pods of init containers are unknown: ")
        logs.unlink()
        (bed.folder / "elsewhere").rename(logs)
        await bed.kubelet.stop()
        (bed.folder / SOCKET).unlink(missing_ok=True)
        away = await snapshot(APP, INIT)
        assert away.startswith("pods that have ended may be among the holders: ")
        assert (await source(bed.folder).read()).keys() == {PORT}, "the checkpoint is enough"


async def test_where_nothing_was_given_yet_no_file_needs_to_say_so(bed: Bed) -> None:
    checkpoint = bed.folder / CHECKPOINT
    checkpoint.unlink(missing_ok=True)
    assert await source(bed.folder).read() == {}
    checkpoint.write_bytes(b"{")
    with pytest.raises(KubeletError, match="not a checkpoint of the kubelet"):
        await source(bed.folder).read()
    checkpoint.unlink()
    await bed.kubelet.stop()
    (bed.folder / SOCKET).unlink(missing_ok=True)
    with pytest.raises(KubeletError, match="list the active pods"):
        await source(bed.folder).read()
    found = await source(bed.folder).snapshot()
    assert found.holders == {}
    (problem,) = found.problems
    assert problem.startswith("cannot tell which pods hold devices, since there is no checkpoint: ")
    assert problem.endswith("No such file or directory")
