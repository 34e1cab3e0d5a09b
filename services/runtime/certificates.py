"""The certificate a server shows: a pair of files, followed while the server runs.

Certificates are renewed under a running server: overwritten in place, renamed over, or, in a
mounted Secret, swapped all at once behind a symlink (kubernetes.io/docs/concepts/storage/volumes,
`..data`). How doesn't matter here: both files are read once a second, and bytes that differ from
those last tried are tried. Half of a renewal is a pair that doesn't match; it is told, the old
pair serves on, and the other half is tried when it comes.

A pair that loads gets a TLS context of its own, which `context` hands over to at each handshake.
Loading into a context in use would leave a mismatched pair behind on failure, and the old
certificate beside the new one when the kind of key changes (OpenSSL holds one for each kind).
"""

import asyncio
import os
import ssl
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn

import structlog

from services.domain.errors import CertificateError

MAX_FILE: Final = 1024 * 1024
INTERVAL: Final = 1.0
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2; those of 1.3 are all fine."""

log = structlog.get_logger(room="certificates")


@dataclass(frozen=True, slots=True)
class Validity:
    """When a certificate counts, in seconds since the epoch."""

    begins: float
    ends: float


class CertificateSource:
    """A TLS server context that always shows the newest pair of files that loads.

    Args:
        certificate: The file with the certificate and its chain, PEM.
        key: The file with its private key, PEM, not encrypted.
        clock: Seconds since the epoch.

    Attributes:
        context: For the server; it stays the same.
        validity: Of the certificate that is being shown; None while there is none.
        problem: Why the newest files aren't used; empty if they are.
    """

    def __init__(
        self, certificate: Path, key: Path, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.context = _new_context()
        self.context.sni_callback = self._hand_over
        self.validity: Validity | None = None
        self.problem = ""
        self._certificate = certificate
        self._key = key
        self._clock = clock
        self._serving = self.context
        self._tried: tuple[bytes, bytes] | None = None

    @property
    def loaded(self) -> bool:
        """Whether there is a certificate to show."""
        return self.validity is not None

    @property
    def seconds_left(self) -> float:
        """How long the certificate that is being shown still counts; 0 while there is none."""
        return self.validity.ends - self._clock() if self.validity else 0.0

    def load(self) -> None:
        """Loads the pair, for the start.

        Raises:
            CertificateError: It can't be read, or isn't a pair.
        """
        self._tried = self._read()
        self._use(*self._tried)

    def refresh(self) -> bool:
        """Looks at the files; uses them if they are new and a pair.

        Returns:
            Whether a new pair is being shown. Nothing is raised: `problem` and the log tell why
            a new one is not, once for each content of the files.
        """
        try:
            pair = self._read()
        except CertificateError as error:
            self._tried = None
            return self._keep_old(error)
        if pair == self._tried:
            return False
        self._tried = pair
        try:
            self._use(*pair)
        except CertificateError as error:
            return self._keep_old(error)
        return True

    async def follow(self, interval: float = INTERVAL) -> NoReturn:
        """Refreshes every `interval` seconds until cancelled; whatever comes, it goes on."""
        while True:
            await asyncio.sleep(interval)
            try:
                self.refresh()
            except Exception:
                log.exception("certificate not looked at, the old one serves on")

    def _keep_old(self, error: CertificateError) -> bool:
        if str(error) != self.problem:
            log.warning("new certificate not used, the old one serves on", problem=str(error))
        self.problem = str(error)
        return False

    def _read(self) -> tuple[bytes, bytes]:
        return _read_file(self._certificate), _read_file(self._key)

    def _use(self, certificate: bytes, key: bytes) -> None:
        fresh = _new_context()
        try:
            _load_pair(fresh, certificate, key)
        except ssl.SSLError as error:
            raise CertificateError(
                f"{self._certificate} and {self._key} are no pair of a certificate and its"
                f" unencrypted key: {error.reason or error}"
            ) from error
        self.validity = validity_of(certificate)
        self._serving = fresh
        self.problem = ""
        now = self._clock()
        counts = self.validity.begins <= now < self.validity.ends
        tell = log.info if counts else log.warning
        tell(
            "certificate loaded" if counts else "certificate loaded, but it doesn't count now",
            certificate=str(self._certificate),
            begins=_moment(self.validity.begins),
            ends=_moment(self.validity.ends),
        )

    def _hand_over(
        self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        """Called by OpenSSL in each handshake, with or without a server name."""
        connection.context = self._serving


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.set_alpn_protocols(["http/1.1"])
    # A session that is taken up again would outlive the certificate it began with.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    return context


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Loads a pair from memory: `ssl` only takes paths, and the files may change any moment."""
    descriptor = os.memfd_create("pair")
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(key + b"\n" + certificate)
        # OpenSSL would ask for the password of an encrypted key on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
    finally:
        os.close(descriptor)


def _read_file(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise CertificateError(f"{path} is no file")
            content = file.read(MAX_FILE + 1)
    except OSError as error:
        raise CertificateError(f"{path}: {error.strerror}") from error
    if len(content) > MAX_FILE:
        raise CertificateError(f"{path}: more than {MAX_FILE} bytes is no certificate or key")
    return content


def validity_of(pem: bytes) -> Validity:
    """When the first certificate of a PEM file counts.

    Read from its DER by hand (RFC 5280, 4.1): `ssl` tells it only of a peer's certificate, and
    cryptography would cost this process 8 MiB.

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


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
