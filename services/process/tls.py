"""A TLS context that follows its files while the server runs.

Certificates are renewed while the server runs: the files are overwritten, replaced by a rename, or,
in a mounted Secret, swapped behind a symlink (kubernetes.io/docs/concepts/storage/volumes,
`..data`). So the files are read once a second, and new contents are tried. If they can't be used (a
half-finished renewal is a pair that doesn't match), the error is logged, the old pair stays in use,
and the next contents are tried. An expired certificate never replaces a valid one. The CAs of
clients are followed in the same way, independently.

New contents are loaded into a new TLS context, which `context` switches to in each handshake.
Loading into a context in use would leave a mismatched pair behind on failure, and would keep the
old certificate beside the new one when the kind of key changes (OpenSSL holds one for each kind).
OpenSSL takes the trusted CAs from the new context, but whether and how a client's certificate is
verified from the first one: both are set up alike.
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, TypeAlias

import structlog
from cryptography import x509

from services.process.errors import CertificateError
from services.process.pairs import load_pair, read_pem

INTERVAL: Final = 1.0
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2; all ciphers of TLS 1.3 are allowed."""

log = structlog.get_logger(room="certificates")


Contents: TypeAlias = tuple[bytes, ...]


class Validity(NamedTuple):
    """When a certificate is valid, in seconds since the epoch."""

    begins: float
    ends: float


@dataclass(eq=False, slots=True)
class _Files:
    """Files that are used together or not at all."""

    what: str
    paths: tuple[Path, ...]
    used: Contents = ()
    tried: Contents | None = None
    """The contents that were tried last; None if the files couldn't be read."""
    error: str = ""
    """Why the latest contents aren't used; empty if they are."""

    def read(self) -> Contents:
        """Return the current contents."""
        return tuple([read_pem(path) for path in self.paths])


class CertificateSource:
    """A TLS server context that uses the latest valid pair of files.

    The files are PEM, the key not encrypted. With `client_ca`, clients must present a certificate
    of one of the CAs in it. `clock` returns seconds since the epoch.
    """

    def __init__(
        self,
        certificate: Path,
        key: Path,
        *,
        client_ca: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.validity: Validity | None = None
        """That of the certificate in use; None before one is loaded."""
        self.failures = 0
        """How often new contents couldn't be used."""
        self._pair = _Files("certificate", (certificate, key))
        self._authorities = _Files("CA of clients", (client_ca,) if client_ca else ())
        self._clock = clock
        self.context = self._new_context()
        """The context for the server; it stays the same object."""
        self.context.sni_callback = self._switch
        self._newest = self.context

    @property
    def loaded(self) -> bool:
        """Whether a certificate is in use."""
        return self.validity is not None

    @property
    def error(self) -> str:
        """Why the latest files aren't used; empty if they are."""
        return "; ".join(filter(None, (self._pair.error, self._authorities.error)))

    def load(self) -> None:
        """Load the files at the start."""
        pair, authorities = self._pair.read(), self._authorities.read()
        self._use(pair, authorities)
        self._pair.used = self._pair.tried = pair
        self._authorities.used = self._authorities.tried = authorities

    def refresh(self) -> bool:
        """Read the files, and use new contents; return whether there are any.

        New contents that can't be used are logged once, and `error` says why.
        """
        renewed = [self._renew(files) for files in (self._pair, self._authorities)]
        return any(renewed)

    async def follow(self, interval: float = INTERVAL) -> NoReturn:
        """Refresh every `interval` seconds until cancelled, whatever errors occur."""
        while True:
            await asyncio.sleep(interval)
            try:
                self.refresh()
            except Exception:
                log.exception("certificate files not read, the old certificate stays in use")

    def _renew(self, files: _Files) -> bool:
        try:
            before, files.tried = files.tried, None
            found = files.tried = files.read()
            if found == before:
                return False
            if files is self._pair:
                self._use(found, self._authorities.used)
            else:
                self._use(self._pair.used, found)
        except CertificateError as error:
            if str(error) != files.error:
                files.error = str(error)
                self.failures += 1
                event = f"new {files.what} not used, the old one stays in use"
                log.warning(event, reason=files.error)
            return False
        files.used, files.error = found, ""
        return True

    def _use(self, pair: Contents, authorities: Contents) -> None:
        """Load contents into a new context, and switch to it."""
        fresh = self._new_context()
        for path, content in zip(self._authorities.paths, authorities, strict=True):
            try:
                # What isn't ASCII can only be a comment.
                fresh.load_verify_locations(cadata=content.decode("ascii", "ignore"))
            except ssl.SSLError as error:
                reason = error.reason or error
                raise CertificateError(f"{path} holds no certificates of CAs: {reason}") from error
        certificate, key = self._pair.paths
        try:
            load_pair(fresh, *pair)
            found = x509.load_pem_x509_certificate(pair[0])
        except (ssl.SSLError, ValueError, x509.InvalidVersion) as error:
            raise CertificateError(
                f"{certificate} and {key} are not a certificate and its"
                f" unencrypted key: {getattr(error, 'reason', None) or error}"
            ) from error
        begins, ends = found.not_valid_before_utc, found.not_valid_after_utc
        now = datetime.fromtimestamp(self._clock(), UTC)
        if ends <= now and self.validity and self.validity.ends > now.timestamp():
            raise CertificateError(f"{certificate} expired on {ends.isoformat()}")
        self.validity = Validity(begins.timestamp(), ends.timestamp())
        self._newest = fresh
        valid = begins <= now < ends
        write_log = log.info if valid else log.warning
        write_log(
            "certificate loaded" if valid else "certificate loaded, but it is not valid now",
            certificate=str(certificate),
            begins=begins.isoformat(),
            ends=ends.isoformat(),
        )

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(CIPHERS)
        context.set_alpn_protocols(["http/1.1"])
        # A resumed session would outlive the certificate that it started with. OpenSSL still
        # resumes sessions of TLS 1.2 by ID, which no client in Go requests.
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        if self._authorities.paths:
            context.verify_mode = ssl.CERT_REQUIRED
            # As in Go: each CA in the file is trusted, also an intermediate one.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    def _switch(
        self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        """Called by OpenSSL in each handshake, with or without a server name."""
        connection.context = self._newest
