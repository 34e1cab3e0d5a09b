"""Describe the certificates of a folder or a cluster as plain values, without any key."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography.x509 import GeneralName

from certs.authority import key_pair, signing_error
from certs.certificates import (
    Certificate,
    UnusableKey,
    bundle_pem,
    general_name,
    key_error,
    read_certificates,
    read_signing_key,
    skipped_certificates,
)
from certs.folder import read_folder
from certs.policy import (
    CA_CERTIFICATE,
    CA_KEY,
    SERVING_CERTIFICATE,
    SERVING_KEY,
    serving_certificate,
    stored_authorities,
)
from certs.store import CertificateLocations, read_configurations
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
    names: tuple[GeneralName, ...]
    """The names that the CA signs."""
    bundles: Mapping[str, bytes] = field(default_factory=dict)
    """Bundles by configuration and number of the entry."""
    missing: tuple[str, ...] = ()
    """Webhook configurations that do not exist."""


def from_folder(directory: Path) -> StoredCertificates:
    """The certificates in a folder of `certs issue`, or in a mounted Secret."""
    files = read_folder(directory)
    if not files:
        raise CertificateError(
            f"{directory} has no certificates: accelbind certs issue --dir {directory} makes them"
        )
    serving = serving_certificate(files)
    names = map(general_name, serving.names if serving else ())
    return StoredCertificates(files, files, str(directory), str(directory), tuple(names))


async def from_cluster(
    client: ClusterClient, at: CertificateLocations, names: tuple[GeneralName, ...]
) -> StoredCertificates:
    """The certificates in the Secrets and webhook configurations of a cluster."""
    configurations = await read_configurations(client, at)
    if configurations.problems:
        raise ClusterError("; ".join(configurations.problems))
    serving = (await read_secret(client, at.namespace, at.serving)).data
    authority = (await read_secret(client, at.namespace, at.authority)).data
    return StoredCertificates(
        authority,
        serving,
        f"Secret {at.namespace}/{at.authority}",
        f"Secret {at.namespace}/{at.serving}",
        names,
        {
            f"{one.name}[{number}]": bundle
            for one in configurations.present
            for number, bundle in enumerate(one.bundles(at))
        },
        tuple(configurations.missing),
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
            for name, text in stored.bundles.items()
        ],
        "missing": list(stored.missing),
        "skipped": list(skipped_certificates((*texts, *stored.bundles.items()))),
        "problems": list(_problems(stored, now)),
    }


def _problems(stored: StoredCertificates, now: datetime) -> Iterator[str]:
    """Why API servers refuse what the CA signs, and what is served."""
    try:
        key = read_signing_key(stored.authority.get(CA_KEY, b""))
        certificates = read_certificates(stored.authority.get(CA_CERTIFICATE, b""))
        pair = key_pair(key, certificates) if key and certificates else None
        if pair and stored.names and (error := signing_error(pair, stored.names, now)):
            yield f"CA: {error}"
    except UnusableKey as unusable:
        yield f"CA: {unusable}"
    chain = read_certificates(stored.serving.get(SERVING_CERTIFICATE, b""))
    # Without bundles, in a folder, its CAs are what API servers trust.
    own = {stored.authority_at: bundle_pem(stored_authorities(stored.authority))}
    for where, text in (stored.bundles or own).items():
        trusted = read_certificates(text)
        if chain and trusted and (refused := refusal(chain[0], trusted, now, chain[1:])):
            yield f"serving, with the CAs in {where}: {refused}"


def _certificates(stored: StoredCertificates, now: datetime) -> Iterator[dict[str, Any]]:
    for number, one in enumerate(stored_authorities(stored.authority)):
        row = _describe_certificate("old CA" if number else "CA", stored.authority_at, one, now)
        yield row if number else row | {"key": _key(one, stored.authority.get(CA_KEY, b""))}
    for number, one in enumerate(read_certificates(stored.serving.get(SERVING_CERTIFICATE, b""))):
        row = _describe_certificate("chain" if number else "serving", stored.serving_at, one, now)
        yield row if number else row | {"key": _key(one, stored.serving.get(SERVING_KEY, b""))}


def _key(certificate: Certificate, text: bytes) -> str:
    if not text.strip():
        return "missing"
    return "does not match" if key_error(certificate, text) else "matches"


def _describe_certificate(
    role: str, source: str, one: Certificate, now: datetime
) -> dict[str, Any]:
    return {
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
