"""What is read from PEM, and what certificates say of each other."""

import base64
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from certs.authority import create_authority, issue_serving, parse_names
from certs.certificates import (
    MOST_CERTIFICATES,
    Certificate,
    key_error,
    read_certificates,
    read_key,
)
from services.process.errors import InvalidSettings

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = timedelta(days=1)
CA = create_authority(NOW, 10 * DAY)
OTHER = create_authority(NOW, 10 * DAY)
SERVING = issue_serving(CA, parse_names(["a.svc"]), NOW, DAY)
BEGIN = b"-----BEGIN CERTIFICATE-----\n"
GARBLED = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"

CURVE, UNKNOWN = (b"\x2a\x86\x48\xce\x3d\x03\x01" + last for last in (b"\x07", b"\x06"))
UNKNOWN_CURVE = b"-----BEGIN PRIVATE KEY-----\n%b\n-----END PRIVATE KEY-----\n" % base64.b64encode(
    CA.key.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).replace(CURVE, UNKNOWN)
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"no PEM", ()),
        (GARBLED + CA.certificate.pem, (CA.certificate,)),
        (CA.certificate.pem[:-20], ()),
        (
            b"#\n" + CA.certificate.pem + b"x" + OTHER.certificate.pem,
            (CA.certificate, OTHER.certificate),
        ),
        (CA.certificate.pem * 2, (CA.certificate,)),
        (CA.certificate.pem * MOST_CERTIFICATES + OTHER.certificate.pem, (CA.certificate,)),
        # Quadratic work on 8 MiB would take hours.
        (
            BEGIN * 300_000 + CA.certificate.pem + OTHER.certificate.pem,
            (CA.certificate, OTHER.certificate),
        ),
    ],
)
def test_the_readable_certificates_are_read(text: bytes, found: tuple[Certificate, ...]) -> None:
    assert read_certificates(text) == found


def test_a_key_is_read_where_it_can_be_used() -> None:
    other = ed25519.Ed25519PrivateKey.generate()
    formats = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    plain = other.private_bytes(*formats, serialization.NoEncryption())
    encrypted = other.private_bytes(*formats, serialization.BestAvailableEncryption(b"x"))
    for text in (b"", b"x", CA.certificate.pem, encrypted, UNKNOWN_CURVE):
        assert read_key(text) is None
    assert read_key(plain) is not None
    assert key_error(SERVING.certificate, SERVING.key_pem) == ""
    for text, error in (
        (b" ", "has no readable key"),
        (encrypted, "has no readable key"),
        (CA.key_pem, "do not belong together"),
    ):
        assert error in key_error(SERVING.certificate, text)


# The authority


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
