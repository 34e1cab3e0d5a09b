"""What was approved, in its file."""

import asyncio
import threading
from pathlib import Path

import pytest

from services.containers import approval_file
from services.containers.approval_file import ApprovalFile
from services.containers.approvals import StartApproval
from services.containers.identity import ContainerIdentity
from services.process.blocking import BlockingCalls

pytestmark = pytest.mark.anyio


def approval(name: str) -> StartApproval:
    return StartApproval("uid", name, "r", ("d",), f"container {name}", ("f",))


async def test_several_that_ask_first_at_once_all_see_what_a_predecessor_approved(
    tmp_path: Path,
) -> None:
    path, calls = tmp_path / "approvals.json", BlockingCalls()
    await ApprovalFile(path, calls).add([approval("a"), approval("b")], gone=())
    again = ApprovalFile(path, calls)
    candidates = [ContainerIdentity("uid", name) for name in ("a", "b")]
    found = await asyncio.gather(*(again.find(each, "r", {"d"}) for each in candidates))
    assert found == [approval("a"), approval("b")]
    third = ApprovalFile(path, calls)
    adding = (third.add([approval(name)], gone=()) for name in ("c", "d"))
    await asyncio.gather(*adding)
    last = ApprovalFile(path, calls)
    every = [await last.find(ContainerIdentity("uid", name), "r", {"d"}) for name in "abcd"]
    assert every == [approval(name) for name in "abcd"]


async def test_what_was_approved_while_another_start_waited_is_kept(tmp_path: Path) -> None:
    """That start knows only the pods that were there when it began."""
    path, calls = tmp_path / "approvals.json", BlockingCalls()
    file = ApprovalFile(path, calls)
    await file.add([of_pod("old"), of_pod("first")], gone=())
    before, living = await file.pods(), {"first"}
    await file.add([of_pod("meanwhile")], gone=(await file.pods()) - {"first", "meanwhile"})
    await file.add([of_pod("first")], gone=before - living)
    again = ApprovalFile(path, calls)
    assert await again.pods() == {"first", "meanwhile"}


async def test_a_file_that_did_not_answer_is_read_later_and_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, calls = tmp_path / "approvals.json", BlockingCalls()
    await ApprovalFile(path, calls).add([of_pod("a")], gone=())
    file, began, release = ApprovalFile(path, calls), threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        release.wait(60)

    hanging = asyncio.create_task(calls.run("state files", hang, timeout=60, what="a disk"))
    await asyncio.to_thread(began.wait, 60)
    monkeypatch.setattr(approval_file, "SECONDS", 0.05)
    await file.add([of_pod("b")], gone=())
    assert await file.pods() == {"b"}
    release.set()
    await hanging
    monkeypatch.setattr(approval_file, "SECONDS", 60.0)
    await file.add([], gone=())
    assert await file.pods() == {"a", "b"}
    assert await ApprovalFile(path, calls).pods() == {"a", "b"}


async def test_what_could_not_be_written_is_written_with_the_next_start(tmp_path: Path) -> None:
    folder, calls = tmp_path / "state", BlockingCalls()
    folder.touch()
    path = folder / "approvals.json"
    file = ApprovalFile(path, calls)
    await file.add([of_pod("a")], gone=())
    folder.unlink()
    await file.add([of_pod("a")], gone=())
    assert await ApprovalFile(path, calls).pods() == {"a"}


def of_pod(uid: str) -> StartApproval:
    return StartApproval(uid, "c", "r", ("d",), "who", ("f",))
