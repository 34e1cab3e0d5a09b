"""A webhook for each test, over real TLS sockets."""

from collections.abc import AsyncIterator

import pytest

from tests.simulator.apiserver.support import FakeWebhook


@pytest.fixture
async def webhook() -> AsyncIterator[FakeWebhook]:
    async with FakeWebhook() as running:
        yield running
