"""What a folder or a cluster holds of certificates, as it is: for whoever shows or checks it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from cryptography import x509

from certs import serving, trust
from certs.authority import name_text
from certs.keeper import Places
from certs.reading import certificates_in, names_of, unique
from services.kube.client import ClusterClient
from services.kube.connection import connector
from services.kube.objects import PLURALS, Configuration, read_configuration, read_secret
from services.process.errors import CertificateError

LARGEST_FILE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Contents:
    """What there is.

    Attributes:
        authority: Keys and values of the CA's Secret, or files of that name.
        serving: The same of the serving pair.
        authority_at: Where the first are, for people.
        serving_at: Where the second are.
        bundles: Bundles in webhook configurations, by their names and those of their entries.
        missing: Webhook configurations that aren't there.
    """

    authority: Mapping[str, bytes]
    serving: Mapping[str, bytes]
    authority_at: str
    serving_at: str
    bundles: Mapping[str, bytes] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    @property
    def authorities(self) -> tuple[x509.Certificate, ...]:
        """The CAs that are to be trusted, the one that signs first."""
        held = self.authority
        texts = (held.get(trust.CERTIFICATE, b""), held.get(trust.OLD, b""))
        return unique(one for text in texts for one in certificates_in(text).all)

    @property
    def chain(self) -> tuple[x509.Certificate, ...]:
        """The serving certificate and what stands between it and its CA."""
        return serving.chain_of(self.serving)

    def served_by(self, places: Places) -> Places:
        """The same places, called by all names that the serving certificate has."""
        held = map(name_text, names_of(self.chain[0])) if self.chain else ()
        return replace(places, hosts=places.hosts.union(held))


def from_folder(directory: Path) -> Contents:
    """What a folder of `certs issue`, or a mounted Secret, holds.

    Raises:
        CertificateError: It can't be read.
    """
    if not directory.is_dir():
        raise CertificateError(f"{directory} is no folder")
    held = {name: _read(directory / name) for name in (*sorted(trust.KEYS), "tls.crt", "tls.key")}
    whole = {name: content for name, content in held.items() if content is not None}
    authority = {name: whole[name] for name in trust.KEYS & whole.keys()}
    pair = {name: whole[name] for name in serving.KEYS & whole.keys()}
    return Contents(authority, pair, str(directory), str(directory))


@asynccontextmanager
async def cluster_client(kubeconfig: Path | None) -> AsyncIterator[ClusterClient]:
    """A client for one command.

    Raises:
        ClusterError: Nothing says how to reach an API server, or what does can't be used.
    """
    async with connector(kubeconfig)() as client:
        yield client


async def from_cluster(client: ClusterClient, places: Places) -> Contents:
    """What a cluster's Secrets and webhook configurations hold.

    Raises:
        ClusterError: They can't be had.
    """
    found: list[Configuration] = []
    missing: list[str] = []
    for plural in PLURALS:
        for name in places.configurations:
            configuration = await read_configuration(client, plural, name)
            if configuration is None:
                missing.append(f"{plural}/{name}")
            else:
                found.append(configuration)
    pair = await read_secret(client, places.namespace, places.serving)
    authority = await read_secret(client, places.namespace, places.authority)
    contents = Contents(
        authority.data,
        pair.data,
        f"Secret {places.namespace}/{places.authority}",
        f"Secret {places.namespace}/{places.serving}",
        missing=tuple(missing),
    )
    owner = contents.served_by(places).owner
    bundles = {
        f"{one.name}[{number}]": bundle
        for one in found
        for number, bundle in enumerate(one.bundles(owner))
    }
    return replace(contents, bundles=bundles)


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CertificateError(f"{path} can't be read: {error.strerror}") from error
    if len(content) > LARGEST_FILE:
        raise CertificateError(f"{path} is larger than any certificate or key")
    return content
