"""Liveness: what is wrong in the process shows in its probes, on both ports, and in its log."""

import asyncio
import contextlib
import errno
import socket
import ssl

import pytest
from structlog.testing import capture_logs

from tests.webhook.running import Webhook
from webhook.connections import LEAST_SECONDS, Limits
from webhook.process import PROBE_SECONDS, connect_to_port, log_readiness


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


def test_readiness_is_logged_when_it_changes() -> None:
    reasons = ["mappings not loaded"] * 2 + [""] * 2 + ["mappings are old"]

    async def scenario() -> None:
        with pytest.raises(IndexError):
            await log_readiness(lambda: reasons.pop(0), interval=0)

    with capture_logs() as logs:
        asyncio.run(scenario())
    assert [(line["event"], line.get("reason")) for line in logs] == [
        ("not ready", "mappings not loaded"),
        ("ready", None),
        ("not ready", "mappings are old"),
    ]
