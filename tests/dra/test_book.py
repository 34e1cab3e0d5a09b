"""The claims on a node: whoever can't read one doesn't give its devices to another."""

from pathlib import Path

import pytest

from dra.book import ClaimBook
from dra.claims import ClaimRef
from dra.wants import Kind, Want
from services.process.errors import HardwareError

WANT = Want("r", Kind.PLAIN, ("d",), ("1",), "example.com/d")


def of(uid: str) -> ClaimRef:
    """A claim."""
    return ClaimRef("ns", "c", uid)


@pytest.fixture
def book(tmp_path: Path) -> ClaimBook:
    """A book whose folder isn't there yet."""
    return ClaimBook(tmp_path / "claims")


def test_others_have_what_they_reserved(book: ClaimBook) -> None:
    assert book.others("a", (WANT,)) == {}
    book.reserve(of("a"), (WANT,))
    assert book.others("a", (WANT,)) == {}
    assert book.others("b", (WANT,)) == {"d": of("a")}
    book.remove("a")
    assert book.others("b", (WANT,)) == {}


@pytest.mark.parametrize("content", ["", "{", '{"claim": 1}'])
def test_nothing_is_free_while_a_claim_cannot_be_read(book: ClaimBook, content: str) -> None:
    book.reserve(of("a"), (WANT,))
    book.reserve(of("b"), ())
    book.path("a").write_text(content)
    with pytest.raises(HardwareError, match=r"a\.json can't be read: .*if no container uses"):
        book.others("c", (WANT,))
    assert [each.claim.uid for each in book.entries()] == ["b"]
    book.remove("a")
    assert book.others("c", (WANT,)) == {}


def test_nothing_is_free_while_the_folder_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "claims").touch()
    book = ClaimBook(tmp_path / "claims")
    with pytest.raises(HardwareError, match="claims can't be read: Not a directory"):
        book.others("c", (WANT,))
    assert book.entries() == ()
