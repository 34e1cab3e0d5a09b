"""Whose the devices are, as a kubelet with running pods tells it."""

from pathlib import Path

import pytest

from services.containers import holder_source as module
from services.containers.holder_source import HolderSource
from services.containers.holders import Holder
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError, KubeletError
from simulator.cards import CardSpec
from tests.plugin.support import AF, Bed, container
from tests.support import eventually_async

PORT = (AF, "dfl-port.0")
APP, INIT = Holder("ns", "p", "c"), Holder("ns", "p", "i")
CHECKPOINT = "k/device-plugins/kubelet_internal_checkpoint"
SOCKET = "k/pod-resources/kubelet.sock"


def source(folder: Path, *, forgets_gone: bool = False) -> HolderSource:
    return HolderSource(
        kubelet_dir=folder / "k",
        pod_logs_dir=folder / "k/pod-logs",
        calls=BlockingCalls(),
        forgets_gone=forgets_gone,
    )


async def test_a_pod_that_ends_holds_its_devices_until_the_checkpoint_says_otherwise(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is allocated meanwhile, and the kubelet goes on."""
    monkeypatch.setattr(module, "RENEW_SECONDS", 0.05)
    monkeypatch.setattr(module, "POLL_SECONDS", 0.05)
    for _ in range(4):
        bed.rack.add_card(CardSpec())
    async with bed.running():
        await bed.offers(4)
        first = await bed.start("p", container("c", AF), init=[container("i", AF, 2)])
        await bed.start("q", container("c", AF, 2))  # which the kubelet lists in two parts
        found = await source(bed.folder).snapshot()
        assert len(found.holders) == 4
        assert {each for holders in found.holders.values() for each in holders} == {
            APP,
            INIT,
            Holder("ns", "q", "c"),
        }
        await bed.kubelet.delete_pod(first)
        free = source(bed.folder)

        async def is_free() -> bool:
            return [*(await free.snapshot()).holders.values()] == [(Holder("ns", "q", "c"),)] * 2

        await eventually_async(is_free)
        assert len(await free.read()) == 2


async def test_after_the_plugin_a_pod_is_gone_with_its_log_folder(bed: Bed) -> None:
    """Nobody has the kubelet write its checkpoint then, and in doubt a device is held."""
    bed.rack.add_card(CardSpec())
    async with bed.running():
        await bed.offers(1)
        pod = await bed.start("p", container("c", AF))
    after = source(bed.folder, forgets_gone=True)
    assert await after.read() == {PORT: (Holder("", "", "c"),)}
    await bed.kubelet.delete_pod(pod)
    assert await source(bed.folder).read()

    async def is_gone() -> bool:
        return not await after.read()

    await eventually_async(is_gone)
    (bed.folder / "k/pod-logs").rename(bed.folder / "elsewhere")
    assert await after.read()


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


async def test_while_nothing_can_be_read_holders_stay_and_nothing_counts_as_free_at_the_start(
    bed: Bed,
) -> None:
    """A checkpoint that hangs is read again at the next scan, not when it changes."""
    bed.rack.add_card(CardSpec())
    checkpoint = bed.folder / CHECKPOINT
    async with bed.running():
        await bed.offers(1)
        await bed.start("p", container("c", AF), init=[container("i", AF)])
        known, unread = source(bed.folder), source(bed.folder)
        assert await known.current() == {PORT: (APP, INIT)}
        await bed.kubelet.stop()
        text = checkpoint.read_bytes()
        checkpoint.unlink()
        checkpoint.mkdir()
        for _ in range(2):
            assert (await known.current()).keys() == {PORT}
            assert [each.who.split()[1] for each in sorted(known.given)] == ["c", "i"]
            with pytest.raises(HardwareError, match="which containers have devices is unknown: "):
                await unread.current()
        assert (await known.snapshot()).holders.keys() == {PORT}
        checkpoint.rmdir()
        checkpoint.write_bytes(text)
        assert await unread.current() == {PORT: (APP, INIT)}


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
