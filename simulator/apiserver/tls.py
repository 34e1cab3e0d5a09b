"""The stand-in's own serving certificate, created at each start unless given."""

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
from cryptography.x509.oid import NameOID

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
    """A self-signed certificate that is valid for host names and addresses (ECDSA P-256)."""
    now, key = datetime.now(UTC), ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), False)  # noqa: FBT003 - positional in cryptography's API
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    certificate = made.public_bytes(encoding)
    private = key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return ServingPair(certificate, private, certificate)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
