"""A claim of a node's book, for commands that show or respect holders."""

from pathlib import Path

from plugin.dra.book import FOLDER, ClaimBook
from plugin.dra.claims import ClaimRef
from plugin.dra.wants import Kind, Want

UID = "0a1b"


def with_claim(state_dir: Path) -> ClaimBook:
    """The book in which claim team-a/mine has the region of the first DFL card."""
    book = ClaimBook(state_dir / FOLDER)
    region, names = "fpga.intel.com/region-x", (("fpga-0000-01-00-0",), ("dfl-fme.0",))
    want = Want("fpga", Kind.PROGRAM, *names, ((),), region, region)
    book.reserve(ClaimRef("team-a", "mine", UID), (want,))
    return book
