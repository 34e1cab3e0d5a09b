"""A bed for each module of scenarios, with the cards that it names in `CARDS`."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from simulator.registers.cards import DflCard, DflCardValue
from tests.kernel.bed import Bed
from tests.kernel.build import kernel


@contextmanager
def booted(*cards: DflCardValue) -> Iterator[Bed]:
    """A kernel with these cards."""
    folder = Path(tempfile.mkdtemp(prefix="bed-"))  # short, for sockets
    try:
        with Bed(kernel(), folder, [DflCard(each) for each in cards]) as started:
            yield started
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    """A kernel with the module's cards."""
    with booted(*request.module.CARDS) as started:
        yield started


@pytest.fixture
def card(bed: Bed) -> Iterator[DflCard]:
    """The first card of the bed; afterwards all are as after power-up, and rebound."""
    yield bed.cards[0]
    bed.restore()
