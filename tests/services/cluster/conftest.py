"""Coroutine tests of this room run on asyncio."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """The event loop under tests marked `anyio`."""
    return "asyncio"
