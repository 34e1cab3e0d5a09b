"""Who may ask for reviews, where --client-ca says who."""

import asyncio
import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.client_certificates import ClientAuthority, showing
from tests.support import eventually
from tests.webhook.conftest import Starter
from tests.webhook.reviews import body, patch_of
from tests.webhook.running import HEADERS, Answer, Webhook
from webhook.clients import REPEAT_SECONDS, Clients

NAME = "kube-apiserver"
PATHS = ("/mutate", "/pods", "/validate", "/elsewhere", "/openapi.json")


@pytest.fixture
def authority(tmp_path: Path) -> ClientAuthority:
    return ClientAuthority(tmp_path)


@contextlib.contextmanager
def connected(
    webhook: Webhook, *shown: Path, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> Iterator[http.client.HTTPSConnection]:
    context = showing(webhook.context(), shown or None)
    context.maximum_version = newest
    connection = http.client.HTTPSConnection("localhost", webhook.port, timeout=60, context=context)
    with contextlib.closing(connection):
        yield connection


def ask(
    connection: http.client.HTTPSConnection, path: str = "/mutate", method: str = "POST"
) -> Answer:
    connection.request(method, path, body() if method == "POST" else None, HEADERS)
    found = connection.getresponse()
    return Answer(found.status, found.read(), dict(found.getheaders()))


def refused(webhook: Webhook, reason: str) -> float:
    return webhook.metric(f'accelbind_clients_refused_total{{reason="{reason}"}}')


def test_only_the_api_server_gets_reviews_and_everybody_gets_probes(
    start: Starter, authority: ClientAuthority
) -> None:
    flags = ("--client-ca", authority.path, "--client-name", "other", "--client-name", NAME)
    webhook = start(*flags)
    with connected(webhook, *authority.issue(NAME)) as connection:
        assert patch_of(ask(connection).body)
        assert patch_of(ask(connection).body)
    with connected(webhook, *authority.issue("", "x.example", NAME)) as connection:
        assert patch_of(ask(connection, "/pods").body)
    with connected(webhook) as connection:
        for path in PATHS:
            answer = ask(connection, path)
            assert answer.status == 401
            assert "no client certificate was shown" in answer.message
            assert "--admission-control-config-file" in answer.message
        for path in ("/healthz", "/readyz"):
            assert ask(connection, path, "GET").status == 200
    with connected(webhook, *authority.issue("somebody", "b.example")) as connection:
        answer = ask(connection)
        assert (answer.status, json.loads(answer.body)["reason"]) == (403, "Forbidden")
        assert "answers other or kube-apiserver only" in answer.message
        assert "is of somebody and b.example:" in answer.message
        assert ask(connection, "/healthz", "GET").status == 200
    assert webhook.plain("/healthz").text == "ok\n"  # our own probe has nothing to show
    assert refused(webhook, "no-certificate") == len(PATHS)
    assert refused(webhook, "other-name") == 1
    reasons = [line["reason"] for line in webhook.events("client refused")]
    assert reasons == ["no-certificate", "other-name"]


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_certificate_of_another_ca_is_refused_and_the_file_followed(
    start: Starter, authority: ClientAuthority, tmp_path: Path, newest: ssl.TLSVersion
) -> None:
    webhook = start("--client-ca", authority.path)
    other = ClientAuthority(tmp_path, "other-ca")
    good, bad = authority.issue("anything"), other.issue(NAME)

    def works(shown: tuple[Path, Path]) -> bool:
        with contextlib.suppress(OSError), connected(webhook, *shown, newest=newest) as connection:
            return bool(patch_of(ask(connection).body))
        return False

    assert works(good)
    assert not works(bad)
    assert refused(webhook, "bad-certificate") == 1
    (line,) = webhook.events("client refused")
    assert "unable to get local issuer certificate" in str(line["problem"])
    authority.path.write_bytes(other.pem)
    assert eventually(lambda: works(bad))
    assert not works(good)
    failures = "accelbind_certificate_reload_failures_total"
    before = webhook.metric(failures)
    authority.path.write_bytes(b"nothing")
    assert eventually(lambda: webhook.metric(failures) > before)
    assert works(bad)


class Shown(asyncio.Transport):
    """A connection whose client has shown a certificate, now or when its session began."""

    def __init__(self, *, resumed: bool) -> None:
        super().__init__({"ssl_object": self})
        self.session_reused = resumed

    def getpeercert(self) -> dict[str, object]:
        return {"subject": ((("commonName", NAME),),)}


def test_a_session_that_is_taken_up_again_proves_nothing() -> None:
    clients = Clients((NAME,))
    assert clients.refusal(Shown(resumed=False)) is None
    refusal = clients.refusal(Shown(resumed=True))
    assert refusal is not None
    assert refusal.status == 401


def test_refusals_are_logged_now_and_then_with_their_number() -> None:
    now = 0.0
    clients = Clients((), clock=lambda: now)
    with capture_logs() as logs:
        for _ in range(10):
            clients.handshake_failed("certificate has expired")
            clients.count("no-certificate", "none")
        now += REPEAT_SECONDS
        clients.handshake_failed("certificate has expired")
    assert [(line["reason"], line["times"]) for line in logs] == [
        ("bad-certificate", 1),
        ("no-certificate", 1),
        ("bad-certificate", 10),
    ]
