"""A CA that gives clients certificates, as a cluster's administrator has one for the API server."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class ClientAuthority:
    """A CA of clients; its certificate is in `<folder>/<name>.crt`."""

    def __init__(self, folder: Path, name: str = "client-ca") -> None:
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.pem = self._sign(name, self._key, x509.BasicConstraints(ca=True, path_length=0))
        self.path = folder / f"{name}.crt"
        self.path.write_bytes(self.pem)

    def issue(self, name: str, *, days: float = 1) -> tuple[Path, Path]:
        """Files with a client's certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        certificate, private = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        certificate.write_bytes(self._sign(name, key, usage, days))
        private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return certificate, private

    def _sign(
        self, name: str, key: ec.EllipticCurvePrivateKey, use: x509.ExtensionType, days: float = 1
    ) -> bytes:
        now = datetime.now(UTC)
        subject, issuer = (
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)])
            for each in (name, self._name)
        )
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=2))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(use, critical=name == self._name)
        )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)
