"""Describe the certificates of a folder or a cluster as plain values, without any key."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from certs.authority import signing_error, utc_now
from certs.certificates import (
    Certificate,
    key_error,
    read_certificates,
    skipped_certificates,
)
from certs.folder import read_folder
from certs.settings import CertsSettings
from certs.state import (
    CA_CERTIFICATE,
    CA_KEY,
    OLD_CAS,
    SERVING_CERTIFICATE,
    SERVING_KEY,
    Stored,
    serving_certificate,
    signing_pair,
)
from certs.store import read_configurations
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
    serving, where = serving_certificate(files), str(directory)
    return describe(Stored(files, files), where, where, serving.names if serving else ())


async def show_cluster(client: ClusterClient, at: CertsSettings) -> dict[str, Any]:
    """The certificates in the Secrets and webhook configurations of a cluster."""
    configurations = await read_configurations(client, at)
    if configurations.problems:
        raise ClusterError("; ".join(configurations.problems))
    serving = await read_secret(client, at.namespace, at.tls_secret)
    authority = await read_secret(client, at.namespace, at.ca_secret)
    stored = Stored(authority.data, serving.data, configurations.bundles)
    in_namespace = f"Secret {at.namespace}"
    facts = describe(
        stored, f"{in_namespace}/{at.ca_secret}", f"{in_namespace}/{at.tls_secret}", at.names
    )
    return facts | {"missing": configurations.missing}


def describe(
    stored: Stored, authority_at: str, serving_at: str, names: Sequence[str]
) -> dict[str, Any]:
    """Certificates that are stored in two places as values for people and scripts.

    `names` are those that the CA signs.
    """
    now = utc_now()
    places = {authority_at: stored.authority, serving_at: stored.serving}
    texts = [(f"{at}, {key}", text) for at, data in places.items() for key, text in data.items()]
    return {
        "certificates": _certificates(stored, authority_at, serving_at, now),
        "bundles": [
            {
                "configuration": at,
                "fingerprints": [one.fingerprint for one in read_certificates(text)],
            }
            for at, text in stored.bundles
        ],
        "missing": [],
        "skipped": list(skipped_certificates((*texts, *stored.bundles))),
        "problems": list(_problems(stored, authority_at, names, now)),
    }


def _problems(
    stored: Stored, authority_at: str, names: Sequence[str], now: datetime
) -> Iterator[str]:
    """Why API servers refuse what the CA signs, and what is served."""
    if stored.authority.get(CA_KEY) and names:
        try:
            pair, replaced = signing_pair(stored.authority, now)
            problem = replaced or signing_error(pair, names, now)
        except CertificateError as error:
            problem = str(error)
        if problem:
            yield f"CA: {problem}"
    chain = read_certificates(stored.serving.get(SERVING_CERTIFICATE, b""))
    # Without bundles, in a folder, its CA is what API servers trust.
    own = [(authority_at, stored.authority.get(CA_CERTIFICATE, b""))]
    for where, text in stored.bundles or own:
        trusted = read_certificates(text)
        if chain and trusted and (refused := refusal(chain[0], trusted, now, chain[1:])):
            yield f"serving, with the CAs in {where}: {refused}"


def _certificates(
    stored: Stored, authority_at: str, serving_at: str, now: datetime
) -> list[dict[str, Any]]:
    authority, serving = stored.authority, stored.serving
    held = read_certificates(b"".join(authority.get(key, b"") for key in (CA_CERTIFICATE, OLD_CAS)))
    chain = read_certificates(serving.get(SERVING_CERTIFICATE, b""))
    others = {one: at for at, text in stored.bundles for one in read_certificates(text)}
    rows = [
        *(("old CA" if number else "CA", authority_at, one) for number, one in enumerate(held)),
        *(("old CA", at, one) for one, at in others.items() if one not in held),
        *(("chain" if number else "serving", serving_at, one) for number, one in enumerate(chain)),
    ]
    keys = {"CA": authority.get(CA_KEY, b""), "serving": serving.get(SERVING_KEY, b"")}
    return [_describe_certificate(role, at, one, now, keys.get(role)) for role, at, one in rows]


def _describe_certificate(
    role: str, source: str, one: Certificate, now: datetime, key: bytes | None
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
        "valid": one.is_valid(now),
        "daysLeft": round((one.ends - now).total_seconds() / 86400, 1),
        "serial": f"{one.serial:x}",
        "fingerprint": one.fingerprint,
    }
    if key is None:
        return row
    matches = "does not match" if key_error(one, key) else "matches"
    return row | {"key": matches if key.strip() else "missing"}
