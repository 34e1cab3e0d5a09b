"""The webhook as a real process, over verified TLS; tests/faults restarts it under load."""

import contextlib
import ssl
from pathlib import Path

import pytest

from tests.client_certificates import ClientAuthority
from tests.webhook.conftest import Starter
from tests.webhook.reviews import body, patch_of, pod, response_of


def test_metrics_count_what_was_answered_and_a_peer_without_goodbye_holds_up_no_end(
    start: Starter,
) -> None:
    webhook = start()
    labels = '{outcome="denied",reason="unknown-name",review="mutate"}'
    denied = f"accelbind_admission_requests_total{labels}"
    assert webhook.metric(denied) == 0
    assert not response_of(webhook.ask("/mutate", body(pod("fpga.intel.com/no"))))["allowed"]
    assert webhook.metric(denied) == 1
    assert webhook.metric("accelbind_admission_seconds_count") == 1
    assert webhook.metric('accelbind_mappings{kind="AcceleratorFunction"}') == 1
    assert webhook.metric("accelbind_certificate_expiry_timestamp_seconds") > 1.7e9
    assert webhook.metric("accelbind_ready") == 1
    assert "accelbind_build_info{" in webhook.plain("/metrics")[1]
    with contextlib.closing(webhook.connect()) as connection:
        connection.request("GET", "/mutate")
        assert connection.getresponse().status == 405
        assert webhook.process.terminate(60) == 0


def test_with_a_client_ca_only_clients_with_a_certificate_get_through_the_handshake(
    start: Starter, tmp_path: Path
) -> None:
    authority = ClientAuthority(tmp_path)
    webhook = start("--client-ca", authority.path)
    for path in ("/mutate", "/pods"):
        assert patch_of(webhook.ask(path, body(), *authority.issue("kube-apiserver")))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        webhook.ask("/mutate", body())
    for path in ("/healthz", "/readyz"):  # our own probe has nothing to show
        assert webhook.plain(path) == (200, "ok\n")
