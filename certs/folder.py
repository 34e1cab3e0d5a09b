"""Certificates in a folder: `ca.crt`, `ca.key`, `tls.crt`, `tls.key`.

The names are those of a Kubernetes TLS Secret, so the folder of a mounted Secret looks the same.
Keys are readable by their owner only. All new files are written and synced beside the old ones
before the first is renamed, so a full disk or a kill leaves the old files whole; runs at the same
time on one folder take turns.
"""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from certs.authority import (
    Authority,
    certificate_pem,
    check_authority,
    issue_serving,
    key_pem,
    make_authority,
    name_text,
    parse_names,
    sign_authority,
    utc_now,
)
from services.process.errors import CertificateError, InvalidSettings
from services.process.files import sync_folder, write_new

SERVING_DAYS = 365
AUTHORITY_DAYS = 3650
LONGEST_DAYS = 36500

_LARGEST_FILE = 64 * 1024
_PRIVATE = 0o600
_PUBLIC = 0o644


@dataclass(frozen=True, slots=True)
class IssuedPaths:
    """What `issue` has left in the folder."""

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
    days: int = SERVING_DAYS,
    ca_days: int = AUTHORITY_DAYS,
    now: datetime | None = None,
) -> IssuedPaths:
    """Issues a serving certificate, from the folder's CA or from a new one.

    Args:
        directory: where the files are kept; made where it is missing.
        names: DNS names and IP addresses of the webhook.
        days: how long the serving certificate is valid, at most as long as the CA.
        ca_days: how long a new CA is valid.
        now: the present (the system's clock unless told).

    Raises:
        InvalidSettings: a name or a number of days that can't be.
        CertificateError: the folder can't be used, or its CA can't sign.
    """
    subject_names = parse_names(names)
    lifetime, ca_lifetime = _lifetime(days, "--days"), _lifetime(ca_days, "--ca-days")
    moment = now or utc_now()
    with _alone_in(directory):
        authority, is_new = _authority(directory, moment, ca_lifetime)
        serving = issue_serving(authority, subject_names, moment, lifetime)
        files = {
            "tls.key": (key_pem(serving.key), _PRIVATE),
            "tls.crt": (certificate_pem(serving.certificate), _PUBLIC),
        }
        if is_new:
            files = {
                "ca.key": (key_pem(authority.key), _PRIVATE),
                "ca.crt": (certificate_pem(authority.certificate), _PUBLIC),
                **files,
            }
        _replace_all(directory, files)
    return IssuedPaths(
        ca_certificate=directory / "ca.crt",
        ca_key=directory / "ca.key",
        certificate=directory / "tls.crt",
        key=directory / "tls.key",
        names=tuple(name_text(name) for name in subject_names),
        new_authority=is_new,
        authority_ends=authority.certificate.not_valid_after_utc,
        ends=serving.certificate.not_valid_after_utc,
    )


def _lifetime(days: int, flag: str) -> timedelta:
    if not 1 <= days <= LONGEST_DAYS:
        raise InvalidSettings(f"{flag} must be from 1 to {LONGEST_DAYS}, not {days}")
    return timedelta(days=days)


def _authority(directory: Path, now: datetime, lifetime: timedelta) -> tuple[Authority, bool]:
    """The folder's CA, or a new one, and whether it is new.

    A key without a certificate is what a kill between the two renames leaves: it gets its
    certificate now. A certificate without its key is somebody's mistake.
    """
    certificate_path, key_path = directory / "ca.crt", directory / "ca.key"
    if not key_path.exists():
        if certificate_path.exists():
            raise CertificateError(
                f"{certificate_path} is there but its key {key_path} is not: bring the key back,"
                " or move the certificate away to have a new CA made"
            )
        return make_authority(now, lifetime), True
    key = _load_key(key_path)
    if not certificate_path.exists():
        return sign_authority(key, now, lifetime), True
    authority = Authority(_load_certificate(certificate_path), key)
    try:
        check_authority(authority, now)
    except CertificateError as error:
        raise CertificateError(
            f"{certificate_path}: {error}; move ca.crt and ca.key away to have a new CA made"
        ) from error
    return authority, False


def _load_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError as error:
        raise CertificateError(f"{path} does not hold a PEM certificate: {error}") from error


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(_read(path), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CertificateError(f"{path} does not hold a plain PEM key: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(f"{path} does not hold an elliptic curve key")
    return key


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise CertificateError(f"{path} can't be read: {error.strerror}") from error
    if len(content) > _LARGEST_FILE:
        raise CertificateError(f"{path} is larger than any certificate or key")
    return content


@contextlib.contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Makes the folder and holds its lock; the kernel drops the lock with the process."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise CertificateError(f"{directory} can't be used: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace_all(directory: Path, files: Mapping[str, tuple[bytes, int]]) -> None:
    """Writes all files beside the old ones, then renames them in the order given."""
    suffix = secrets.token_hex(6)
    beside = {name: directory / f".{name}.{suffix}.new" for name in files}
    try:
        for name, (content, mode) in files.items():
            write_new(beside[name], content, mode=mode)
        for name in files:
            beside[name].replace(directory / name)
        sync_folder(directory)
    except OSError as error:
        raise CertificateError(f"{directory} can't be written: {error.strerror}") from error
    finally:
        for path in beside.values():
            with contextlib.suppress(OSError):  # the reason is told already, of the folder
                path.unlink()
