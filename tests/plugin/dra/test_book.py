"""The claims on a node: whoever can't read one doesn't give its devices to another."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from plugin.dra.book import ClaimBook, ClaimHolders
from plugin.dra.claims import ClaimRef
from plugin.dra.wants import Kind, Want
from services.devices.dra import DraDevice
from services.devices.model import Device
from services.process.errors import HardwareError, NotAllowed
from tests.plugin.dra.support import NoPods

D = "example.com/d"
WANT = Want("r", Kind.PLAIN, ("d",), ("1",), ((),), D, D)


def of(uid: str) -> ClaimRef:
    """A claim."""
    return ClaimRef("ns", "c", uid)


@pytest.fixture
def book(tmp_path: Path) -> ClaimBook:
    """A book whose folder isn't there yet."""
    return ClaimBook(tmp_path / "claims")


@pytest.mark.parametrize(
    ("now", "others"),
    [
        ({"nec-1-r0": {"1", "240:0"}, "nec-1-r1": {"1", "240:0"}}, {"nec-1-r0", "nec-1-r1"}),
        ({"vector-1": {"1", "240:0"}, "nec-2": {"2", "240:1"}}, {"vector-1"}),
        ({"nec-1": {"1", "240:0"}, "nec-2": {"2", "240:1"}}, {"nec-1"}),
        ({"nec-1": {"1", "240:1"}, "nec-2": {"2", "240:0"}}, {"nec-1"}),  # renumbered
        ({"nec-2": {"2", "240:0"}}, {"nec-2"}),  # its number was that of a device that is gone
    ],
)
def test_a_device_with_another_name_is_still_the_claims(
    book: ClaimBook, now: dict[str, set[str]], others: set[str]
) -> None:
    devices = {
        each: DraDevice(each, Device(each, "r", claims=frozenset(claims)), {})
        for each, claims in now.items()
    }
    had = msgspec.structs.replace(WANT, devices=("nec-1",), claims=(("1", "240:0"),))
    book.commit(book.reserve(of("a"), (had,)))
    assert book.others("b", dict.fromkeys(now, 0), devices) == dict.fromkeys(others, of("a"))
    assert book.renamed(devices).keys() == others - {"nec-1"}


@pytest.mark.parametrize("uid", ["", "../a", "a/b", "a" * 65, ".a"])
def test_other_texts_than_uids_have_no_file(book: ClaimBook, uid: str) -> None:
    with pytest.raises(NotAllowed, match="is not the UID of a claim"):
        book.remove(uid)


def test_scans_know_who_has_a_device_by_its_own_resource(book: ClaimBook) -> None:
    book.reserve(of("watches"), (msgspec.structs.replace(WANT, kind=Kind.ADMIN),))
    assert (book.others("b", {"d": 0}, {}), book.holders({})) == ({}, {})
    alias = "deviceclass.resource.kubernetes.io/d"
    of_another = msgspec.structs.replace(WANT, devices=("e",), own="example.com/e")
    entry = book.reserve(of("a"), (msgspec.structs.replace(WANT, resource=alias), of_another))
    assert [*book.holders({})] == [(D, "1"), ("example.com/e", "1")]
    assert entry.given().devices == ("d", "e")  # together: a container may have both


def test_nothing_is_free_while_a_claim_cannot_be_read(book: ClaimBook) -> None:
    book.reserve(of("a"), (WANT,))
    book.reserve(of("b"), ())
    book.path("a").write_text("{")
    unreadable = r"a\.json can't be read: .*once no container uses that claim: .* release a"
    for ask in (book.committed, lambda: book.others("c", {"d": 0}, {})):
        with pytest.raises(HardwareError, match=unreadable):
            ask()
    assert [*book.holders({})] == []
    assert [each.claim.uid for each in book.entries()] == ["b"]
    with pytest.raises(HardwareError, match=unreadable):
        asyncio.run(ClaimHolders(book, NoPods()).read())
    book.remove("a")
    assert book.others("c", {"d": 0}, {}) == {}


def test_nothing_is_free_while_the_folder_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "claims").touch()
    book = ClaimBook(tmp_path / "claims")
    with pytest.raises(HardwareError, match="claims can't be read: Not a directory"):
        book.others("c", {"d": 0}, {})
    assert book.entries() == ()
