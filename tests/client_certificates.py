"""A CA that gives clients certificates, as a cluster's administrator has one for the API server."""

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class ClientAuthority:
    """A CA of clients; its certificate is in `<folder>/<name>.crt`."""

    def __init__(self, folder: Path, name: str = "client-ca") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        ends_all = x509.BasicConstraints(ca=True, path_length=0)
        made = _builder(self._name, self._name, self._key).add_extension(ends_all, critical=True)
        self.pem = made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        self.path = folder / f"{name}.crt"
        self.path.write_bytes(self.pem)

    def issue(self, name: str, *dns_names: str, days: float = 1) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else [])
        made = _builder(subject, self._name, key, days).add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        if dns_names:
            names = x509.SubjectAlternativeName([x509.DNSName(each) for each in dns_names])
            made = made.add_extension(names, critical=not name)
        certificate = made.sign(self._key, hashes.SHA256())
        paths = self._folder / f"{name}-client.crt", self._folder / f"{name}-client.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return paths


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: float = 1
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + timedelta(days=days))
    )


def showing(context: ssl.SSLContext, pair: Sequence[Path] | None) -> ssl.SSLContext:
    """A client's TLS that shows a certificate, if there is one."""
    if pair is not None:
        context.load_cert_chain(pair[0], pair[1])
    return context
