"""Certificates in a folder: `ca.crt`, `ca.key`, `tls.crt`, `tls.key`.

The names are those of a Kubernetes TLS Secret, so a mounted Secret is such a folder too.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography.x509 import GeneralName

from certs.authority import (
    KeyPair,
    create_authority,
    issue_serving,
    key_pair,
    parse_names,
    signing_error,
    utc_now,
)
from certs.certificates import (
    UnusableKey,
    lifetime_of,
    name_text,
    read_certificates,
    read_signing_key,
    unusable_certificates,
)
from certs.policy import (
    CA_CERTIFICATE,
    CA_KEY,
    CA_KEYS,
    SERVING_CERTIFICATE,
    SERVING_KEY,
    SERVING_KEYS,
    serving_certificate,
    stored_authorities,
)
from services.process.errors import CertificateError, InvalidSettings
from services.process.files import replace_files
from services.process.pairs import read_pem

SERVING = timedelta(days=365)
AUTHORITY = timedelta(days=3650)
LONGEST = timedelta(days=36500)

_ADVICE = "restore both, or move ca.crt and ca.key away to get a new CA"
_PRIVATE = 0o600
_PUBLIC = 0o644


@dataclass(frozen=True, slots=True)
class IssuedPaths:
    """The files in the folder after `issue`, and what they contain."""

    ca_certificate: Path
    ca_key: Path
    certificate: Path
    key: Path
    names: tuple[str, ...]
    new_authority: bool
    authority_ends: datetime
    ends: datetime


def issue(
    directory: Path,
    names: Sequence[str],
    *,
    lifetime: timedelta = SERVING,
    ca_lifetime: timedelta = AUTHORITY,
    now: datetime | None = None,
) -> IssuedPaths:
    """Issue a serving certificate, from the CA in the folder or from a new one."""
    subject_names = parse_names(names)
    for flag, value in (("--lifetime", lifetime), ("--ca-lifetime", ca_lifetime)):
        if not timedelta(0) < value <= LONGEST:
            raise InvalidSettings(f"{flag} must be more than 0 and at most {LONGEST.days}d")
    moment = now or utc_now()
    with _locked(directory):
        authority, is_new = _authority(directory, subject_names, moment, ca_lifetime)
        serving = issue_serving(authority, subject_names, moment, lifetime)
        files = {
            SERVING_KEY: (serving.key_pem, _PRIVATE),
            SERVING_CERTIFICATE: (serving.certificate_pem, _PUBLIC),
        }
        if is_new:
            files = {
                CA_KEY: (authority.key_pem, _PRIVATE),
                CA_CERTIFICATE: (authority.certificate_pem, _PUBLIC),
                **files,
            }
        try:
            # All are written before the first is replaced: a full disk leaves a pair that matches.
            replace_files({directory / name: value for name, value in files.items()})
        except OSError as error:
            raise CertificateError(f"{directory} cannot be written: {error.strerror}") from error
    return IssuedPaths(
        ca_certificate=directory / CA_CERTIFICATE,
        ca_key=directory / CA_KEY,
        certificate=directory / SERVING_CERTIFICATE,
        key=directory / SERVING_KEY,
        names=tuple(name_text(name) for name in subject_names),
        new_authority=is_new,
        authority_ends=authority.certificate.ends,
        ends=serving.certificate.ends,
    )


def renew(directory: Path, names: Sequence[str], lifetime: timedelta | None) -> IssuedPaths:
    """Issue a serving certificate for the names of the present one and `names`.

    A lifetime of None is that of the present one.
    """
    held = read_folder(directory)
    serving = serving_certificate(held)
    present = serving.names if serving else ()
    if lifetime is None and serving:
        lifetime = lifetime_of(serving, stored_authorities(held))
    return issue(directory, list(dict.fromkeys([*present, *names])), lifetime=lifetime or SERVING)


def read_folder(directory: Path) -> dict[str, bytes]:
    """The files in a folder of `issue`, or in a mounted Secret, by name."""
    if not directory.is_dir():
        raise CertificateError(f"{directory} is not a folder")
    read = {name: _read(directory / name) for name in CA_KEYS | SERVING_KEYS}
    return {name: content for name, content in read.items() if content is not None}


def _authority(
    directory: Path, names: Sequence[GeneralName], now: datetime, lifetime: timedelta
) -> tuple[KeyPair, bool]:
    """The CA in the folder, or a new one, and whether it is new."""
    certificate_path, key_path = directory / CA_CERTIFICATE, directory / CA_KEY
    certificate_text, key_text = _read(certificate_path), _read(key_path)
    if key_text is None and certificate_text is None:
        return create_authority(now, lifetime), True
    try:
        key = read_signing_key(key_text or b"")
    except UnusableKey as error:
        raise CertificateError(f"{key_path}: {error}; {_ADVICE}") from error
    if key is None:
        raise CertificateError(f"{key_path}: it does not contain a PEM key; {_ADVICE}")
    if certificate_text is None:  # a kill between the two renames left the key alone
        return create_authority(now, lifetime, key), True
    certificates = read_certificates(certificate_text)
    if not certificates:
        skipped = "; ".join(unusable_certificates(certificate_text))
        problem = skipped or "it does not contain a PEM certificate"
        raise CertificateError(f"{certificate_path}: {problem}; {_ADVICE}")
    pair = key_pair(key, certificates)
    if problem := signing_error(pair, names, now):
        raise CertificateError(f"{certificate_path}: {problem}; {_ADVICE}")
    return pair, False


def _read(path: Path) -> bytes | None:
    try:
        return read_pem(path)
    except CertificateError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Create the folder, and hold its lock: processes that use one folder take turns."""
    if directory.is_file():
        raise CertificateError(f"{directory} is a file: name a folder")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise CertificateError(f"{directory} cannot be used: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # which the kernel drops with the process
        yield
    finally:
        os.close(descriptor)
