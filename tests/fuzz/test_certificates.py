"""Bent certificates and keys: what is used of them never raises anything but our own error."""

import base64
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from certs.authority import KeyPair, create_authority, issue_serving, parse_names
from certs.certificates import key_error, read_certificates
from certs.state import Stored, next_step
from services.process.errors import CertificateError
from services.process.pem import certificate_blocks
from tests.certs.memory import HOSTS
from tests.odd_certificates import KEY, ODD, pem
from tests.support import soaking

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
CA = create_authority(NOW, timedelta(days=10))
SERVING = issue_serving(CA, parse_names(["a.svc", "*.b.svc", "::1"]), NOW, timedelta(days=1))
KEY_PEM = KeyPair(CA.certificate, KEY).key_pem
GOOD = [pair.certificate.parsed.public_bytes(Encoding.DER) for pair in (CA, SERVING)]
EXAMPLES = 100_000 if soaking() else 300


@st.composite
def bent(draw: st.DrawFn, good: list[bytes]) -> bytes:
    """One of these texts with some of its bytes changed."""
    content = bytearray(draw(st.sampled_from(good)))
    for _ in range(draw(st.integers(1, 4))):
        content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
    return bytes(content)


def use(text: bytes, key: bytes) -> None:
    """Use certificates for everything that they are used for."""
    found = read_certificates(text)
    assert len(found) <= len(list(certificate_blocks(text)))
    for one in found:
        _ = (one.pem, one.fingerprint, one.due, one.validity_error(NOW))
        assert read_certificates(one.pem) == (one,)
        _ = (one.is_signed_by(CA.certificate), CA.certificate.is_signed_by(one))
        _ = key_error(one, key)
    bundles = [("bundle", text)]
    pair = {"tls.crt": text, "tls.key": key, "ca.crt": text}
    next_step(Stored({}, pair, bundles), HOSTS, NOW)
    try:
        next_step(Stored({"ca.crt": text, "ca.key": key}, pair, bundles), HOSTS, NOW)
    except CertificateError as error:
        assert "remove ca.key and ca.crt" in str(error)  # noqa: PT017 - others need none


@pytest.mark.timeout(0)
@given(bent(GOOD).map(pem), st.sampled_from([KEY_PEM, CA.key_pem]))
@settings(max_examples=EXAMPLES)
def test_bent_certificates_never_raise(text: bytes, key: bytes) -> None:
    use(text, key)


@pytest.mark.parametrize("kind", ODD)
def test_odd_certificates_never_raise(kind: str) -> None:
    use(ODD[kind], KEY_PEM)


@pytest.mark.timeout(0)
@given(bent([CA.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())]))
@settings(max_examples=EXAMPLES)
def test_bent_keys_never_raise(content: bytes) -> None:
    text = base64.encodebytes(content)
    use(CA.certificate.pem, b"-----BEGIN PRIVATE KEY-----\n%b-----END PRIVATE KEY-----\n" % text)
