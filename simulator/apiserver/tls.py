"""The stand-in's own CA and serving certificate, created at each start unless given."""

import ipaddress
import os
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_SIGNING = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)
_LIFE = timedelta(days=30)
_SKEW = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ServingPair:
    """What the server presents, and what clients are to trust; all PEM."""

    certificate: bytes
    key: bytes
    authority: bytes

    def context(self) -> ssl.SSLContext:
        """A server context. `ssl` reads files only, so the pair passes through a private one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        descriptor, name = tempfile.mkstemp(prefix="pair-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(self.key + b"\n" + self.certificate)
            context.load_cert_chain(name)
        finally:
            Path(name).unlink()
        return context


def make_pair(names: Sequence[str]) -> ServingPair:
    """A CA and a certificate of it that is valid for host names and addresses (ECDSA P-256)."""
    now = datetime.now(UTC)
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stand-in-ca")])
    authority = (
        _builder(ca_name, ca_name, ca_key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_SIGNING, critical=True)  # strict clients, as Python 3.13, ask for it
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), False)  # noqa: FBT003 - positional in cryptography's API
        .sign(ca_key, hashes.SHA256())
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    certificate = (
        _builder(subject, ca_name, key.public_key(), now)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), False)  # noqa: FBT003 - as above
        .add_extension(usage, critical=False)
        .add_extension(issuer_id, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    return ServingPair(
        certificate.public_bytes(encoding),
        key.private_bytes(
            encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
        authority.public_bytes(encoding),
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _LIFE)
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
