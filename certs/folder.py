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
from typing import Final

from certs.authority import KeyPair, issue_serving, parse_names, signing_error, utc_now
from certs.certificates import read_key
from certs.state import (
    CA_CERTIFICATE,
    CA_KEY,
    REMEDY,
    SERVING_CERTIFICATE,
    SERVING_KEY,
    serving_certificate,
    signing_pair,
)
from services.process.errors import CertificateError
from services.process.files import replace_files
from services.process.pairs import read_pem

LIFE: Final = timedelta(days=365)
"""How long a serving certificate is valid, which nobody renews by itself."""

_PRIVATE: Final = 0o600
_PUBLIC: Final = 0o644


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


def issue(directory: Path, names: Sequence[str], *, now: datetime | None = None) -> IssuedPaths:
    """Issue a serving certificate, from the CA in the folder or from a new one."""
    names, now = parse_names(names), now or utc_now()
    with _locked(directory):
        authority, created = _authority(directory, names, now)
        serving = issue_serving(authority, names, now, LIFE)
        files = {
            SERVING_KEY: (serving.key_pem, _PRIVATE),
            SERVING_CERTIFICATE: (serving.certificate.pem, _PUBLIC),
        }
        if created:
            files = {
                CA_KEY: (authority.key_pem, _PRIVATE),
                CA_CERTIFICATE: (authority.certificate.pem, _PUBLIC),
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
        names=names,
        new_authority=bool(created),
        authority_ends=authority.certificate.ends,
        ends=serving.certificate.ends,
    )


def renew(directory: Path, names: Sequence[str]) -> IssuedPaths:
    """Issue a serving certificate for the names of the present one and `names`."""
    serving = serving_certificate(read_folder(directory))
    return issue(directory, [*(serving.names if serving else ()), *names])


def read_folder(directory: Path) -> dict[str, bytes]:
    """The files in a folder of `issue`, or in a mounted Secret, by name."""
    if not directory.is_dir():
        raise CertificateError(f"{directory} is not a folder")
    files = {}
    for name in (CA_CERTIFICATE, CA_KEY, SERVING_CERTIFICATE, SERVING_KEY):
        try:
            files[name] = read_pem(directory / name)
        except CertificateError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
    return files


def _authority(directory: Path, names: Sequence[str], now: datetime) -> tuple[KeyPair, str]:
    """The CA in the folder, or a new one, and why it is new."""
    files = read_folder(directory)
    key = files.get(CA_KEY)
    try:
        authority, created = signing_pair(files, now)
    except CertificateError as error:
        raise CertificateError(f"{directory}: {error}") from error
    # A kill between the two renames leaves the key alone. Nothing else is replaced: the bundles
    # that somebody has pasted do not follow.
    replaced = CA_CERTIFICATE in files or (key is not None and read_key(key) is None)
    problem = created if replaced else ""
    if problem := problem or signing_error(authority, names, now):
        raise CertificateError(f"{directory / CA_CERTIFICATE}: {problem}: {REMEDY}")
    return authority, created


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
