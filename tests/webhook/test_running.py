"""The webhook as a real process, over verified TLS."""

import http.client
import ssl

import pytest

from certs.folder import issue
from tests.support import eventually
from tests.webhook.conftest import Starter
from tests.webhook.reviews import body, mapping_yaml, pod, response_of
from tests.webhook.running import Webhook

MAX_BODY = 3 * 1024 * 1024


def head(length: str, *more: str) -> bytes:
    lines = ["POST /mutate?timeout=10s HTTP/1.1", "Host: webhook", length, *more]
    return ("\r\n".join([*lines, "Content-Type: application/json"]) + "\r\n\r\n").encode()


def read_answer(file: http.client.HTTPResponse) -> tuple[int, bytes]:
    file.begin()
    return file.status, file.read()


def exchange(secured: ssl.SSLSocket, request: bytes) -> tuple[int, bytes]:
    secured.sendall(request)
    return read_answer(http.client.HTTPResponse(secured))


def test_a_body_too_large_is_a_413_however_much_of_it_comes(webhook: Webhook) -> None:
    too_much = b" " * (MAX_BODY + 200_000)
    with webhook.raw() as secured:
        announced = head(f"Content-Length: {len(too_much)}") + too_much
        assert exchange(secured, announced)[0] == 413
    assert webhook.ask("/mutate", body()).status == 200


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\r\n\r\n",
        b"POST /mutate HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /mutate HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /mutate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        head("Content-Length: 2", "Connection: Upgrade", "Upgrade: websocket") + b"{}",
    ],
)
def test_what_is_no_http_is_a_400(webhook: Webhook, request_: bytes) -> None:
    with webhook.raw() as secured:
        secured.sendall(request_)
        assert secured.recv(12) in {b"HTTP/1.1 400", b"HTTP/1.1 415"}
    assert webhook.ask("/mutate", body()).status == 200


def test_metrics_count_what_was_answered(webhook: Webhook) -> None:
    labels = '{endpoint="mutate",outcome="denied",reason="unknown-name"}'
    denied = f"accelbind_admission_requests_total{labels}"
    before, seconds = webhook.metric(denied), webhook.metric("accelbind_admission_seconds_count")
    assert not response_of(webhook.ask("/mutate", body(pod("fpga.intel.com/no"))).body)["allowed"]
    assert webhook.metric(denied) == before + 1
    assert webhook.metric("accelbind_admission_seconds_count") == seconds + 1
    assert webhook.metric('accelbind_mappings{kind="AcceleratorFunction"}') == 3
    assert webhook.metric("accelbind_mappings_age_seconds") < 5
    assert webhook.metric("accelbind_certificate_expiry_timestamp_seconds") > 1.7e9
    assert webhook.metric("accelbind_ready") == 1
    assert "accelbind_build_info{" in webhook.plain("/metrics").text


def test_mappings_are_followed_and_bad_ones_named(start: Starter) -> None:
    webhook = start()
    asking = body(pod("fpga.intel.com/fresh"))

    def admitted() -> bool:
        return bool(response_of(webhook.ask("/mutate", asking).body)["allowed"])

    assert not admitted()
    bad = mapping_yaml("bad").replace("mode: af", "mode: no")
    (webhook.mappings / "n.yaml").write_text(mapping_yaml("fresh") + "---\n" + bad)
    assert eventually(admitted)
    assert webhook.metric("accelbind_mappings_rejected") == 1
    (line,) = webhook.events("mapping skipped")
    assert str(line["reason"]).startswith("n.yaml, line 11 (document 2): AcceleratorFunction")
    message = response_of(webhook.ask("/mutate", body(pod("fpga.intel.com/bad"))).body)["status"]
    assert "spec.mode must be af or region" in message["message"]
    (webhook.mappings / "n.yaml").unlink()
    assert eventually(lambda: not admitted())


def test_a_renewed_certificate_is_shown_without_a_restart(start: Starter) -> None:
    webhook = start()
    open_one = webhook.connect()
    open_one.request("GET", "/healthz")
    assert open_one.getresponse().read() == b"ok\n"
    ends = webhook.metric("accelbind_certificate_expiry_timestamp_seconds")
    old = (webhook.tls / "tls.crt").read_text()
    issue(webhook.tls, ["localhost"], days=30)
    fresh = (webhook.tls / "tls.crt").read_text()
    assert fresh != old

    def shown() -> bool:
        shown = ssl.get_server_certificate(("localhost", webhook.port))
        return ssl.PEM_cert_to_DER_cert(shown) == ssl.PEM_cert_to_DER_cert(fresh)

    assert eventually(shown)
    assert webhook.metric("accelbind_certificate_expiry_timestamp_seconds") < ends
    open_one.request("GET", "/healthz")
    assert open_one.getresponse().read() == b"ok\n"
    open_one.close()
    (webhook.tls / "tls.key").write_text("nonsense")
    assert eventually(lambda: webhook.metric("accelbind_certificate_reload_failing") == 1)
    assert webhook.ask("/mutate", body()).status == 200


def test_it_listens_on_both_families_or_on_one(start: Starter) -> None:
    webhook = start("--host", "127.0.0.1", "--domain", "a.example", "--domain", "fpga.intel.com")
    assert webhook.get("/healthz").status == 200
    assert webhook.plain("/healthz").status == 200
    message = response_of(webhook.ask("/mutate", body(pod("a.example/x"))).body)["status"]
    assert "a.example/x" in message["message"]
