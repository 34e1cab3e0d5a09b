"""Certificates in a folder: `ca.crt`, `ca.key`, `tls.crt`, `tls.key`.

The names are those of a Kubernetes TLS Secret, so a mounted Secret is such a folder too.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from certs.authority import issue_serving, parse_names, utc_now
from certs.state import (
    CA_CERTIFICATE,
    CA_KEY,
    CA_KEYS,
    SERVING_CERTIFICATE,
    SERVING_KEY,
    Stored,
    signing_pair,
)
from services.process.errors import CertificateError
from services.process.files import replace_files
from services.process.tls import read_pem

LIFE: Final = timedelta(days=365)
"""How long a serving certificate is valid, which nobody renews by itself."""


class IssuedPaths(NamedTuple):
    """The files that a webhook and the API server need of a folder."""

    ca_certificate: Path
    certificate: Path
    key: Path


def issue(directory: Path, names: Sequence[str], *, now: datetime | None = None) -> IssuedPaths:
    """Issue a serving certificate, from the CA in the folder or from a new one."""
    names, now = parse_names(names), now or utc_now()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CertificateError(f"{directory} cannot be used: {error.strerror}") from error
    held = read_folder(directory)
    stored = Stored(held, held, place=str(directory))
    authority, created = signing_pair(stored, now)
    # Not replaced: the bundles that somebody has pasted do not follow.
    if created and held.keys() & CA_KEYS:
        raise CertificateError(f"{directory}: {created}: remove ca.key and ca.crt to get a new CA")
    serving = issue_serving(authority, names, now, LIFE)
    files = {
        CA_KEY: (authority.key_pem, 0o600),
        CA_CERTIFICATE: (authority.certificate.pem, 0o644),
        SERVING_KEY: (serving.key_pem, 0o600),
        SERVING_CERTIFICATE: (serving.certificate.pem, 0o644),
    }
    try:
        # All are written before the first is replaced: a full disk leaves a pair that matches.
        replace_files({directory / name: value for name, value in files.items()})
    except OSError as error:
        raise CertificateError(f"{directory} cannot be written: {error.strerror}") from error
    return IssuedPaths(
        directory / CA_CERTIFICATE, directory / SERVING_CERTIFICATE, directory / SERVING_KEY
    )


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
