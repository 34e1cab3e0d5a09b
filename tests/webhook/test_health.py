"""Liveness: what is wrong in the process shows in its probes, on both ports, and in its log."""

import asyncio
import contextlib
import errno
import socket
import ssl

import pytest
from structlog.testing import capture_logs

from tests.support import eventually_async
from tests.webhook.running import Webhook
from webhook.connections import LEAST_SECONDS, Limits
from webhook.process import (
    PROBE_SECONDS,
    REMIND_SECONDS,
    START_SECONDS,
    connect_to_port,
    log_readiness,
)


def test_a_queue_of_other_clients_does_not_fail_the_probe(webhook: Webhook) -> None:
    """One that would fail has the kubelet restart a webhook that works."""
    limits, waiting = Limits(), PROBE_SECONDS / LEAST_SECONDS + 1
    clients = int(limits.handshakes * (waiting + 1))  # as many pushed out in each `LEAST_SECONDS`
    with contextlib.ExitStack() as stack:
        for _ in range(clients):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", webhook.port))
        answer = webhook.plain("/healthz")
    assert answer.status == 200, answer.text


def test_our_own_probe_needs_no_ipv6(webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    """Switched off by sysctl, as in pods of many clusters, `::` can be listened on all the same."""
    connect = asyncio.open_connection

    async def without_ipv6(
        host: str, port: int, *, ssl: ssl.SSLContext
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if ":" in host:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        return await connect(host, port, ssl=ssl)

    monkeypatch.setattr(asyncio, "open_connection", without_ipv6)
    asyncio.run(connect_to_port("::", webhook.port, tls=True))


def test_readiness_that_changes_is_told_once_and_now_and_then() -> None:
    now, missing = 0.0, "mappings not loaded"

    async def scenario() -> None:
        nonlocal now, missing
        looks = 0

        def reason() -> str:
            nonlocal looks
            looks += 1
            return missing

        telling = asyncio.create_task(log_readiness(reason, interval=0, clock=lambda: now))

        async def look() -> None:
            before = looks
            await eventually_async(lambda: looks > before + 1, interval=0)

        for step in (0, START_SECONDS - 1, 1, 1, REMIND_SECONDS):
            now += step
            await look()
        for found in ("", "", "mappings are old"):
            missing = found
            now += 10
            await look()
        now += REMIND_SECONDS
        await look()
        telling.cancel()

    with capture_logs() as logs:
        asyncio.run(scenario())
    told = [(line["event"], line.get("reason"), line.get("seconds")) for line in logs]
    assert told == [
        ("not ready", "mappings not loaded", 5),
        ("not ready", "mappings not loaded", 66),
        ("ready", None, None),
        ("not ready", "mappings are old", 0),
        ("not ready", "mappings are old", 60),
    ]
