"""What PEM texts hold, and what certificates say of each other. Pure.

The texts come from Secrets that anybody with the right may have edited, or from files: what can't
be read is left out and told, never a crash.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.authority import CLOCK_SKEW, certificate_pem, name_text
from services.process.errors import CertificateError
from services.process.text import plain

MOST_CERTIFICATES: Final = 32
"""In one text: a bundle or a chain that is longer is somebody's mistake."""

_BLOCK: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----.{1,65536}?-----END CERTIFICATE-----", re.DOTALL
)
_LONGEST_CHAIN: Final = 6


class UnusableKey(CertificateError):
    """A private key that is whole, and not one that we can sign with."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """The certificates in a text.

    Attributes:
        all: Those that can be read, in order.
        broken: How many blocks can't be.
    """

    all: tuple[x509.Certificate, ...] = ()
    broken: int = 0


def certificates_in(text: bytes) -> Certificates:
    """The certificates in a PEM text."""
    found: list[x509.Certificate] = []
    broken = 0
    for block in _BLOCK.findall(text)[:MOST_CERTIFICATES]:
        try:
            certificate = x509.load_pem_x509_certificate(block)
            _ = (certificate.extensions, certificate.subject, certificate.issuer)
            _ = certificate.public_key()
        except (ValueError, UnsupportedAlgorithm):
            broken += 1
        else:
            found.append(certificate)
    if text.strip() and not found and not broken:
        broken = 1
    return Certificates(tuple(found), broken)


def key_in(text: bytes) -> ec.EllipticCurvePrivateKey | None:
    """The elliptic curve key in a PEM text; None where there is no key that can be read.

    Raises:
        UnusableKey: It is encrypted, or of another kind.
    """
    key = _any_key_in(text)
    if key is None or isinstance(key, ec.EllipticCurvePrivateKey):
        return key
    kind = type(key).__name__.removesuffix("PrivateKey")
    raise UnusableKey(f"the key is {kind}, no elliptic curve key")


def public_half(text: bytes) -> PublicKeyTypes | None:
    """The public half of the private key in a PEM text, of any kind; None as in `key_in`.

    Raises:
        UnusableKey: It is encrypted, or of a kind that is unknown here.
    """
    key = _any_key_in(text)
    return None if key is None else key.public_key()


def _any_key_in(text: bytes) -> PrivateKeyTypes | None:
    try:
        return serialization.load_pem_private_key(text, password=None)
    except TypeError as error:
        raise UnusableKey("the key is encrypted") from error
    except UnsupportedAlgorithm as error:
        raise UnusableKey(f"the key is of an unknown kind ({error})") from error
    except ValueError:
        return None


def bundle_pem(authorities: Iterable[x509.Certificate]) -> bytes:
    """Certificates as one PEM text."""
    return b"".join(map(certificate_pem, authorities))


def unique(certificates: Iterable[x509.Certificate]) -> tuple[x509.Certificate, ...]:
    """The same certificates, doubles left out."""
    return tuple(dict.fromkeys(certificates))


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether it says that it is a CA's."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except (x509.ExtensionNotFound, ValueError):
        return False
    return found.value.ca


def is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    """Whether its time has come and is not over."""
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def signed(certificate: x509.Certificate, by: x509.Certificate) -> bool:
    """Whether one certificate's key has signed the other certificate."""
    try:
        certificate.verify_directly_issued_by(by)
    except (InvalidSignature, ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return True


def signer_of(
    chain: Sequence[x509.Certificate], authorities: Iterable[x509.Certificate]
) -> x509.Certificate | None:
    """The CA that a chain leads to, None where it leads to none of these.

    Args:
        chain: The certificate that is shown first, then what stands between it and the CA.
        authorities: Whom to trust.
    """
    trusted = tuple(authorities)
    at = chain[0] if chain else None
    for _ in range(_LONGEST_CHAIN):
        if at is None:
            return None
        for authority in trusted:
            if at == authority or signed(at, authority):
                return authority
        above = (one for one in chain[1:] if one != at and is_authority(one) and signed(at, one))
        at = next(above, None)
    return None


def names_of(certificate: x509.Certificate) -> tuple[x509.GeneralName, ...]:
    """Its subject alternative names."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        return ()
    return tuple(found.value)


def lacking_names(
    certificate: x509.Certificate, wanted: Iterable[x509.GeneralName]
) -> tuple[str, ...]:
    """Those of the wanted names that it hasn't, as people write them."""
    held = {name_text(name).lower() for name in names_of(certificate)}
    return tuple(name_text(name) for name in wanted if name_text(name).lower() not in held)


def serves(certificate: x509.Certificate) -> bool:
    """Whether it may be a server's."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    except x509.ExtensionNotFound:
        return True
    except ValueError:
        return False
    return ExtendedKeyUsageOID.SERVER_AUTH in found.value


def renewal_time(certificate: x509.Certificate, share: float) -> datetime:
    """When a certificate is to be renewed.

    Args:
        certificate: One of ours, which is dated back by `CLOCK_SKEW`.
        share: Of its life, such as two thirds.
    """
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if begins + CLOCK_SKEW < ends:
        begins += CLOCK_SKEW
    return begins + timedelta(seconds=(ends - begins).total_seconds() * share)


def lifetime_of(
    certificate: x509.Certificate, authorities: Iterable[x509.Certificate]
) -> timedelta | None:
    """How long a certificate was made for; None where it ends only because its CA does.

    Args:
        certificate: One of ours, which is dated back by `CLOCK_SKEW`.
        authorities: The CAs that it may be of.
    """
    ends = certificate.not_valid_after_utc
    if any(ends == authority.not_valid_after_utc for authority in authorities):
        return None
    return ends - certificate.not_valid_before_utc - CLOCK_SKEW


def fingerprint(certificate: x509.Certificate) -> str:
    """Its SHA-256, as `openssl x509 -fingerprint -sha256` shows it."""
    digest = certificate.fingerprint(hashes.SHA256())
    return ":".join(f"{byte:02X}" for byte in digest)


def subject_text(name: x509.Name) -> str:
    """A subject or issuer in one line."""
    return plain(name.rfc4514_string(), 200)
