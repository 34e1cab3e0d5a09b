"""What was allowed before, and the file that keeps it."""

import asyncio
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.containers import approvals as module
from services.containers.approvals import ApprovalFile, StartApproval
from services.containers.identity import ContainerIdentity
from services.devices.model import PluginMode
from services.process.blocking import BlockingCalls

pytestmark = pytest.mark.anyio

RESOURCE = "fpga.intel.com/region-ce48969398f05f33946d560708be108a"


def approval(uid: str = "u", container: str = "c", *functions: str) -> StartApproval:
    return StartApproval(uid, container, RESOURCE, ("a", "b"), "who", functions or ("f",))


NAME = "state/approvals.json"


def opened(folder: Path) -> ApprovalFile:
    """The file, as a new process opens it."""
    return ApprovalFile(folder / NAME, BlockingCalls())


async def find(
    file: ApprovalFile, uid: str = "u", name: str = "c", resource: str = RESOURCE, ids: str = "ba"
) -> StartApproval | None:
    return await file.find(ContainerIdentity(uid, name), resource, list(ids))


async def test_an_approval_is_found_for_exactly_its_devices_after_a_restart(tmp_path: Path) -> None:
    await opened(tmp_path).add([approval()], gone=())
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    file = opened(tmp_path)
    assert await find(file) == approval()
    assert await find(file, "v") is None
    assert await find(file, "u", "d") is None
    assert await find(file, resource="other/x") is None
    assert await find(file, ids="a") is None
    assert await find(file, ids="abc") is None


@pytest.mark.parametrize(
    ("functions", "modes"),
    [(("f",), {PluginMode.REGION}), ((), set(PluginMode) - {PluginMode.REGION})],
)
def test_an_approval_does_not_count_after_a_change_of_mode(
    functions: tuple[str, ...], modes: set[PluginMode]
) -> None:
    given = StartApproval("u", "c", RESOURCE, ("a",), "who", functions)
    assert {mode for mode in PluginMode if given.is_for(mode)} == modes


async def test_a_newer_approval_replaces_the_one_of_the_same_container(tmp_path: Path) -> None:
    file = opened(tmp_path)
    await file.add([approval(), approval("u", "d")], gone=())
    await file.add([approval("u", "c", "g")], gone=())
    assert await find(file) == approval("u", "c", "g")
    assert await find(file, "u", "d") == approval("u", "d")


async def test_of_too_many_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_APPROVALS", 2)
    file = opened(tmp_path)
    for uid in ("1", "2", "1", "3"):
        await file.add([approval(uid)], gone=())
    assert await file.pods() == await opened(tmp_path).pods() == {"1", "3"}


async def test_an_approval_given_while_another_start_waited_is_kept(tmp_path: Path) -> None:
    """That start knows only the pods that were there when it began."""
    file = opened(tmp_path)
    await file.add([approval("old"), approval("first")], gone=())
    before, living = await file.pods(), {"first"}
    await file.add([approval("later")], gone=(await file.pods()) - {"first", "later"})
    await file.add([approval("first")], gone=before - living)
    assert await opened(tmp_path).pods() == {"first", "later"}


async def test_starts_that_are_first_at_once_all_see_the_file(tmp_path: Path) -> None:
    await opened(tmp_path).add([approval("u", "a"), approval("u", "b")], gone=())
    file = opened(tmp_path)
    assert None not in await asyncio.gather(find(file, "u", "a"), find(file, "u", "b"))
    file = opened(tmp_path)
    await asyncio.gather(*(file.add([approval("u", name)], gone=()) for name in "cd"))
    assert None not in [await find(opened(tmp_path), "u", name) for name in "abcd"]


BROKEN = [b"", b"{}", b"[1]", b"[{}]", b'[{"podUid": 1}]', b"\xff", b"[" * 100_000]


@pytest.mark.parametrize("content", BROKEN)
async def test_a_broken_file_counts_for_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).parent.mkdir()
    (tmp_path / NAME).write_bytes(content)
    (tmp_path / NAME).chmod(0o600)
    with capture_logs() as logs:
        assert await find(opened(tmp_path)) is None
    assert "no approvals can be read" in logs[0]["reason"]


async def test_a_file_that_others_may_write_counts_for_nothing(tmp_path: Path) -> None:
    await opened(tmp_path).add([approval()], gone=())
    (tmp_path / NAME).chmod(0o622)
    assert await find(opened(tmp_path)) is None


async def test_a_read_that_hangs_is_repeated_and_the_file_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, began, release = BlockingCalls(), threading.Event(), threading.Event()
    await ApprovalFile(tmp_path / NAME, calls).add([approval("a")], gone=())
    file = ApprovalFile(tmp_path / NAME, calls)

    def hang() -> None:
        began.set()
        release.wait(60)

    hanging = asyncio.create_task(calls.run("state files", hang, timeout=60, what="a disk"))
    await asyncio.to_thread(began.wait, 60)
    monkeypatch.setattr(module, "SECONDS", 0.05)
    await file.add([approval("b")], gone=())
    assert await file.pods() == {"b"}
    release.set()
    await hanging
    monkeypatch.setattr(module, "SECONDS", 60.0)
    await file.add([], gone=())
    assert await file.pods() == await opened(tmp_path).pods() == {"a", "b"}


async def test_a_failed_write_is_logged_once_and_tried_again(
    tmp_path: Path,
) -> None:
    (tmp_path / NAME).parent.touch()
    file = opened(tmp_path)
    with capture_logs() as logs:
        await file.add([approval("a")], gone=())
        await file.add([approval("b")], gone=())
    (warning,) = [each for each in logs if "can't be written" in each["reason"]]
    assert "--state-dir" in warning["do"]
    assert await file.pods() == {"a", "b"}
    (tmp_path / NAME).parent.unlink()
    await file.add([approval("b")], gone=())
    assert await opened(tmp_path).pods() == {"a", "b"}
