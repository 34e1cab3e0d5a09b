"""Create a certificate authority and the serving certificates it signs. Pure."""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.certificates import CLOCK_SKEW, Certificate, convert
from services.process.errors import InvalidSettings

AUTHORITY_LIFE: Final = timedelta(days=3650)
"""How long a CA is valid."""

SERVING_LIFE: Final = timedelta(days=90)
"""How long a serving certificate is valid."""

_CA_NAME: Final = "accelbind CA"

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DNS_NAME = re.compile(rf"(?=.{{1,253}}$)(\*\.{_LABEL}\.)?({_LABEL}\.)*(?![0-9]+$){_LABEL}")
"""Of at most 253 characters (RFC 1035); the last label is no number, as that of an address is."""

_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
"""The arguments of `x509.KeyUsage`."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate, of a CA or of a server, and its private key."""

    certificate: Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def key_pem(self) -> bytes:
        """The key as PEM, PKCS #8."""
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),  # its file's mode or RBAC protects it
        )


def parse_names(names: Iterable[str]) -> tuple[str, ...]:
    """Check DNS names (`*.` is a wildcard) and IP addresses; returns them in their usual form."""
    return tuple(dict.fromkeys(map(_parse_name, names)))


def _parse_name(text: str) -> str:
    name = text.strip().lower().removesuffix(".")
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        if _DNS_NAME.fullmatch(name):
            return name
    raise InvalidSettings(
        f"{text!r} is neither a DNS name (letters, digits, '-' and '.') nor an IP address"
    )


def create_authority(now: datetime, lifetime: timedelta = AUTHORITY_LIFE) -> KeyPair:
    """A new CA certificate and its key."""
    # Every TLS client of Kubernetes understands these keys, and they are cheap to sign with.
    key = ec.generate_private_key(ec.SECP256R1())
    # Clients look an issuer up by its name, and a bundle holds several CAs while one replaces
    # another.
    name = f"{_CA_NAME} {_identifier(key).digest.hex()[:8]}"
    return _issue(name, key, now, now + lifetime, None)


def issue_serving(
    authority: KeyPair, names: Sequence[str], now: datetime, lifetime: timedelta = SERVING_LIFE
) -> KeyPair:
    """A serving certificate with a new key; it ends with its CA if that ends earlier."""
    key = ec.generate_private_key(ec.SECP256R1())
    # Beyond its CA no client would accept it, and its renewal would come too late.
    end = min(now + lifetime, authority.certificate.ends)
    alternative_names = x509.SubjectAlternativeName(map(_general_name, names))
    purpose = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    return _issue("accelbind webhook", key, now, end, authority, alternative_names, purpose)


def _general_name(text: str) -> x509.DNSName | x509.IPAddress:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def is_ours(authority: Certificate) -> bool:
    """Whether a CA's certificate says that `create_authority` made it."""
    return authority.subject.startswith(f"CN={_CA_NAME} ")


def utc_now() -> datetime:
    """The current time in whole seconds, as in certificates."""
    return datetime.now(UTC).replace(microsecond=0)


def _issue(
    common_name: str,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    end: datetime,
    authority: KeyPair | None,
    *further: x509.ExtensionType,
) -> KeyPair:
    """A certificate that a CA signs, or one of a CA that signs itself."""
    organization = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "accelbind")
    subject = x509.Name([organization, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    is_ca, issuer, signing_key = authority is None, subject, key
    if authority:
        issuer, signing_key = authority.certificate.parsed.subject, authority.key
    uses = {"key_cert_sign", "crl_sign"} if is_ca else {"digital_signature"}
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)  # for clients whose clock is behind
        .not_valid_after(end)
        # Key identifiers and critical constraints as RFC 5280 has them: Python's `ssl` checks
        # strictly from 3.13 on, as OpenSSL does with `-x509_strict`.
        .add_extension(x509.BasicConstraints(is_ca, 0 if is_ca else None), critical=True)
        .add_extension(x509.KeyUsage(**{use: use in uses for use in _USES}), critical=True)
    )
    signed_by = x509.AuthorityKeyIdentifier(_identifier(signing_key).digest, None, None)
    for value in (_identifier(key), signed_by, *further):
        builder = builder.add_extension(value, critical=False)
    return KeyPair(convert(builder.sign(signing_key, hashes.SHA256())), key)


def _identifier(key: ec.EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())
