"""Describe the certificates of a folder or a cluster as plain values, without any key."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography import x509

from certs.authority import name_text
from certs.certificates import (
    fingerprint,
    is_valid,
    key_error,
    names_of,
    read_certificates,
    renewal_time,
    subject_text,
)
from certs.folder import read_folder
from certs.policy import (
    CA_KEY,
    SERVING_CERTIFICATE,
    SERVING_KEY,
    stored_authorities,
)
from certs.store import CertificateLocations, read_configurations
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
    return StoredCertificates(files, files, str(directory), str(directory))


async def from_cluster(client: ClusterClient, at: CertificateLocations) -> StoredCertificates:
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
        {
            f"{one.name}[{number}]": bundle
            for one in configurations.present
            for number, bundle in enumerate(one.bundles(at))
        },
        tuple(configurations.missing),
    )


def describe(stored: StoredCertificates, now: datetime) -> dict[str, Any]:
    """The certificates as values for people and scripts."""
    return {
        "certificates": list(_certificates(stored, now)),
        "bundles": [
            {"configuration": name, "fingerprints": list(map(fingerprint, read_certificates(text)))}
            for name, text in stored.bundles.items()
        ],
        "missing": list(stored.missing),
    }


def _certificates(stored: StoredCertificates, now: datetime) -> Iterator[dict[str, Any]]:
    for number, one in enumerate(stored_authorities(stored.authority)):
        row = _describe_certificate("old CA" if number else "CA", stored.authority_at, one, now)
        yield row if number else row | {"key": _key(one, stored.authority.get(CA_KEY, b""))}
    for number, one in enumerate(read_certificates(stored.serving.get(SERVING_CERTIFICATE, b""))):
        row = _describe_certificate("chain" if number else "serving", stored.serving_at, one, now)
        yield row if number else row | {"key": _key(one, stored.serving.get(SERVING_KEY, b""))}


def _key(certificate: x509.Certificate, text: bytes) -> str:
    if not text.strip():
        return "missing"
    return "does not match" if key_error(certificate, text) else "matches"


def _describe_certificate(
    role: str, source: str, one: x509.Certificate, now: datetime
) -> dict[str, Any]:
    begin, end = one.not_valid_before_utc, one.not_valid_after_utc
    return {
        "role": role,
        "source": source,
        "subject": subject_text(one.subject),
        "issuer": subject_text(one.issuer),
        "names": [name_text(name) for name in names_of(one)],
        "notBefore": begin.isoformat(),
        "notAfter": end.isoformat(),
        "renewal": renewal_time(one).isoformat(),
        "valid": is_valid(one, now),
        "daysLeft": round((end - now).total_seconds() / 86400, 1),
        "serial": f"{one.serial_number:x}",
        "fingerprint": fingerprint(one),
    }
