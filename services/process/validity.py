"""When a certificate counts, read from its DER by hand.

RFC 5280, 4.1. `ssl` tells it only of a peer's certificate, and cryptography would cost a process
8 MiB.
"""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime

from services.process.errors import CertificateError


@dataclass(frozen=True, slots=True)
class Validity:
    """When a certificate counts, in seconds since the epoch."""

    begins: float
    ends: float


def validity_of(pem: bytes) -> Validity:
    """When the first certificate of a PEM file counts.

    Raises:
        CertificateError: There is none, or it isn't one.
    """
    begin, end = ssl.PEM_HEADER.encode(), ssl.PEM_FOOTER.encode()
    start = pem.find(begin)
    stop = pem.find(end, start)
    try:
        text = pem[start : stop + len(end)].decode("ascii")
        der = ssl.PEM_cert_to_DER_cert(text)
        at = _enter(der, _enter(der, 0))  # Certificate, TBSCertificate
        if der[at] == 0xA0:  # version, unless it is 1
            at = _span(der, at)[1]
        for _ in ("serial number", "signature algorithm", "issuer"):
            at = _span(der, at)[1]
        at = _enter(der, at)
        begins, at = _time(der, at)
        ends, _at = _time(der, at)
    except (ValueError, IndexError) as error:
        raise CertificateError(f"no certificate whose validity could be read: {error}") from error
    return Validity(begins, ends)


def _span(der: bytes, at: int) -> tuple[int, int]:
    """Where the content of the element at `at` begins and ends."""
    length, start = der[at + 1], at + 2
    if length >= 0x80:
        start += length - 0x80
        length = int.from_bytes(der[at + 2 : start], "big")
    if start + length > len(der):
        raise ValueError("it ends too early")
    return start, start + length


def _enter(der: bytes, at: int) -> int:
    return _span(der, at)[0]


def _time(der: bytes, at: int) -> tuple[float, int]:
    """A moment and where the next element is. UTCTime (0x17) has two digits for the year."""
    start, end = _span(der, at)
    text = der[start:end].decode("ascii")
    if der[at] == 0x17:
        text = ("19" if text[:2] >= "50" else "20") + text
    moment = datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    return moment.timestamp(), end
