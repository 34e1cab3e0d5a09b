"""A stand-in for each test, and clients that reach it over real TLS sockets."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from simulator.apiserver.standin import ApiServerStandIn, Options
from tests.simulator.apiserver.support import FakeWebhook, client_of


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiServerStandIn]:
    async with ApiServerStandIn(tmp_path, Options(bookmark_interval=0.05)) as running:
        yield running


@pytest.fixture
async def http(api: ApiServerStandIn) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_of(api) as client:
        yield client


@pytest.fixture
async def webhook() -> AsyncIterator[FakeWebhook]:
    async with FakeWebhook() as running:
        yield running


@pytest.fixture
def trusting(api: ApiServerStandIn) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=api.authority.decode())
