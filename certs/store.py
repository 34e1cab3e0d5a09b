"""Where the certificates of a cluster are: two Secrets, and webhook configurations.

In a webhook configuration only the `caBundle` of accelbind's own entries is replaced.
"""

import base64
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from certs.certificates import Certificate, read_certificates, unique
from services.kube.client import BadStatus, ClusterClient, segment
from services.kube.objects import (
    BUNDLE_WRITERS,
    GROUP,
    PLURALS,
    NamedObject,
    decode_base64,
    read_object,
    replace_object,
)
from services.process.errors import ClusterError

SUFFIX: Final = ".accelbind.dev"
"""The suffix of the names of accelbind's entries in the manifests."""


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

    def owns(self, entry: dict[str, Any]) -> bool:
        """Whether an entry of a webhook configuration is accelbind's."""
        if service := (entry.get("clientConfig") or {}).get("service"):
            return (service.get("namespace"), service.get("name")) == (self.namespace, self.service)
        # One with a URL: the webhook runs outside of the cluster.
        return str(entry.get("name", "")).endswith(SUFFIX)


@dataclass(frozen=True, slots=True)
class Configuration:
    """A webhook configuration that was read."""

    object: NamedObject
    name: str
    """With its kind: `mutatingwebhookconfigurations/accelbind`."""

    def bundles(self, at: CertificateLocations) -> list[bytes]:
        """The bundles of our entries; empty bytes for an entry without one."""
        configs = _configs(self.object.item, at)
        return [decode_base64(config.get("caBundle") or "") for config in configs]


@dataclass(slots=True)
class Configurations:
    """The webhook configurations as a round read them."""

    present: list[Configuration] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def authorities(self, at: CertificateLocations) -> tuple[Certificate, ...]:
        """The CAs in the bundles of our entries."""
        bundles = [bundle for one in self.present for bundle in one.bundles(at)]
        return unique(one for bundle in bundles for one in read_certificates(bundle))


async def read_configurations(client: ClusterClient, at: CertificateLocations) -> Configurations:
    """Read all webhook configurations, and note problems with them."""
    read = Configurations()
    for name in (f"{plural}/{segment(one)}" for plural in PLURALS for one in at.configurations):
        try:
            stored = await read_object(client, f"{GROUP}/{name}")
        except BadStatus as error:  # a right that is missing must not keep the others from theirs
            read.problems.append(str(error))
            continue
        if stored is None:
            read.missing.append(name)
        else:
            read.present.append(Configuration(stored, name))
    return read


async def write_bundle(
    client: ClusterClient, read: Configuration, bundle: bytes, at: CertificateLocations
) -> bool:
    """Set the bundle of our entries; return False, and write nothing, if they have it already.

    Raises:
        Conflict: The configuration has changed since it was read.
        ClusterError: It can't be written, or has another writer.
    """
    if all(present == bundle for present in read.bundles(at)):
        return False
    item = copy.deepcopy(read.object.item)
    annotations = item["metadata"].get("annotations") or {}
    for annotation, writer in BUNDLE_WRITERS.items():
        if annotation in annotations:
            # Both would write their bundles for ever, and API servers see either.
            raise ClusterError(
                f"{read.name} has the annotation {annotation}, so {writer} maintains its"
                " bundle: remove the annotation, or don't run `accelbind certs run` beside it"
            )
    for config in _configs(item, at):
        config["caBundle"] = base64.b64encode(bundle).decode()
    await replace_object(client, read.object, item)
    return True


def _configs(item: dict[str, Any], at: CertificateLocations) -> Iterator[dict[str, Any]]:
    for entry in item.get("webhooks") or []:
        if isinstance(entry, dict) and at.owns(entry):
            yield entry.get("clientConfig") or {}
