"""Read certificates and keys from PEM, and compare them. Pure."""

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes

from services.process.pem import certificate_blocks
from services.process.text import plain

CLOCK_SKEW: Final = timedelta(hours=1)
"""How far our certificates are dated back."""

RENEWAL_SHARE: Final = 2 / 3
"""Share of its life after which a certificate is renewed."""

MOST_CERTIFICATES: Final = 32
"""Certificates read from one PEM text."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate, as everything that is used of it; no access raises."""

    parsed: x509.Certificate = field(repr=False)
    """For signatures and verification; other parts may raise where the library reads them late."""
    subject: str
    begins: datetime
    ends: datetime
    names: tuple[str, ...]
    """Its subject alternative names that are DNS names or IP addresses."""
    public_key: PublicKeyTypes = field(repr=False, compare=False)

    @property
    def pem(self) -> bytes:
        """The certificate as PEM."""
        return self.parsed.public_bytes(serialization.Encoding.PEM)

    @property
    def fingerprint(self) -> str:
        """Its SHA-256, as `openssl x509 -fingerprint -sha256` shows it."""
        return ":".join(f"{byte:02X}" for byte in self.parsed.fingerprint(hashes.SHA256()))

    @property
    def due(self) -> datetime:
        """When it is to be renewed."""
        return self.begins + (self.ends - self.begins) * RENEWAL_SHARE

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
    names: Iterable[x509.GeneralName] = ()
    with contextlib.suppress(x509.ExtensionNotFound):
        names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return Certificate(
        parsed,
        subject=plain(parsed.subject.rfc4514_string(), 200),
        begins=parsed.not_valid_before_utc,
        ends=parsed.not_valid_after_utc,
        names=tuple(
            str(one.value) for one in names if isinstance(one, (x509.DNSName, x509.IPAddress))
        ),
        public_key=parsed.public_key(),
    )


def read_certificates(text: bytes) -> tuple[Certificate, ...]:
    """The usable certificates in a PEM text, without duplicates."""
    return tuple(dict.fromkeys(one for one in _read(text) if one))


def count_unreadable(text: bytes) -> int:
    """How many certificates in a PEM text can't be read."""
    return [*_read(text)].count(None)


def _read(text: bytes) -> Iterator[Certificate | None]:
    """Yield the certificates in a PEM text; None in place of one that can't be read."""
    for block in itertools.islice(certificate_blocks(text), MOST_CERTIFICATES):
        try:
            yield convert(x509.load_pem_x509_certificate(block))
        # The errors of the library have no class in common, and an unusual certificate must not
        # keep the others from their use.
        except Exception:  # noqa: BLE001
            yield None


def read_key(text: bytes) -> PrivateKeyTypes | None:
    """The private key in a PEM text; None if it is unreadable, encrypted or of an unknown kind."""
    try:
        return serialization.load_pem_private_key(text, password=None)
    except (TypeError, ValueError, UnsupportedAlgorithm):
        return None


def key_error(certificate: Certificate, key_text: bytes) -> str:
    """Why a certificate cannot be used with a key; empty if it can."""
    key = read_key(key_text)
    if key is None:
        return "it has no readable key"
    matches = key.public_key() == certificate.public_key
    return "" if matches else "it and its key do not belong together"


def bundle_pem(certificates: Iterable[Certificate]) -> bytes:
    """Certificates as one PEM text."""
    return b"".join(one.pem for one in certificates)
