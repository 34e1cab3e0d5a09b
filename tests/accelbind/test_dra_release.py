"""`accelbind dra release`."""

from pathlib import Path

import pytest

from plugin.dra.book import ClaimBook
from services.devices.cdi import claim_file
from tests.accelbind.claims import UID, with_claim
from tests.accelbind.running import Done, run


@pytest.fixture
def book(tmp_path: Path) -> ClaimBook:
    """A claim on a node, and the folder of its CDI file."""
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi" / claim_file(UID)).touch()
    return with_claim(tmp_path / "state")


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
        book.path(UID).write_text(content)
    done = release(tmp_path, "other")
    assert (done.returncode, "its claims: " in done.stderr) == (2, True)
    assert release(tmp_path, UID).stdout == f"claim with UID {UID} is released\n"
    assert left(tmp_path) == []
