"""A certificate authority of our own, and the serving certificates it signs.

Pure: takes names, times and keys, gives certificates; `certs.folder` keeps them. ECDSA P-256
throughout: what every TLS client that Kubernetes has ever shipped understands, and cheap to sign
with. The certificates satisfy RFC 5280 to the letter (key identifiers, critical constraints), since
Python's `ssl` checks strictly from 3.13 on, as OpenSSL does with `-x509_strict`.
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from services.process.errors import CertificateError, InvalidSettings

CLOCK_SKEW = timedelta(hours=1)
"""How far back certificates are dated, for clients whose clock is behind ours."""

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LONGEST_NAME = 253  # RFC 1035, without the final dot
_LONGEST_COMMON_NAME = 64  # ub-common-name of RFC 5280
_ORGANISATION = "accelbind"


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA: its certificate and the key that signs."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class Serving:
    """A serving certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def parse_names(names: Iterable[str]) -> tuple[x509.GeneralName, ...]:
    """The subject alternative names that a certificate gets for what was typed.

    Args:
        names: DNS names (a `*.` in front is a wildcard) and IP addresses; doubles are dropped.

    Raises:
        InvalidSettings: one isn't a name, or there is none.
    """
    parsed = tuple(dict.fromkeys(_parse_name(name) for name in names))
    if not parsed:
        raise InvalidSettings(
            "a serving certificate needs a name: give the DNS name or IP address"
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


def name_text(name: x509.GeneralName) -> str:
    """A subject alternative name as people write it."""
    return str(name.value)


def make_authority(now: datetime, lifetime: timedelta) -> Authority:
    """A new CA with a new key.

    Args:
        now: the present, with a time zone; the certificate is dated `CLOCK_SKEW` earlier.
        lifetime: from now on.
    """
    return sign_authority(ec.generate_private_key(ec.SECP256R1()), now, lifetime)


def sign_authority(
    key: ec.EllipticCurvePrivateKey, now: datetime, lifetime: timedelta
) -> Authority:
    """A CA certificate for a key that exists.

    The subject carries the start of the key's identifier, so that an old and a new CA in one bundle
    are told apart by their names too.
    """
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    name = _subject(f"accelbind CA {identifier.digest.hex()[:8]}")
    builder = (
        _builder(name, name, key.public_key(), now, now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
    )
    return Authority(builder.sign(key, hashes.SHA256()), key)


def issue_serving(
    authority: Authority,
    names: Sequence[x509.GeneralName],
    now: datetime,
    lifetime: timedelta,
) -> Serving:
    """A serving certificate with a key of its own.

    Args:
        authority: who signs.
        names: from `parse_names`.
        now: the present, with a time zone.
        lifetime: from now on; cut where the CA's own certificate ends.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(now + lifetime, authority.certificate.not_valid_after_utc)
    issuer = authority.certificate.subject
    builder = (
        _builder(_serving_subject(names), issuer, key.public_key(), now, end)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
                _identifier_of(authority)
            ),
            critical=False,
        )
    )
    return Serving(builder.sign(authority.key, hashes.SHA256()), key)


def check_authority(authority: Authority, now: datetime) -> None:
    """Refuses what can't sign a certificate that clients would trust.

    Raises:
        CertificateError: key and certificate don't belong together, it is no CA's, or its time has
            not come or is over.
    """
    certificate = authority.certificate
    if certificate.public_key() != authority.key.public_key():
        raise CertificateError("the CA's key does not belong to its certificate")
    if not may_sign(certificate):
        raise CertificateError("the certificate is not a CA's (basicConstraints, keyUsage)")
    if certificate.not_valid_before_utc > now:
        raise CertificateError(f"the CA is not valid before {certificate.not_valid_before_utc}")
    if certificate.not_valid_after_utc <= now:
        raise CertificateError(f"the CA has expired on {certificate.not_valid_after_utc}")


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """A certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as PEM (PKCS #8, not encrypted: its file's mode protects it)."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def utc_now() -> datetime:
    """The present, to the second, as certificates count it."""
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
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(end)
    )


def _subject(common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ORGANISATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _serving_subject(names: Sequence[x509.GeneralName]) -> x509.Name:
    """The first name where a common name has room for it; clients look at the SANs anyway."""
    fitting = [name_text(name) for name in names if len(name_text(name)) <= _LONGEST_COMMON_NAME]
    return _subject(fitting[0] if fitting else "webhook")


def _identifier_of(authority: Authority) -> x509.SubjectKeyIdentifier:
    try:
        extensions = authority.certificate.extensions
        return extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:  # a CA made by other means
        return x509.SubjectKeyIdentifier.from_public_key(authority.key.public_key())


def may_sign(certificate: x509.Certificate) -> bool:
    """Whether a certificate is a CA's, as strict clients see it."""
    try:
        extensions = certificate.extensions
        return (
            extensions.get_extension_for_class(x509.BasicConstraints).value.ca
            and extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
        )
    except (x509.ExtensionNotFound, ValueError):
        return False


def _key_usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
