"""A TLS context that follows its files while the server runs.

Certificates are renewed under a running server: overwritten in place, renamed over, or, in a
mounted Secret, swapped all at once behind a symlink (kubernetes.io/docs/concepts/storage/volumes,
`..data`). So the files are read once a second, and new contents are tried. If they can't be used
(half of a renewal is a pair that doesn't match), that is logged, the old pair stays in use, and the
next contents are tried. A certificate that has expired never replaces one that is valid. The CAs of
clients are followed in the same way; neither waits for the other.

New contents get a TLS context of their own, which `context` switches to in each handshake. Loading
into a context in use would leave a mismatched pair behind on failure, and the old certificate
beside the new one when the kind of key changes (OpenSSL holds one for each kind). OpenSSL takes the
trusted CAs from the context that was switched to, but whether a client is asked for its
certificate, and how that is verified, from the first one: both are set up alike.
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
from typing import Final, NoReturn, TypeAlias

import structlog
from cryptography import x509

from services.process.errors import CertificateError
from services.process.files import open_at_once

MAX_FILE: Final = 1024 * 1024
INTERVAL: Final = 1.0
REMIND_SECONDS: Final = 3600.0
"""How often a problem that lasts is logged again."""
CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2; those of 1.3 are all fine."""

log = structlog.get_logger(room="certificates")


Contents: TypeAlias = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Validity:
    """When a certificate is valid, in seconds since the epoch."""

    begins: float
    ends: float


@dataclass(slots=True)
class _Files:
    """Files that are used together or not at all."""

    what: str
    paths: tuple[Path, ...]
    used: Contents = ()
    tried: Contents | None = None
    """What was tried last; None if the files couldn't be read then."""
    problem: str = ""
    """Why the newest contents aren't used; empty if they are."""

    def read(self) -> Contents:
        """What they hold now."""
        return tuple([_read_file(path) for path in self.paths])


