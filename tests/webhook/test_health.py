"""Liveness: what is wrong in the process shows in its probes, on both ports, and in its log."""

import asyncio
import contextlib
import errno
import http.client
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from certs.folder import issue
from tests.support import Process, eventually, eventually_async, python_module
from tests.webhook.reviews import body, mapping_yaml, patch_of, response_of
from tests.webhook.running import Webhook
from webhook.ledger import Limits
from webhook.limits import LEAST_SECONDS
from webhook.process import (
    PROBE_SECONDS,
    REMIND_SECONDS,
    START_SECONDS,
    connect_to_port,
    log_readiness,
)

PATIENCE = 5
"""Seconds that whoever probes has: a webhook that is blocked must have failed by then."""
BLOCKED = 12


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[Webhook]:
    """A webhook with the faults of `tests.webhook.hanging`."""
    issue(tmp_path / "tls", ["localhost"])
    (tmp_path / "mappings").mkdir()
    (tmp_path / "mappings" / "m.yaml").write_text(mapping_yaml())
    command = python_module(
        "tests.webhook.hanging",
        "webhook",
        *("--tls-cert", tmp_path / "tls" / "tls.crt", "--tls-key", tmp_path / "tls" / "tls.key"),
        *("--mappings", tmp_path / "mappings", "--ports-file", tmp_path / "ports.json"),
        *("--port", "0", "--metrics-port", "0", "--drain-seconds", "0"),
    )
    env = {"HANGING_SECONDS": str(BLOCKED)}
    with Process(command, folder=tmp_path, name="webhook", env=env) as process:
        ports = process.ports(tmp_path / "ports.json")
        yield Webhook(process, tmp_path, ports["admission"], ports["metrics"])


def probe(connection: http.client.HTTPConnection) -> int:
    """The status of a probe; 0 if no answer comes in time."""
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def over_tls(webhook: Webhook) -> int:
    return probe(webhook.connect(timeout=PATIENCE))


def plain(webhook: Webhook) -> int:
    return probe(http.client.HTTPConnection("localhost", webhook.metrics_port, timeout=PATIENCE))


@pytest.mark.soak
@pytest.mark.parametrize("ask", [over_tls, plain])
def test_a_blocked_event_loop_fails_the_probe(
    faulty: Webhook, ask: Callable[[Webhook], int]
) -> None:
    assert ask(faulty) == 200
    faulty.process.popen.send_signal(signal.SIGUSR1)
    assert eventually(lambda: ask(faulty) == 0, timeout=BLOCKED)
    assert eventually(lambda: ask(faulty) == 200, timeout=2 * BLOCKED)


def test_a_mutation_that_raises_fails_the_probes_of_both_ports(faulty: Webhook) -> None:
    assert [over_tls(faulty), plain(faulty)] == [200, 200]
    faulty.process.popen.send_signal(signal.SIGUSR2)
    assert eventually(lambda: over_tls(faulty) == 503, timeout=60)
    assert plain(faulty) == 503
    assert "a review of our own was not answered" in faulty.plain("/healthz").text
    answer = response_of(faulty.ask("/mutate", body()).body)
    assert (answer["allowed"], answer["status"]["code"]) == (False, 500)
    assert answer["auditAnnotations"] == {"reason": "internal-error"}


def test_a_port_for_reviews_that_is_dead_fails_the_probe_beside_it(faulty: Webhook) -> None:
    assert patch_of(faulty.ask("/mutate", body()).body)
    faulty.process.popen.send_signal(signal.SIGHUP)
    assert eventually(lambda: plain(faulty) == 503, timeout=60)
    assert faulty.plain("/healthz").text.startswith("our own port does not answer: ")
    assert over_tls(faulty) == 0


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
