"""What was approved, in its file."""

import asyncio
from pathlib import Path

import pytest

from plugin.approval_file import ApprovalFile
from plugin.worker import Worker
from services.domain.approvals import Approval
from services.domain.startup import Candidate

pytestmark = pytest.mark.anyio


def approval(name: str) -> Approval:
    return Approval("uid", name, "r", ("d",), f"container {name}", ("f",))


async def test_several_that_ask_first_at_once_all_see_what_a_predecessor_approved(
    tmp_path: Path,
) -> None:
    path, worker = tmp_path / "approvals.json", Worker("files")
    await ApprovalFile(path, worker).add([approval("a"), approval("b")], living={"uid"})
    again = ApprovalFile(path, worker)
    candidates = [Candidate("uid", name) for name in ("a", "b")]
    found = await asyncio.gather(*(again.find(each, "r", {"d"}) for each in candidates))
    assert found == [approval("a"), approval("b")]
    third = ApprovalFile(path, worker)
    adding = (third.add([approval(name)], living={"uid"}) for name in ("c", "d"))
    await asyncio.gather(*adding)
    last = ApprovalFile(path, worker)
    every = [await last.find(Candidate("uid", name), "r", {"d"}) for name in "abcd"]
    assert every == [approval(name) for name in "abcd"]
    worker.close()
