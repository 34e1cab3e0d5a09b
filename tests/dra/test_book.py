"""The claims on a node: whoever can't read one doesn't give its devices to another."""

from pathlib import Path

import msgspec
import pytest

from dra.book import ClaimBook, ClaimHolders
from dra.claims import ClaimRef
from dra.wants import Kind, Want
from services.containers.holders import Holders
from services.devices.dra import DraDevice
from services.devices.model import Device
from services.process.errors import HardwareError, NotAllowed

WANT = Want("r", Kind.PLAIN, ("d",), ("1",), "example.com/d")


def of(uid: str) -> ClaimRef:
    """A claim."""
    return ClaimRef("ns", "c", uid)


@pytest.fixture
def book(tmp_path: Path) -> ClaimBook:
    """A book whose folder isn't there yet."""
    return ClaimBook(tmp_path / "claims")


def test_others_have_what_they_reserved(book: ClaimBook) -> None:
    assert book.others("a", (WANT,), {}) == {}
    book.reserve(of("a"), (WANT,))
    assert book.others("a", (WANT,), {}) == {}
    assert book.others("b", (WANT,), {}) == {"d": of("a")}
    unfinished = book.path("a").with_name(".a.json.new")
    unfinished.touch()
    book.remove("a")
    assert not unfinished.exists()
    assert book.others("b", (WANT,), {}) == {}


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
        each: DraDevice(each, Device(each, "r", healthy=True, claims=frozenset(claims)), {})
        for each, claims in now.items()
    }
    had = msgspec.structs.replace(WANT, devices=("nec-1",), claims=(("1", "240:0"),))
    book.commit(of("a"), (had,), {})
    wanted = msgspec.structs.replace(WANT, devices=tuple(now))
    assert book.others("b", (wanted,), devices) == dict.fromkeys(others, of("a"))
    assert book.renamed(devices).keys() == others - {"nec-1"}


def test_an_entry_of_an_older_version_can_be_read(book: ClaimBook) -> None:
    book.commit(of("a"), (WANT,), {})
    text = book.path("a").read_text()
    assert '"claims":[]' in text
    book.path("a").write_text(text.replace(',"claims":[]', ""))
    assert book.others("b", (WANT,), {}) == {"d": of("a")}


def test_a_claim_is_what_was_written_last_in_this_boot(tmp_path: Path) -> None:
    boot = tmp_path / "boot"
    boot.write_text("1\n")
    book = ClaimBook(tmp_path / "claims", boot)
    assert book.find("a") is None
    book.reserve(of("a"), (WANT,))
    book.commit(of("a"), (WANT,), {"d": "f"})
    entry = book.find("a")
    assert entry is not None
    assert (entry.is_committed, entry.carried) == (True, {"d": "f"})
    boot.write_text("2\n")
    assert book.find("a") is None
    assert book.entries() == ()


def test_who_watches_a_device_has_it_not(book: ClaimBook) -> None:
    book.reserve(of("a"), (msgspec.structs.replace(WANT, kind=Kind.ADMIN),))
    assert (book.others("b", (WANT,), {}), book.holders(), book.functions()) == ({}, {}, {})
    book.reserve(of("b"), (WANT,))
    assert [each.claim for (each,) in book.holders().values()] == ["c"]


@pytest.mark.parametrize("uid", ["", "../a", "a/b", "a" * 65, ".a"])
def test_what_is_no_uid_has_no_file(book: ClaimBook, uid: str) -> None:
    with pytest.raises(NotAllowed, match="is not the UID of a claim"):
        book.remove(uid)


def test_scans_know_a_device_by_its_own_resource(book: ClaimBook) -> None:
    alias = "deviceclass.resource.kubernetes.io/d"
    book.reserve(of("a"), (msgspec.structs.replace(WANT, resource=alias, own="example.com/d"),))
    assert [*book.holders()] == [("example.com/d", "1")]


def test_devices_show_what_a_claim_has_put_there_once_it_is_committed(book: ClaimBook) -> None:
    programmed = msgspec.structs.replace(WANT, kind=Kind.PROGRAM)
    book.reserve(of("a"), (programmed,))
    assert book.functions() == {}
    book.commit(of("a"), (programmed,), {"d": "f"})
    assert book.functions() == {"d": "f"}


@pytest.mark.parametrize("content", ["", "{", '{"claim": 1}'])
def test_nothing_is_free_while_a_claim_cannot_be_read(book: ClaimBook, content: str) -> None:
    book.reserve(of("a"), (WANT,))
    book.reserve(of("b"), ())
    book.path("a").write_text(content)
    unreadable = r"a\.json can't be read: .*once no container uses that claim: .* release a"
    for ask in (book.functions, book.require_readable, lambda: book.others("c", (WANT,), {})):
        with pytest.raises(HardwareError, match=unreadable):
            ask()
    assert [*book.holders()] == []
    assert [each.claim.uid for each in book.entries()] == ["b"]
    book.remove("a")
    assert book.others("c", (WANT,), {}) == {}


@pytest.mark.anyio
async def test_who_has_devices_is_unknown_then(book: ClaimBook) -> None:
    holders = ClaimHolders(book, NoHolders())
    book.reserve(of("a"), (WANT,))
    assert await holders.read() == await holders.current() == book.holders()
    book.path("a").write_text("{")
    with pytest.raises(HardwareError, match="which devices claims have"):
        await holders.read()
    assert await holders.current() == {}


class NoHolders:
    """A node without containers of the plugin."""

    async def read(self) -> Holders:
        return {}

    async def current(self) -> Holders:
        return {}


def test_nothing_is_free_while_the_folder_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "claims").touch()
    book = ClaimBook(tmp_path / "claims")
    with pytest.raises(HardwareError, match="claims can't be read: Not a directory"):
        book.others("c", (WANT,), {})
    assert book.entries() == ()
