"""What is read from PEM, and what certificates say of each other."""

import base64
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from certs.authority import KeyPair, create_authority, issue_serving, parse_names
from certs.certificates import (
    MOST_CERTIFICATES,
    Certificate,
    key_error,
    read_certificates,
    read_key,
    read_signing_key,
    unusable_certificates,
)
from certs.verification import refusal
from services.process.errors import CertificateError
from tests.certs.memory import rebuilt
from tests.odd_certificates import ODD

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


NO_SIGNER = x509.KeyUsage(
    digital_signature=True,
    **dict.fromkeys(
        (
            *("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
            *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
        ),
        False,
    ),
)


@pytest.mark.parametrize(
    ("authority", "reason"),
    [
        (CA, ""),
        (OTHER, "candidates exhausted"),
        (rebuilt(CA, without=x509.KeyUsage), ""),
        (rebuilt(CA, without=x509.KeyUsage, adding=NO_SIGNER), "keyUsage does not allow it"),
    ],
)
def test_a_certificate_is_refused_as_an_api_server_does(authority: KeyPair, reason: str) -> None:
    found = refusal(SERVING.certificate, [authority.certificate], NOW)
    assert reason in found
    assert bool(found) is bool(reason)


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_certificate_is_used_or_skipped_with_a_reason(kind: str) -> None:
    text = CA.certificate.pem + ODD[kind] + OTHER.certificate.pem
    first, *odd, last = read_certificates(text)
    assert (first, last) == (CA.certificate, OTHER.certificate)
    reasons = unusable_certificates(text)
    assert len(odd) + len(reasons) == 1
    assert all(reason.startswith("certificate 2: ") for reason in reasons)


def test_certificates_beyond_the_limit_are_reported() -> None:
    text = CA.certificate.pem * (MOST_CERTIFICATES + 5)
    assert unusable_certificates(text) == ("certificate 33 and later: there are more than 32",)


def test_a_key_is_read_where_it_can_be_used() -> None:
    other = ed25519.Ed25519PrivateKey.generate()
    formats = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    plain = other.private_bytes(*formats, serialization.NoEncryption())
    encrypted = other.private_bytes(*formats, serialization.BestAvailableEncryption(b"x"))
    key = read_signing_key(CA.key_pem)
    assert key is not None
    assert key.public_key() == CA.key.public_key()
    for text in (b"", b"x", CA.certificate.pem):
        assert read_key(text) is None
    assert read_key(plain) is not None
    with pytest.raises(CertificateError, match="the key is Ed25519, not on the curve P-256"):
        read_signing_key(plain)
    with pytest.raises(CertificateError, match="the key is encrypted"):
        read_key(encrypted)
    with pytest.raises(CertificateError, match="the key is of an unknown kind"):
        read_key(UNKNOWN_CURVE)
    assert key_error(SERVING.certificate, SERVING.key_pem) == ""
    for text, error in (
        (b" ", "has no readable key"),
        (CA.key_pem, "do not belong together"),
        (encrypted, "encrypted"),
    ):
        assert error in key_error(SERVING.certificate, text)
