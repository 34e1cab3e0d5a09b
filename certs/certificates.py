"""Read certificates and keys from PEM, and compare them. Pure."""

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes

from services.process.errors import CertificateError
from services.process.pem import certificate_blocks
from services.process.text import plain

CLOCK_SKEW: Final = timedelta(hours=1)
"""How far our certificates are dated back."""

RENEWAL_SHARE: Final = 2 / 3
"""Share of its life after which a certificate is renewed."""

MOST_CERTIFICATES: Final = 32
"""Certificates read from one PEM text."""

_CURVES: Final = ("secp256r1", "secp384r1", "secp521r1")
"""P-256, P-384 and P-521: Go, and so an API server, knows no other."""

E = TypeVar("E", bound=x509.ExtensionType)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate, as everything that is used of it; no access raises."""

    parsed: x509.Certificate = field(repr=False)
    """For signatures and verification; other parts may raise where the library reads them late."""
    subject: str
    issuer: str
    begins: datetime
    ends: datetime
    names: tuple[str, ...]
    """Its subject alternative names that are DNS names or IP addresses."""
    serial: int
    public_key: PublicKeyTypes = field(repr=False, compare=False)
    key_identifier: bytes = field(repr=False)

    @property
    def pem(self) -> bytes:
        """The certificate as PEM."""
        return self.parsed.public_bytes(serialization.Encoding.PEM)

    @property
    def fingerprint(self) -> str:
        """Its SHA-256, as `openssl x509 -fingerprint -sha256` shows it."""
        return ":".join(f"{byte:02X}" for byte in self.parsed.fingerprint(hashes.SHA256()))

    @property
    def issued(self) -> datetime:
        """When it was issued, if we issued it."""
        # One made by other means is not dated back, and may end before that hour is over.
        return self.ends if self.ends - self.begins < CLOCK_SKEW else self.begins + CLOCK_SKEW

    @property
    def due(self) -> datetime:
        """When it is to be renewed."""
        return self.issued + (self.ends - self.issued) * RENEWAL_SHARE

    def validity_error(self, now: datetime) -> str:
        """The validity for people; empty if it has begun and not ended."""
        if self.begins <= now < self.ends:
            return ""
        return f"it is valid only from {self.begins:%F %T} to {self.ends:%F %T}"

    def is_signed_by(self, authority: "Certificate") -> bool:
        """Whether the key of `authority` signed it."""
        try:
            self.parsed.verify_directly_issued_by(authority.parsed)
        except Exception:  # noqa: BLE001 - the library's errors have no class in common
            return False
        return True


def convert(parsed: x509.Certificate) -> Certificate:
    """Read everything that is used of a certificate; the library's errors pass through."""
    key = parsed.public_key()
    names = extension(parsed, x509.SubjectAlternativeName) or ()
    identifier = extension(parsed, x509.SubjectKeyIdentifier)
    return Certificate(
        parsed,
        subject=plain(parsed.subject.rfc4514_string(), 200),
        issuer=plain(parsed.issuer.rfc4514_string(), 200),
        begins=parsed.not_valid_before_utc,
        ends=parsed.not_valid_after_utc,
        names=tuple(
            str(one.value) for one in names if isinstance(one, (x509.DNSName, x509.IPAddress))
        ),
        serial=parsed.serial_number,
        public_key=key,
        key_identifier=(identifier or x509.SubjectKeyIdentifier.from_public_key(key)).digest,
    )


def extension(parsed: x509.Certificate, kind: type[E]) -> E | None:
    """The value of an extension; None if the certificate has none."""
    try:
        return parsed.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def read_certificates(text: bytes) -> tuple[Certificate, ...]:
    """The usable certificates in a PEM text, without duplicates."""
    return unique(one for one in _read(text) if isinstance(one, Certificate))


def unusable_certificates(text: bytes) -> tuple[str, ...]:
    """Why certificates in a PEM text are skipped by `read_certificates`."""
    return tuple(one for one in _read(text) if isinstance(one, str))


def _read(text: bytes) -> Iterator[Certificate | str]:
    for number, block in enumerate(certificate_blocks(text), 1):
        if number > MOST_CERTIFICATES:  # a longer bundle or chain is a mistake
            yield f"certificate {number} and later: there are more than {MOST_CERTIFICATES}"
            return
        try:
            yield convert(x509.load_pem_x509_certificate(block))
        # The errors of the library have no class in common, and an unusual certificate must not
        # keep the others from their use.
        except Exception as error:  # noqa: BLE001
            yield f"certificate {number}: {plain(str(error), 200) or type(error).__name__}"


def read_key(text: bytes) -> PrivateKeyTypes | None:
    """The private key in a PEM text; None where there is none that can be read.

    Raises:
        CertificateError: It is whole but cannot be used: encrypted, or of an unknown kind.
    """
    try:
        return serialization.load_pem_private_key(text, password=None)
    except TypeError as error:
        raise CertificateError("the key is encrypted") from error
    except UnsupportedAlgorithm as error:
        raise CertificateError(f"the key is of an unknown kind ({error})") from error
    except ValueError:
        return None


def read_signing_key(text: bytes) -> ec.EllipticCurvePrivateKey | None:
    """As `read_key`, for a CA's key."""
    key = read_key(text)
    if key is None or (isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name in _CURVES):
        return key
    kind = type(key).__name__.removesuffix("PrivateKey")
    raise CertificateError(f"the key is {kind}, not on the curve P-256, P-384 or P-521")


def key_error(certificate: Certificate, key_text: bytes) -> str:
    """Why a certificate cannot be used with a key; empty if it can."""
    try:
        key = read_key(key_text)
    except CertificateError as error:
        return str(error)
    if key is None:
        return "it has no readable key"
    matches = key.public_key() == certificate.public_key
    return "" if matches else "it and its key do not belong together"


def bundle_pem(certificates: Iterable[Certificate]) -> bytes:
    """Certificates as one PEM text."""
    return b"".join(one.pem for one in certificates)


def unique(certificates: Iterable[Certificate]) -> tuple[Certificate, ...]:
    """The same certificates in the same order, without duplicates."""
    return tuple(dict.fromkeys(certificates))


def general_name(text: str) -> x509.DNSName | x509.IPAddress:
    """A DNS name or an IP address, which is not checked, as it stands in a certificate."""
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
