"""Who gets through the handshake where --client-ca is set."""

import contextlib
import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client_certificates import ClientAuthority, showing
from tests.webhook.conftest import Starter
from tests.webhook.reviews import body, patch_of
from tests.webhook.running import HEADERS, Answer, Webhook

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
    assert webhook.plain("/healthz").text == "ok\n"  # our own probe has nothing to show
    assert webhook.plain("/readyz").text == "ok\n"
