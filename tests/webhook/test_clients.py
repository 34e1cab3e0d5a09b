"""Who gets through the handshake where --client-ca is set."""

import contextlib
import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.client_certificates import ClientAuthority, showing
from tests.support import eventually
from tests.webhook.asgi import Bench
from tests.webhook.conftest import Starter
from tests.webhook.reviews import body, patch_of
from tests.webhook.running import HEADERS, Answer, Webhook
from webhook.connections import Connections
from webhook.server import QUIET_SECONDS, AdmissionServer

pytestmark = pytest.mark.anyio

NAME = "kube-apiserver"


@pytest.fixture
def authority(tmp_path: Path) -> ClientAuthority:
    return ClientAuthority(tmp_path)


@contextlib.contextmanager
def connected(webhook: Webhook, *shown: Path) -> Iterator[http.client.HTTPSConnection]:
    context = showing(webhook.context(), shown or None)
    connection = http.client.HTTPSConnection("localhost", webhook.port, timeout=60, context=context)
    with contextlib.closing(connection):
        yield connection


def ask(connection: http.client.HTTPSConnection, path: str = "/mutate") -> Answer:
    connection.request("POST", path, body(), HEADERS)
    found = connection.getresponse()
    return Answer(found.status, found.read(), dict(found.getheaders()))


def test_only_clients_with_a_certificate_get_through_the_handshake(
    start: Starter, authority: ClientAuthority
) -> None:
    webhook = start("--client-ca", authority.path)
    with connected(webhook, *authority.issue(NAME)) as connection:
        assert patch_of(ask(connection).body)
        assert patch_of(ask(connection, "/pods").body)
    with pytest.raises((ssl.SSLError, ConnectionError)), connected(webhook) as connection:
        ask(connection)
    refused = 'accelbind_clients_refused_total{reason="no-certificate"}'
    assert eventually(lambda: webhook.metric(refused) == 1)
    (line,) = webhook.events("client refused: its certificate must be of a CA in --client-ca")
    assert line["reason"] == "no-certificate"
    assert webhook.plain("/healthz").text == "ok\n"  # our own probe has nothing to show
    assert webhook.plain("/readyz").text == "ok\n"
    assert webhook.metric(refused) == 1


async def test_refusals_are_logged_when_they_begin_with_their_numbers() -> None:
    now = 0.0
    connections = Connections(clock=lambda: now)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server = AdmissionServer(Bench().app, context, connections)
    check_times = server.config.callback_notify
    assert check_times is not None
    bad = ssl.SSLCertVerificationError(1, "certificate has expired")
    bad.verify_message = "certificate has expired"
    missing = ssl.SSLError(1, "peer did not return a certificate")
    missing.reason = "PEER_DID_NOT_RETURN_A_CERTIFICATE"
    with capture_logs() as logs:
        for _ in range(10):
            server.count_refused(bad)
            server.count_refused(missing)
            server.count_refused(ssl.SSLError(1, "no TLS at all"))
        now = QUIET_SECONDS + 1
        await check_times()
        server.count_refused(missing)
    told = [line for line in logs if line["log_level"] != "debug"]
    assert [(line.get("reason"), line.get("refused")) for line in told] == [
        ("bad-certificate", {"bad-certificate": 1, "no-certificate": 0}),
        ("no-certificate", {"bad-certificate": 1, "no-certificate": 1}),
        (None, None),
        ("no-certificate", {"bad-certificate": 10, "no-certificate": 11}),
    ]
