"""The webhook as a real process, over verified TLS."""

import ssl
from datetime import timedelta

from certs.folder import issue
from tests.support import eventually
from tests.webhook.conftest import Starter
from tests.webhook.reviews import body, patch_of, pod, response_of
from tests.webhook.running import HEADERS, Webhook


def test_metrics_count_what_was_answered(webhook: Webhook) -> None:
    labels = '{endpoint="mutate",outcome="denied",reason="unknown-name"}'
    denied = f"accelbind_admission_requests_total{labels}"
    before, seconds = webhook.metric(denied), webhook.metric("accelbind_admission_seconds_count")
    assert not response_of(webhook.ask("/mutate", body(pod("fpga.intel.com/no"))).body)["allowed"]
    assert webhook.metric(denied) == before + 1
    assert webhook.metric("accelbind_admission_seconds_count") == seconds + 1
    assert webhook.metric('accelbind_mappings{kind="AcceleratorFunction"}') == 3
    assert webhook.metric("accelbind_certificate_expiry_timestamp_seconds") > 1.7e9
    assert webhook.metric("accelbind_ready") == 1
    assert "accelbind_build_info{" in webhook.plain("/metrics").text


def test_a_renewed_certificate_is_shown_without_a_restart(start: Starter) -> None:
    webhook = start()
    open_one = webhook.connect()
    open_one.request("POST", "/mutate", body(), HEADERS)
    assert patch_of(open_one.getresponse().read())
    ends = webhook.metric("accelbind_certificate_expiry_timestamp_seconds")
    old = (webhook.tls / "tls.crt").read_text()
    issue(webhook.tls, ["localhost"], lifetime=timedelta(days=30))
    fresh = (webhook.tls / "tls.crt").read_text()
    assert fresh != old

    def shown() -> bool:
        shown = ssl.get_server_certificate(("localhost", webhook.port))
        return ssl.PEM_cert_to_DER_cert(shown) == ssl.PEM_cert_to_DER_cert(fresh)

    assert eventually(shown)
    assert webhook.metric("accelbind_certificate_expiry_timestamp_seconds") < ends
    open_one.request("POST", "/mutate", body(), HEADERS)
    assert patch_of(open_one.getresponse().read())
    open_one.close()
    (webhook.tls / "tls.key").write_text("nonsense")
    assert eventually(lambda: webhook.metric("accelbind_certificate_reload_failing") == 1)
    assert webhook.ask("/mutate", body()).status == 200
