"""What tests marked `anyio` run on."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """The event loop under tests marked `anyio`."""
    return "asyncio"
