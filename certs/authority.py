"""Create a certificate authority and the serving certificates it signs. Pure."""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.certificates import CLOCK_SKEW, Certificate, convert, public_bytes
from certs.verification import refusal, unreadable
from services.process.errors import InvalidSettings

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LONGEST_NAME = 253  # RFC 1035, without the final dot
_ORGANISATION = "accelbind"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate, of a CA or of a server, and its private key."""

    certificate: Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def matches(self) -> bool:
        """Whether the key belongs to the certificate."""
        return self.certificate.public_key == public_bytes(self.key.public_key())

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.pem

    @property
    def key_pem(self) -> bytes:
        """The key as PEM, PKCS #8."""
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),  # its file's mode or RBAC protects it
        )


def key_pair(key: ec.EllipticCurvePrivateKey, certificates: Sequence[Certificate]) -> KeyPair:
    """A key with its certificate, which may stand anywhere in a chain; or with the first."""
    pairs = [KeyPair(certificate, key) for certificate in certificates]
    return next((pair for pair in pairs if pair.matches), pairs[0])


def parse_names(names: Iterable[str]) -> tuple[x509.GeneralName, ...]:
    """Subject alternative names from DNS names (`*.` is a wildcard) and IP addresses."""
    parsed = tuple(dict.fromkeys(_parse_name(name) for name in names))
    if not parsed:
        raise InvalidSettings(
            "a serving certificate needs a name: give with --name the DNS name or IP address"
            " under which the API server reaches the webhook"
        )
    return parsed


def _parse_name(text: str) -> x509.GeneralName:
    name = text.strip().lower().removesuffix(".")
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    wildcard = name.startswith("*.")
    labels = name.removeprefix("*.").split(".")
    if len(name) > _LONGEST_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise InvalidSettings(
            f"{text!r} is neither a DNS name (letters, digits, '-' and '.') nor an IP address"
        )
    if labels[-1].isdecimal():
        raise InvalidSettings(f"{text!r} looks like an IP address but is none")
    if wildcard and len(labels) < 2:
        raise InvalidSettings(f"{text!r} is a wildcard for a whole top-level domain")
    return x509.DNSName(name)


def create_authority(
    now: datetime, lifetime: timedelta, key: ec.EllipticCurvePrivateKey | None = None
) -> KeyPair:
    """A new CA certificate, with a new key unless one is given."""
    # Every TLS client of Kubernetes understands these keys, and they are cheap to sign with.
    key = key or ec.generate_private_key(ec.SECP256R1())
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    # Clients look an issuer up by its name, and a bundle holds several CAs while one replaces
    # another.
    name = _subject(f"accelbind CA {identifier.digest.hex()[:8]}")
    # Key identifiers and critical constraints as RFC 5280 has them: Python's `ssl` checks strictly
    # from 3.13 on, as OpenSSL does with `-x509_strict`.
    builder = (
        _builder(name, name, key.public_key(), now, now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
    )
    return KeyPair(convert(builder.sign(key, hashes.SHA256())), key)


def issue_serving(
    authority: KeyPair, names: Sequence[x509.GeneralName], now: datetime, lifetime: timedelta
) -> KeyPair:
    """A serving certificate with a new key; it ends with its CA if that ends earlier."""
    key = ec.generate_private_key(ec.SECP256R1())
    signer = authority.certificate
    # Beyond its CA no client would accept it, and its renewal would come too late.
    end = min(now + lifetime, signer.ends)
    builder = (
        _builder(_subject("accelbind webhook"), signer.parsed.subject, key.public_key(), now, end)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier(signer.key_identifier, None, None), critical=False
        )
    )
    return KeyPair(convert(builder.sign(authority.key, hashes.SHA256())), key)


def authority_error(authority: KeyPair, now: datetime) -> str:
    """Why clients would not trust what a CA signs now; empty if they would."""
    certificate = authority.certificate
    if not authority.matches:
        return "the CA's key does not belong to its certificate"
    if not certificate.may_sign:
        return "the certificate is not a CA's (basicConstraints, keyUsage)"
    if certificate.begins > now:
        return f"the CA is not valid before {certificate.begins:%F %T}"
    if certificate.ends <= now:
        return f"the CA expired on {certificate.ends:%F %T}"
    return ""


def signing_error(
    authority: KeyPair,
    names: Sequence[x509.GeneralName],
    now: datetime,
    others: Iterable[Certificate] = (),
) -> str:
    """Why API servers would refuse what a CA signs for these names; empty if they would accept it.

    `others` are the other CAs in their bundle.
    """
    if error := authority_error(authority, now):
        return error
    if error := unreadable(authority.certificate):
        return f"API servers may not read this CA: {error}"
    trial = issue_serving(authority, names, now, timedelta(days=1)).certificate
    refused = refusal(trial, (authority.certificate, *others), now)
    return f"API servers would refuse what this CA signs: {refused}" if refused else ""


def utc_now() -> datetime:
    """The current time in whole seconds, as in certificates."""
    return datetime.now(UTC).replace(microsecond=0)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)  # for clients whose clock is behind
        .not_valid_after(end)
    )


def _subject(common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ORGANISATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