class CertificateSource:
    """A TLS server context that always uses the newest pair of files that loads.

    Args:
        certificate: The file with the certificate and its chain, PEM.
        key: The file with its private key, PEM, not encrypted.
        client_ca: The file with the CAs of clients, PEM. The handshake of a client without a
            certificate of one of these fails then.
        clock: Seconds since the epoch.

    Attributes:
        context: For the server; it stays the same.
        validity: Of the certificate in use; None while there is none.
        failures: How many times new contents couldn't be used.
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
        self.failures = 0
        self._pair = _Files("certificate", (certificate, key))
        self._authorities = _Files("CA of clients", (client_ca,) if client_ca else ())
        self._clock = clock
        self._logged_at = 0.0
        self.context = self._new_context()
        self.context.sni_callback = self._switch
        self._newest = self.context

    @property
    def loaded(self) -> bool:
        """Whether there is a certificate to use."""
        return self.validity is not None

    @property
    def problem(self) -> str:
        """Why the newest files aren't used; empty if they are."""
        return "; ".join(filter(None, (self._pair.problem, self._authorities.problem)))

    @property
    def seconds_left(self) -> float:
        """How long the certificate in use is still valid; 0 while there is none."""
        return self.validity.ends - self._clock() if self.validity else 0.0

    def load(self) -> None:
        """Load the files at the start.

        Raises:
            CertificateError: One can't be read, the pair isn't one, or there is no CA.
        """
        found = [(files, files.read()) for files in (self._pair, self._authorities)]
        self._use(*[contents for _, contents in found])
        for files, contents in found:
            files.tried = files.used = contents

    def refresh(self) -> bool:
        """Read the files, and use what is new and good.

        Returns:
            Whether anything new is used now. Nothing is raised: `problem` and the log say why new
            contents are not used, once for each.
        """
        renewed = [self._renew(files) for files in (self._pair, self._authorities)]
        return any(renewed)

    async def follow(self, interval: float = INTERVAL) -> NoReturn:
        """Refresh every `interval` seconds until cancelled, whatever goes wrong."""
        while True:
            await asyncio.sleep(interval)
            try:
                self.refresh()
                self.remind()
            except Exception:
                log.exception("certificate files not read, the old certificate stays in use")

    def remind(self) -> None:
        """Log now and then what still needs somebody's attention."""
        if self._clock() - self._logged_at < REMIND_SECONDS:
            return
        ends = _moment(self.validity.ends) if self.validity else ""
        if self.seconds_left <= 0:
            self._log(
                log.error,
                "the certificate in use has expired: no API server trusts it",
                ends=ends,
                problem=self.problem,
            )
        elif self.problem:
            event = "the certificate files still can't be used, the old certificates stay in use"
            self._log(log.warning, event, problem=self.problem, ends=ends)

    def _log(self, log_it: Callable[..., object], event: str, **values: object) -> None:
        self._logged_at = self._clock()
        log_it(event, **values)

    def _renew(self, files: _Files) -> bool:
        try:
            before = files.tried
            files.tried = None
            found = files.tried = files.read()
            if found == before:
                return False
            others = self._authorities.used if files is self._pair else self._pair.used
            self._use(*((found, others) if files is self._pair else (others, found)))
        except CertificateError as error:
            if str(error) != files.problem:
                files.problem = str(error)
                self.failures += 1
                event = f"new {files.what} not used, the old one stays in use"
                self._log(log.warning, event, problem=files.problem)
            return False
        files.used, files.problem = found, ""
        return True

    def _use(self, pair: Contents, authorities: Contents) -> None:
        """Make a context of contents, and switch to it from now on."""
        fresh = self._new_context()
        self._trust(fresh, authorities)
        try:
            _load_pair(fresh, *pair)
        except ssl.SSLError as error:
            certificate, key = self._pair.paths
            raise CertificateError(
                f"{certificate} and {key} are no pair of a certificate and its"
                f" unencrypted key: {error.reason or error}"
            ) from error
        validity, now = validity_of(pair[0]), self._clock()
        if self.validity and validity.ends <= now < self.validity.ends:
            raise CertificateError(f"{self._pair.paths[0]} expired on {_moment(validity.ends)}")
        self.validity = validity
        self._newest = fresh
        valid = validity.begins <= now < validity.ends
        self._log(
            log.info if valid else log.warning,
            "certificate loaded" if valid else "certificate loaded, but it is not valid now",
            certificate=str(self._pair.paths[0]),
            begins=_moment(validity.begins),
            ends=_moment(validity.ends),
        )

    def _trust(self, context: ssl.SSLContext, authorities: Contents) -> None:
        for path, content in zip(self._authorities.paths, authorities, strict=True):
            try:
                # What isn't ASCII can only be a comment.
                context.load_verify_locations(cadata=content.decode("ascii", "ignore"))
            except ssl.SSLError as error:
                reason = error.reason or error
                raise CertificateError(f"{path} holds no certificates of CAs: {reason}") from error

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(CIPHERS)
        context.set_alpn_protocols(["http/1.1"])
        # A session that is taken up again would outlive the certificate it began with. OpenSSL
        # still offers that to clients of TLS 1.2 that know it by its number, none of them in Go.
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        if self._authorities.paths:
            context.verify_mode = ssl.CERT_REQUIRED
            # As in Go: what is in the file is trusted, a CA below another one included.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    def _switch(
        self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        """Called by OpenSSL in each handshake, with or without a server name."""
        connection.context = self._newest


def validity_of(pem: bytes) -> Validity:
    """When the first certificate of a PEM file is valid.

    Raises:
        CertificateError: There is none, or it isn't one.
    """
    try:
        found = x509.load_pem_x509_certificate(pem)
    except (ValueError, x509.InvalidVersion) as error:
        reason = f"no certificate whose validity could be read: {error}"
        raise CertificateError(reason) from error
    return Validity(found.not_valid_before_utc.timestamp(), found.not_valid_after_utc.timestamp())


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
        with open_at_once(path) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise CertificateError(f"{path} is no file")
            content = file.read(MAX_FILE + 1)
    except OSError as error:
        raise CertificateError(f"{path}: {error.strerror}") from error
    if len(content) > MAX_FILE:
        raise CertificateError(f"{path}: more than {MAX_FILE} bytes is no certificate or key")
    return content


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
