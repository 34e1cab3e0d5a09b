"""Certificates and keys from files, and a TLS context that follows them while the server runs."""

import asyncio
import os
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn

import structlog
from cryptography import x509

from services.process.errors import CertificateError
from services.process.files import open_regular
from services.process.outage import Outage

MAX_FILE: Final = 1024 * 1024


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate and its key, PEM."""
    # `ssl` takes only paths. But the files may change in between, and a key must not reach a disk.
    descriptor = os.memfd_create("pair")
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(key + b"\n" + certificate)
        # Without a password, OpenSSL would ask for that of an encrypted key on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
    finally:
        os.close(descriptor)


def read_pem(path: Path) -> bytes:
    """Read a file of certificates or a key."""
    try:
        with open_regular(path, follow_links=True) as file:
            content = file.read(MAX_FILE + 1)
    except OSError as error:
        raise CertificateError(f"{path}: {error.strerror}") from error
    if len(content) > MAX_FILE:
        raise CertificateError(f"{path}: more than {MAX_FILE} bytes is not a certificate or key")
    return content


INTERVAL: Final = 1.0
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"  # of TLS 1.2; those of TLS 1.3 are all allowed

log = structlog.get_logger(component="certificates")


class CertificateSource:
    """A TLS server context that uses the latest valid pair of files, PEM with an unencrypted key.

    With `client_ca`, clients must present a certificate of one of the CAs in it. What can't be used
    is logged, and what was in use stays in use.
    """

    def __init__(
        self,
        certificate: Path,
        key: Path,
        *,
        client_ca: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.expires: float | None = None
        """When the certificate in use does, in seconds of the epoch; None before one is loaded."""
        self._certificate = certificate
        self._key = key
        self._client_ca = client_ca
        self._authorities = ""
        """The CAs of clients that are in use, PEM."""
        self._tried: tuple[bytes, ...] | None = None
        """The contents that were tried last; None if the files couldn't be read."""
        self._clock = clock
        self._outage = Outage(
            log, "certificate files not used, the old stay in use", "certificate files used again"
        )
        self.context = self._new_context()
        """For the server; it stays the same object."""
        self.context.sni_callback = self._switch
        self._newest = self.context

    @property
    def error(self) -> str:
        """Why the latest files aren't used; empty if they are."""
        return self._outage.reason

    @property
    def failures(self) -> int:
        """How often the latest files couldn't be used."""
        return self._outage.failures

    def load(self) -> None:
        """Load the files at the start."""
        self._tried = self._read()
        self._use(*self._tried)

    def refresh(self) -> bool:
        """Read the files and use new contents; return whether that was done."""
        try:
            # None until it is read, so that files that come back are used again.
            before, self._tried = self._tried, None
            self._tried = self._read()
            if self._tried == before:
                return False
            self._use(*self._tried)
        except CertificateError as error:
            self._outage.failed(str(error))
            return False
        except Exception as error:  # noqa: BLE001 - of ours; the next reading tries again
            self._tried = None
            self._outage.failed(f"accelbind failed while reading them: {error!r:.200}")
            return False
        self._outage.ended()
        return True

    def _read(self) -> tuple[bytes, ...]:
        paths = self._certificate, self._key, self._client_ca
        return tuple([read_pem(path) for path in paths if path])

    async def follow(self, interval: float = INTERVAL) -> NoReturn:
        """Refresh every `interval` seconds until cancelled."""
        # Files are overwritten, renamed, or swapped behind a symlink (a mounted Secret), so their
        # contents are compared.
        while True:
            await asyncio.sleep(interval)
            self.refresh()

    def _use(self, certificate: bytes, key: bytes, authorities: bytes = b"") -> None:
        """Load contents into a new context, and switch to it.

        Raises:
            CertificateError: Something can't be used. If that is the CAs of clients alone, the pair
                is used with the old ones.
        """
        # A context in use would keep half of a pair that doesn't match, and the old certificate
        # beside a new one with another kind of key (OpenSSL holds one for each kind).
        fresh = self._new_context()
        problem: CertificateError | None = None
        # What isn't ASCII can only be a comment.
        trusted = authorities.decode("ascii", "ignore")
        if self._client_ca:
            try:
                _trust(fresh, trusted, self._client_ca)
            except CertificateError as error:
                if not self._authorities:
                    raise
                # They must not keep a renewed pair from being used.
                problem, trusted = error, self._authorities
                _trust(fresh, trusted, self._client_ca)
        try:
            load_pair(fresh, certificate, key)
            serving = x509.load_pem_x509_certificate(certificate)
            # Dates are read here: one such as the year 0 raises.
            begins, ends = serving.not_valid_before_utc, serving.not_valid_after_utc
        except (ssl.SSLError, ValueError, x509.InvalidVersion) as error:
            raise CertificateError(
                f"{self._certificate} and {self._key} are not a certificate and its"
                f" unencrypted key: {getattr(error, 'reason', None) or error}"
            ) from error
        now = datetime.fromtimestamp(self._clock(), UTC)
        # At the start even that is better than none: the log says so.
        if ends <= now and self.expires and self.expires > now.timestamp():
            raise CertificateError(f"{self._certificate} expired on {ends.isoformat()}")
        self.expires = ends.timestamp()
        self._newest, self._authorities = fresh, trusted
        valid = begins <= now < ends
        write_log = log.info if valid else log.warning
        write_log(
            "certificate loaded" if valid else "certificate loaded, but it is not valid now",
            certificate=str(self._certificate),
            begins=begins.isoformat(),
            ends=ends.isoformat(),
        )
        if problem:
            raise problem

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(CIPHERS)
        context.set_alpn_protocols(["http/1.1"])
        # A resumed session would outlive the certificate that it started with. OpenSSL still
        # resumes sessions of TLS 1.2 by ID, which no client in Go requests.
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        if self._client_ca:
            context.verify_mode = ssl.CERT_REQUIRED
            # As in Go: each CA in the file is trusted, also an intermediate one.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    def _switch(
        self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        """Called by OpenSSL in each handshake, with or without a server name."""
        # OpenSSL takes the trusted CAs from this one, but whether and how a client's certificate is
        # verified from the first one: `_new_context` sets up both alike.
        connection.context = self._newest


def _trust(context: ssl.SSLContext, authorities: str, path: Path) -> None:
    """Trust clients with certificates of CAs, in PEM from `path`."""
    try:
        context.load_verify_locations(cadata=authorities)
    except (ssl.SSLError, ValueError) as error:  # ValueError: the file is empty
        reason = getattr(error, "reason", None) or error
        raise CertificateError(f"{path} holds no certificates of CAs: {reason}") from error
