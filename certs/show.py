"""Describe the certificates of a folder or a cluster as plain values, without any key."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from certs.authority import signing_error
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
    SERVING_CERTIFICATE,
    SERVING_KEY,
    serving_certificate,
    signing_pair,
)
from certs.store import read_configurations
from certs.verification import refusal
from services.kube.client import ClusterClient
from services.kube.objects import read_secret
from services.process.errors import CertificateError, ClusterError


@dataclass(frozen=True, slots=True)
class StoredCertificates:
    """What a folder or a cluster contains, and where it is."""

    authority: Mapping[str, bytes]
    serving: Mapping[str, bytes]
    authority_at: str
    serving_at: str
    names: tuple[str, ...]
    """The names that the CA signs."""
    bundles: Sequence[tuple[str, bytes]] = ()
    """Bundles, each with its configuration and the number of its entry."""
    missing: Sequence[str] = ()
    """Webhook configurations that do not exist."""


def from_folder(directory: Path) -> StoredCertificates:
    """The certificates in a folder of `certs issue`, or in a mounted Secret."""
    files = read_folder(directory)
    if not files:
        raise CertificateError(
            f"{directory} has no certificates: accelbind certs issue --dir {directory} makes them"
        )
    serving = serving_certificate(files)
    where = str(directory)
    return StoredCertificates(files, files, where, where, serving.names if serving else ())


async def from_cluster(client: ClusterClient, at: CertsSettings) -> StoredCertificates:
    """The certificates in the Secrets and webhook configurations of a cluster."""
    configurations = await read_configurations(client, at)
    if configurations.problems:
        raise ClusterError("; ".join(configurations.problems))
    serving = await read_secret(client, at.namespace, at.tls_secret)
    authority = await read_secret(client, at.namespace, at.ca_secret)
    return StoredCertificates(
        authority.data,
        serving.data,
        f"Secret {at.namespace}/{at.ca_secret}",
        f"Secret {at.namespace}/{at.tls_secret}",
        at.names,
        configurations.bundles,
        configurations.missing,
    )


def describe(stored: StoredCertificates, now: datetime) -> dict[str, Any]:
    """The certificates as values for people and scripts."""
    places = {stored.authority_at: stored.authority, stored.serving_at: stored.serving}
    texts = [(f"{at}, {key}", text) for at, data in places.items() for key, text in data.items()]
    return {
        "certificates": list(_certificates(stored, now)),
        "bundles": [
            {
                "configuration": name,
                "fingerprints": [one.fingerprint for one in read_certificates(text)],
            }
            for name, text in stored.bundles
        ],
        "missing": list(stored.missing),
        "skipped": list(skipped_certificates((*texts, *stored.bundles))),
        "problems": list(_problems(stored, now)),
    }


def _problems(stored: StoredCertificates, now: datetime) -> Iterator[str]:
    """Why API servers refuse what the CA signs, and what is served."""
    if stored.authority.get(CA_KEY) and stored.names:
        try:
            pair, replaced = signing_pair(stored.authority, now)
            problem = replaced or signing_error(pair, stored.names, now)
        except CertificateError as error:
            problem = str(error)
        if problem:
            yield f"CA: {problem}"
    chain = read_certificates(stored.serving.get(SERVING_CERTIFICATE, b""))
    # Without bundles, in a folder, its CA is what API servers trust.
    own = [(stored.authority_at, stored.authority.get(CA_CERTIFICATE, b""))]
    for where, text in stored.bundles or own:
        trusted = read_certificates(text)
        if chain and trusted and (refused := refusal(chain[0], trusted, now, chain[1:])):
            yield f"serving, with the CAs in {where}: {refused}"


def _certificates(stored: StoredCertificates, now: datetime) -> Iterator[dict[str, Any]]:
    authority, serving = stored.authority, stored.serving
    held = read_certificates(authority.get(CA_CERTIFICATE, b""))
    chain = read_certificates(serving.get(SERVING_CERTIFICATE, b""))
    in_bundles = {one: at for at, text in stored.bundles for one in read_certificates(text)}
    for one in held[:1]:
        yield _describe_certificate("CA", stored.authority_at, one, now, authority.get(CA_KEY, b""))
    for one in held[1:]:
        yield _describe_certificate("old CA", stored.authority_at, one, now)
    for one, at in in_bundles.items():
        if one not in held:
            yield _describe_certificate("old CA", at, one, now)
    for one in chain[:1]:
        key = serving.get(SERVING_KEY, b"")
        yield _describe_certificate("serving", stored.serving_at, one, now, key)
    for one in chain[1:]:
        yield _describe_certificate("chain", stored.serving_at, one, now)


def _describe_certificate(
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
        "valid": one.is_valid(now),
        "daysLeft": round((one.ends - now).total_seconds() / 86400, 1),
        "serial": f"{one.serial:x}",
        "fingerprint": one.fingerprint,
    }
    if key is None:
        return row
    matches = "does not match" if key_error(one, key) else "matches"
    return row | {"key": matches if key.strip() else "missing"}
