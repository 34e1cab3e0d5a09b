"""The webhook's mappings from an API server that comes, goes and returns."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from services.kube.client import ClusterClient
from services.mappings.source import ApiServerSource
from services.process.errors import InvalidSettings
from simulator.apiserver.standin import ApiServerStandIn
from tests.services.building import function
from tests.services.kube.following import QUICK
from tests.support import eventually_async
from tests.webhook.asgi import JSON
from tests.webhook.reviews import body, pod, response_of
from tests.webhook.running import settings
from webhook.app import ENDPOINTS
from webhook.process import Webhook
from webhook.sources import MappingSource, choose_source, staleness


@contextlib.asynccontextmanager
async def running(api: ApiServerStandIn, folder: Path) -> AsyncIterator[Webhook]:
    webhook = Webhook(settings(folder, api_server=api.address))
    stop = asyncio.Event()
    task = asyncio.create_task(webhook.run_until(stop))
    try:
        yield webhook
    finally:
        stop.set()
        await task


async def ask(webhook: Webhook, name: str) -> tuple[int, bytes]:
    async def stream() -> AsyncIterator[bytes]:
        yield body(pod(f"fpga.intel.com/{name}"))

    return await webhook.handler.respond(ENDPOINTS["/mutate"], JSON, stream())


async def admits(webhook: Webhook, name: str) -> bool:
    status, answer = await ask(webhook, name)
    return status == 200 and bool(response_of(answer)["allowed"])


async def is_ready(webhook: Webhook, text: str = "ok") -> bool:
    """Whether `/readyz` says so, or something else."""
    return (await webhook.readyz())[1].startswith(text)


async def test_mappings_follow_an_api_server_that_is_away_comes_goes_and_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ApiServerStandIn(tmp_path) as api, contextlib.AsyncExitStack() as stack:
        source = ApiServerSource(ClusterClient(api.access), timing=QUICK)  # hardly any pauses
        monkeypatch.setattr("webhook.process.choose_source", lambda _settings: source)
        api.put(function("early", "af"))
        async with api.away():
            webhook = await stack.enter_async_context(running(api, tmp_path))
            reason = "mappings not loaded (the API server https://"
            await eventually_async(lambda: is_ready(webhook, reason))
            assert (await ask(webhook, "early"))[0] == 503, "its mapping may exist"
            assert (await webhook.healthz())[0] == 200

        # It comes: mappings count as soon as they are created or deleted.
        await eventually_async(lambda: is_ready(webhook))
        assert await admits(webhook, "early")
        api.put(function("kept", "af"))
        await eventually_async(lambda: admits(webhook, "kept"))
        api.drop("AcceleratorFunction", "early")
        await eventually_async(lambda: refuses(webhook, "early"))

        # It goes: the last mappings serve on.
        async with api.away():
            await eventually_async(lambda: "can't be reached" in webhook.mappings.error)
            assert await admits(webhook, "kept")
            api.change_token()
            api.put(function("fresh", "af"))

        # It returns, with another token.
        await eventually_async(lambda: admits(webhook, "fresh"))
        assert await is_ready(webhook)


@pytest.mark.parametrize(
    ("longest", "text"), [(None, ""), (7.0, ""), (5.0, "mappings are over 5 s old (away)")]
)
def test_mappings_may_be_too_old(longest: float | None, text: str) -> None:
    source = SimpleNamespace(loaded=True, age=6.0, error="away")
    assert staleness(cast("MappingSource", source), longest) == text


async def refuses(webhook: Webhook, name: str) -> bool:
    return not await admits(webhook, name)


def test_nothing_to_take_mappings_from_is_said_with_what_there_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(InvalidSettings, match="--mappings or --api-server is required"):
        choose_source(settings(tmp_path))


@pytest.mark.parametrize(("allowed", "seconds"), [(None, range(22, 31)), (8, range(3, 5))])
async def test_watches_are_short_so_that_silence_is_soon_noticed(
    tmp_path: Path, allowed: float | None, seconds: range
) -> None:
    async with ApiServerStandIn(tmp_path) as server:
        source = choose_source(settings(tmp_path, api_server=server.address, max_staleness=allowed))
        following = asyncio.create_task(source.follow())
        await eventually_async(lambda: len(server.watches) == 3)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    requests = [seen.request for seen in server.seen if seen.request.is_watch]
    asked = [int(each.query["timeoutSeconds"]) for each in requests]
    assert len(asked) == 3
    assert all(each in seconds for each in asked), asked
