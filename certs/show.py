"""Describe the certificates of a folder or a cluster as plain values, without any key."""

from collections.abc import Iterator, Sequence
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
    authority, serving = stored.authority.get(CA_KEY, b""), stored.serving.get(SERVING_KEY, b"")
    return {
        "certificates": [
            *_rows(("CA", "old CA"), stored.authorities, authority, now),
            *_rows(("serving", "chain"), stored.chain, serving, now),
        ],
        "bundles": [
            {
                "configuration": at,
                "fingerprints": [one.fingerprint for one in read_certificates(text)],
            }
            for at, text in stored.bundles
        ],
    }


def _rows(
    roles: tuple[str, str], certificates: Sequence[Certificate], key: bytes, now: datetime
) -> Iterator[dict[str, Any]]:
    """Yield the first certificate, which has a key and the first role, and the others."""
    for number, one in enumerate(certificates):
        row = {
            "role": roles[min(number, 1)],
            "subject": one.subject,
            "names": list(one.names),
            "notBefore": one.begins.isoformat(),
            "notAfter": one.ends.isoformat(),
            "renewal": one.due.isoformat(),
            "valid": not one.validity_error(now),
            "daysLeft": round((one.ends - now).total_seconds() / 86400, 1),
            "fingerprint": one.fingerprint,
        }
        yield row if number else row | {"key": key_error(one, key) or "matches"}
