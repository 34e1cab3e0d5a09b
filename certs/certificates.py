"""Read certificates and keys from PEM, and compare them. Pure."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.authority import CLOCK_SKEW, KeyPair, certificate_pem, name_text
from services.process.errors import CertificateError
from services.process.text import plain

RENEWAL_SHARE: Final = 2 / 3
"""Share of its life after which a certificate is renewed."""

MOST_CERTIFICATES: Final = 32
"""Certificates read from one PEM text."""

_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"
_END: Final = b"-----END CERTIFICATE-----"

E = TypeVar("E", bound=x509.ExtensionType)


class UnusableKey(CertificateError):
    """A private key that is whole but cannot be used: encrypted, or of the wrong kind."""


def read_certificates(text: bytes) -> tuple[x509.Certificate, ...]:
    """The readable certificates in a PEM text, without duplicates and without the others."""
    certificates: list[x509.Certificate] = []
    # A longer bundle or chain is a mistake.
    for block in islice(_blocks(text), MOST_CERTIFICATES):
        try:
            certificate = x509.load_pem_x509_certificate(block)
            # These are parsed when they are first read, and would raise wherever that is.
            _ = (certificate.extensions, certificate.subject, certificate.issuer)
            _ = certificate.public_key()
        except (ValueError, UnsupportedAlgorithm):
            continue  # whoever may edit the Secret or file may have bent it
        certificates.append(certificate)
    return unique(certificates)


def _blocks(text: bytes) -> Iterator[bytes]:
    # `load_pem_x509_certificates` reads all or none. The work is linear in the text, which may be
    # full of markers.
    for piece in text.split(_BEGIN)[1:]:
        content, end, _ = piece.partition(_END)
        if end:
            yield _BEGIN + content + end


def read_key(text: bytes) -> PrivateKeyTypes | None:
    """The private key in a PEM text; None where there is none that can be read."""
    try:
        return serialization.load_pem_private_key(text, password=None)
    except TypeError as error:
        raise UnusableKey("the key is encrypted") from error
    except UnsupportedAlgorithm as error:
        raise UnusableKey(f"the key is of an unknown kind ({error})") from error
    except ValueError:
        return None


def read_signing_key(text: bytes) -> ec.EllipticCurvePrivateKey | None:
    """As `read_key`, for a CA's key."""
    key = read_key(text)
    if key is None or isinstance(key, ec.EllipticCurvePrivateKey):
        return key
    kind = type(key).__name__.removesuffix("PrivateKey")
    raise UnusableKey(f"the key is {kind}, not an elliptic curve key")


def bundle_pem(certificates: Iterable[x509.Certificate]) -> bytes:
    """Certificates as one PEM text."""
    return b"".join(map(certificate_pem, certificates))


def unique(certificates: Iterable[x509.Certificate]) -> tuple[x509.Certificate, ...]:
    """The same certificates in the same order, without duplicates."""
    return tuple(dict.fromkeys(certificates))


def extension_of(certificate: x509.Certificate, kind: type[E]) -> E | None:
    """An extension of a certificate; None if it lacks it."""
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether it says that it is a CA's."""
    constraints = extension_of(certificate, x509.BasicConstraints)
    return constraints is not None and constraints.ca


def may_sign(certificate: x509.Certificate) -> bool:
    """Whether strict clients accept it as a CA's."""
    # RFC 5280 wants both extensions, and `-x509_strict` misses either.
    usage = extension_of(certificate, x509.KeyUsage)
    return is_authority(certificate) and usage is not None and usage.key_cert_sign


def authority_error(authority: KeyPair, now: datetime) -> str:
    """Why clients would not trust what a CA signs now; empty if they would."""
    certificate = authority.certificate
    if certificate.public_key() != authority.key.public_key():
        return "the CA's key does not belong to its certificate"
    if not may_sign(certificate):
        return "the certificate is not a CA's (basicConstraints, keyUsage)"
    if certificate.not_valid_before_utc > now:
        return f"the CA is not valid before {certificate.not_valid_before_utc:%F %T}"
    if certificate.not_valid_after_utc <= now:
        return f"the CA expired on {certificate.not_valid_after_utc:%F %T}"
    return ""


def is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    """Whether its validity has begun and not ended."""
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether the key of `authority` signed `certificate`."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return True


def find_signer(
    certificate: x509.Certificate | None, authorities: Iterable[x509.Certificate]
) -> x509.Certificate | None:
    """The first of `authorities` that signed a certificate; None if none did."""
    if certificate is None:
        return None
    return next((one for one in authorities if is_signed_by(certificate, one)), None)


def names_of(certificate: x509.Certificate) -> tuple[x509.GeneralName, ...]:
    """Its subject alternative names."""
    return tuple(extension_of(certificate, x509.SubjectAlternativeName) or ())


def missing_names(
    certificate: x509.Certificate, wanted: Iterable[x509.GeneralName]
) -> tuple[str, ...]:
    """The wanted names that it does not have."""
    # DNS names are compared without case.
    held = {name_text(name).lower() for name in names_of(certificate)}
    return tuple(name_text(name) for name in wanted if name_text(name).lower() not in held)


def may_serve(certificate: x509.Certificate) -> bool:
    """Whether clients accept it as a server's."""
    usage = extension_of(certificate, x509.ExtendedKeyUsage)
    # Without the extension a certificate is for any purpose.
    return usage is None or ExtendedKeyUsageOID.SERVER_AUTH in usage


def key_error(certificate: x509.Certificate, key_text: bytes) -> str:
    """Why a serving certificate cannot be used with a key; empty if it can."""
    try:
        key = read_key(key_text)
    except UnusableKey as error:
        return f"the serving certificate cannot be used: {error}"
    if key is None:
        return "the serving certificate has no readable key"
    if key.public_key() != certificate.public_key():
        return "the serving certificate and its key do not belong together"
    return ""


def issued_at(certificate: x509.Certificate) -> datetime:
    """When a certificate was issued, if we issued it."""
    # One made by other means is not dated back, and may end before that hour is over.
    return min(certificate.not_valid_before_utc + CLOCK_SKEW, certificate.not_valid_after_utc)


def renewal_time(certificate: x509.Certificate) -> datetime:
    """When a certificate is due."""
    begin = issued_at(certificate)
    return begin + (certificate.not_valid_after_utc - begin) * RENEWAL_SHARE


def lifetime_of(
    certificate: x509.Certificate, authorities: Iterable[x509.Certificate]
) -> timedelta | None:
    """How long a certificate was issued for; None where it ends early, with its CA."""
    end = certificate.not_valid_after_utc
    if any(end == authority.not_valid_after_utc for authority in authorities):
        return None
    return end - issued_at(certificate)


def fingerprint(certificate: x509.Certificate) -> str:
    """Its SHA-256, as `openssl x509 -fingerprint -sha256` shows it."""
    return ":".join(f"{byte:02X}" for byte in certificate.fingerprint(hashes.SHA256()))


def subject_text(name: x509.Name) -> str:
    """A subject or issuer in one line."""
    return plain(name.rfc4514_string(), 200)
