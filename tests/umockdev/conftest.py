"""A test bed for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.umockdev.beds import TestBed


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[TestBed]:
    """A bed without cards; skips where there is no umockdev."""
    with TestBed(tmp_path) as started:
        yield started
