"""`accelbind dra release`."""

from pathlib import Path

import pytest

from dra.book import FOLDER, ClaimBook
from dra.claims import ClaimRef
from dra.wants import Kind, Want
from services.devices.cdi import claim_file
from tests.accelbind.running import Done, run

VE = "example.com/ve"
WANT = Want("r", Kind.PLAIN, ("ve-0",), ("0",), ((),), VE, VE)


@pytest.fixture
def book(tmp_path: Path) -> ClaimBook:
    """A claim on a node, and the folder of its CDI file."""
    book = ClaimBook(tmp_path / "state" / FOLDER)
    book.reserve(ClaimRef("ns", "c", "0a1b"), (WANT,))
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi" / claim_file("0a1b")).touch()
    return book


def release(tmp_path: Path, uid: str) -> Done:
    folders = ("--state-dir", tmp_path / "state", "--cdi-dir", tmp_path / "cdi")
    return run("dra", "release", uid, *folders)


def left(tmp_path: Path) -> list[Path]:
    return [each for each in tmp_path.rglob("*") if each.is_file()]


@pytest.mark.parametrize("content", ["", "{"])
def test_a_claim_is_released_also_if_it_cannot_be_read(
    tmp_path: Path, book: ClaimBook, content: str
) -> None:
    if content:
        book.path("0a1b").write_text(content)
    done = release(tmp_path, "other")
    assert (done.returncode, "its claims: " in done.stderr) == (2, True)
    assert release(tmp_path, "0a1b").stdout == "claim with UID 0a1b is released\n"
    assert left(tmp_path) == []
