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
