from datetime import UTC, datetime, timedelta

import pytest

from certs.authority import create_authority, issue_serving, parse_names
from services.process.errors import InvalidSettings

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["webhook.default.svc"], ["webhook.default.svc"]),
        (["Webhook.Default.SVC."], ["webhook.default.svc"]),
        (["127.0.0.1", "0:0:0:0:0:0:0:1", "::1"], ["127.0.0.1", "::1"]),
        (["*.webhook.svc"], ["*.webhook.svc"]),
        (["b", "a", "b", " a "], ["b", "a"]),
    ],
)
def test_names_are_read_as_dns_names_and_addresses(typed: list[str], expected: list[str]) -> None:
    assert list(parse_names(typed)) == expected


@pytest.mark.parametrize(
    "typed", ["", "a..b", "a_b.svc", "webhook:8443", "*.svc", "300.1.2.3", "a" * 64, "a.*.svc"]
)
def test_other_texts_are_refused_with_what_was_typed(typed: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        parse_names(["localhost", typed])
    assert repr(typed) in str(caught.value)


@pytest.mark.parametrize("lifetime", [DAY, 100 * DAY], ids=["own end", "end of the CA"])
def test_certificates_are_dated_back_and_end_with_their_ca(lifetime: timedelta) -> None:
    authority = create_authority(NOW, 10 * DAY)
    certificate = issue_serving(authority, parse_names(["a"]), NOW, lifetime).certificate
    assert authority.certificate.begins == NOW - timedelta(hours=1)
    assert certificate.begins == NOW - timedelta(hours=1)
    assert certificate.ends == NOW + min(lifetime, 10 * DAY)
