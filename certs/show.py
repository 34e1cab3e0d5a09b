"""Describe the certificates of a folder or a cluster as plain values, without any key."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from certs.authority import issue_serving, utc_now
from certs.certificates import Certificate, key_error, read_certificates
from certs.folder import read_folder
from certs.settings import CertsSettings
from certs.state import (
    CA_CERTIFICATE,
    CA_KEY,
    REFUSED,
    SERVING_KEY,
    Stored,
    signing_pair,
)
from certs.store import read_snapshot
from certs.verification import refusal
from services.kube.client import ClusterClient
from services.kube.objects import read_secret
from services.process.errors import CertificateError, ClusterError


def show_folder(directory: Path) -> dict[str, Any]:
    """The certificates in a folder of `certs issue`, or in a mounted Secret."""
    files = read_folder(directory)
    if not files:
        raise CertificateError(
            f"{directory} has no certificates: accelbind certs issue --dir {directory} makes them"
        )
    stored = Stored(files, files, places=(str(directory), str(directory)))
    return _describe(stored, stored.chain[0].names if stored.chain else ())


async def show_cluster(client: ClusterClient, at: CertsSettings) -> dict[str, Any]:
    """The certificates in the Secrets and webhook configurations of a cluster."""
    read = await read_snapshot(client, at, read_secret)
    if read.problems:
        raise ClusterError("; ".join(read.problems))
    return _describe(read.certificates(), at.names) | {"missing": read.missing}


def _describe(stored: Stored, names: Sequence[str]) -> dict[str, Any]:
    """Certificates as values for people and scripts; `names` are those that the CA signs."""
    now = utc_now()
    return {
        "certificates": list(_certificates(stored, now)),
        "bundles": [
            {
                "configuration": at,
                "fingerprints": [one.fingerprint for one in read_certificates(text)],
            }
            for at, text in stored.bundles
        ],
        "missing": (),
        "skipped": stored.skipped,
        "problems": list(_problems(stored, names, now)),
    }


def _problems(stored: Stored, names: Sequence[str], now: datetime) -> Iterator[str]:
    """Why API servers refuse what the CA signs, and what is served."""
    if stored.authority.get(CA_KEY) and names:
        try:
            pair, replaced = signing_pair(stored, now)
            trial = issue_serving(pair, names, now).certificate
            refused = refusal(trial, [pair.certificate], now)
            problem = replaced or (refused and f"{REFUSED}: {refused}")
        except CertificateError as error:
            problem = str(error)
        if problem:
            yield f"CA: {problem}"
    # Without bundles, in a folder, its CA is what API servers trust.
    own = [(stored.places[0], stored.authority.get(CA_CERTIFICATE, b""))]
    for where, text in stored.bundles or own:
        trusted = read_certificates(text)
        if stored.chain and trusted:
            serving, *intermediates = stored.chain
            if refused := refusal(serving, trusted, now, intermediates):
                yield f"serving, with the CAs in {where}: {refused}"


def _certificates(stored: Stored, now: datetime) -> Iterator[dict[str, Any]]:
    authority_at, serving_at = stored.places
    for number, one in enumerate(stored.held):
        key = None if number else stored.authority.get(CA_KEY, b"")
        yield _row("old CA" if number else "CA", authority_at, one, now, key)
    others = {one: at for at, text in stored.bundles for one in read_certificates(text)}
    for one, at in others.items():
        if one not in stored.held:
            yield _row("old CA", at, one, now)
    for number, one in enumerate(stored.chain):
        key = None if number else stored.serving.get(SERVING_KEY, b"")
        yield _row("chain" if number else "serving", serving_at, one, now, key)


def _row(
    role: str, source: str, one: Certificate, now: datetime, key: bytes | None = None
) -> dict[str, Any]:
    row = {
        "role": role,
        "source": source,
        "subject": one.subject,
        "issuer": one.issuer,
        "names": list(one.names),
        "notBefore": one.begins.isoformat(),
        "notAfter": one.ends.isoformat(),
        "renewal": one.due.isoformat(),
        "valid": not one.validity_error(now),
        "daysLeft": round((one.ends - now).total_seconds() / 86400, 1),
        "serial": f"{one.serial:x}",
        "fingerprint": one.fingerprint,
    }
    if key is None:
        return row
    matches = "does not match" if key_error(one, key) else "matches"
    return row | {"key": matches if key.strip() else "missing"}
