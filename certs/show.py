"""Describe the certificates of a folder or a cluster as plain values, without any key."""

from datetime import datetime
from pathlib import Path
from typing import Any

from certs.authority import utc_now
from certs.certificates import Certificate, key_error, read_certificates
from certs.folder import read_folder
from certs.settings import CertsSettings
from certs.state import CA_KEY, SERVING_KEY, Stored
from certs.store import read_snapshot
from services.kube.client import ClusterClient
from services.process.errors import CertificateError


def show_folder(directory: Path) -> dict[str, Any]:
    """The certificates in a folder of `certs issue`, or in a mounted Secret."""
    files = read_folder(directory)
    if not files:
        raise CertificateError(
            f"{directory} has no certificates: accelbind certs issue --dir {directory} makes them"
        )
    return _describe(Stored(files, files), utc_now())


async def show_cluster(client: ClusterClient, at: CertsSettings) -> dict[str, Any]:
    """The certificates in the Secrets and webhook configurations of a cluster."""
    read = await read_snapshot(client, at, create=False)
    return _describe(read.certificates, utc_now())


def _describe(stored: Stored, now: datetime) -> dict[str, Any]:
    """Certificates as values for people and scripts."""
    rows = []
    for number, one in enumerate(stored.authorities):
        key = None if number else stored.authority.get(CA_KEY, b"")
        rows.append(_row("old CA" if number else "CA", one, now, key))
    for number, one in enumerate(stored.chain):
        key = None if number else stored.serving.get(SERVING_KEY, b"")
        rows.append(_row("chain" if number else "serving", one, now, key))
    return {
        "certificates": rows,
        "bundles": [
            {
                "configuration": at,
                "fingerprints": [one.fingerprint for one in read_certificates(text)],
            }
            for at, text in stored.bundles
        ],
    }


def _row(role: str, one: Certificate, now: datetime, key: bytes | None) -> dict[str, Any]:
    row = {
        "role": role,
        "subject": one.subject,
        "names": list(one.names),
        "notBefore": one.begins.isoformat(),
        "notAfter": one.ends.isoformat(),
        "renewal": one.due.isoformat(),
        "valid": not one.validity_error(now),
        "daysLeft": round((one.ends - now).total_seconds() / 86400, 1),
        "fingerprint": one.fingerprint,
    }
    if key is None:
        return row
    return row | {"key": key_error(one, key) or "matches"}
