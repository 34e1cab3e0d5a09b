"""The Secrets and webhook configurations of a cluster, read and written under their versions."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from cryptography import x509

from certs.certificates import read_certificates, unique
from services.kube.client import BadStatus, ClusterClient
from services.kube.objects import (
    PLURALS,
    Configuration,
    Owner,
    Secret,
    ensure_secret,
    read_configuration,
    read_secret,
    write_bundle,
    write_secret,
)


@dataclass(frozen=True, slots=True)
class CertificateLocations:
    """Where the certificates of a cluster are."""

    namespace: str
    """Of both Secrets and of the webhook's Service."""
    authority: str
    """The Secret of the CA."""
    serving: str
    """The Secret that the webhook mounts."""
    service: str
    """The webhook's Service."""
    configurations: tuple[str, ...]
    """Names of webhook configurations, mutating and validating."""
    hosts: frozenset[str] = frozenset()
    """Names of the serving certificate, for webhooks that are called by URL."""

    @property
    def owner(self) -> Owner:
        """Which entries of the configurations are ours."""
        return Owner(self.namespace, self.service, self.hosts)


class CertificateStore(Protocol):
    """The Secrets and webhook configurations of one cluster; all methods raise `ClusterError`."""

    @property
    def locations(self) -> CertificateLocations:
        """Where everything is."""

    async def read_secret(self, name: str) -> Secret:
        """A Secret, which must exist."""

    async def ensure_secret(self, name: str) -> Secret:
        """A Secret, created empty if it does not exist."""

    async def write_secret(
        self, read: Secret, data: Mapping[str, bytes], ours: Collection[str]
    ) -> Secret:
        """Replace our keys in a Secret; raises `Conflict` if it has changed since it was read."""

    async def read_configuration(self, plural: str, name: str) -> Configuration | None:
        """A webhook configuration; None if there is none."""

    async def write_bundle(self, read: Configuration, bundle: bytes) -> bool:
        """Set our entries' bundles; returns False, and writes nothing, if they are set already."""


@dataclass(frozen=True, slots=True)
class ClusterStore:
    """A `CertificateStore` in the API server."""

    client: ClusterClient
    locations: CertificateLocations

    async def read_secret(self, name: str) -> Secret:
        """See `CertificateStore`."""
        return await read_secret(self.client, self.locations.namespace, name)

    async def ensure_secret(self, name: str) -> Secret:
        """See `CertificateStore`."""
        return await ensure_secret(self.client, self.locations.namespace, name)

    async def write_secret(
        self, read: Secret, data: Mapping[str, bytes], ours: Collection[str]
    ) -> Secret:
        """See `CertificateStore`."""
        return await write_secret(self.client, read, data, ours=ours)

    async def read_configuration(self, plural: str, name: str) -> Configuration | None:
        """See `CertificateStore`."""
        return await read_configuration(self.client, plural, name)

    async def write_bundle(self, read: Configuration, bundle: bytes) -> bool:
        """See `CertificateStore`."""
        return await write_bundle(self.client, read, bundle, self.locations.owner) is not None


@dataclass(slots=True)
class Configurations:
    """The webhook configurations as a round read them."""

    found: list[Configuration] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def authorities(self, owner: Owner) -> tuple[x509.Certificate, ...]:
        """The CAs in the bundles of our entries."""
        bundles = [bundle for one in self.found for bundle in one.bundles(owner)]
        return unique(one for bundle in bundles for one in read_certificates(bundle))


async def read_configurations(store: CertificateStore) -> Configurations:
    """Read all webhook configurations; a refusal is a problem, and the others are read."""
    read = Configurations()
    for plural in PLURALS:
        for name in store.locations.configurations:
            try:
                found = await store.read_configuration(plural, name)
            except BadStatus as error:
                read.problems.append(str(error))
                continue
            if found is None:
                read.missing.append(f"{plural}/{name}")
            else:
                read.found.append(found)
    return read
