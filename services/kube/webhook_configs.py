"""The CA bundles in webhook configurations: of one configuration by name, and nothing else of it.

A configuration is read, its `caBundle`s are replaced where they differ, and all of it is written
back under the version that was read, which takes the verbs `get` and `update`. Left alone are
entries of other Services and of other people's URLs, and configurations that cert-manager looks
after.
"""

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from services.kube.client import ClusterClient, segment
from services.kube.named_object import NamedObject, read_object, replace_object
from services.process.errors import ClusterError

GROUP: Final = "/apis/admissionregistration.k8s.io/v1"
PLURALS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")

INJECTED: Final = ("cert-manager.io/inject-ca-from", "cert-manager.io/inject-ca-from-secret")
"""Annotations with which cert-manager's cainjector puts bundles in, again and again."""


SUFFIX: Final = ".accelbind.dev"
"""What the names of our entries end in, in the manifests."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Which entries are ours.

    Attributes:
        namespace: Of the Service that they call.
        service: The name of that Service.
        hosts: Names that our serving certificate has, for entries that call a URL instead.
    """

    namespace: str
    service: str
    hosts: frozenset[str] = frozenset()

    def owns(self, entry: dict[str, Any]) -> bool:
        """Whether an entry's `caBundle` is ours to set."""
        config = entry.get("clientConfig") or {}
        if service := config.get("service"):
            return (service.get("namespace"), service.get("name")) == (self.namespace, self.service)
        return str(entry.get("name", "")).endswith(SUFFIX) or _host(config) in self.hosts


@dataclass(frozen=True, slots=True)
class Configuration:
    """A webhook configuration as it was read.

    Attributes:
        object: All of it.
        name: `mutatingwebhookconfigurations/accelbind`.
    """

    object: NamedObject
    name: str

    def bundles(self, owner: Owner) -> list[bytes]:
        """The bundles of the entries that are ours; empty bytes where there is none."""
        return [_bundle(entry) for entry in _entries(self.object.item) if owner.owns(entry)]


def configuration_path(plural: str, name: str) -> str:
    """Where a configuration is."""
    return f"{GROUP}/{plural}/{segment(name)}"


async def read_configuration(client: ClusterClient, plural: str, name: str) -> Configuration | None:
    """A configuration, None where there is none.

    Raises:
        ClusterError: It can't be had.
    """
    found = await read_object(client, configuration_path(plural, name))
    return None if found is None else Configuration(found, f"{plural}/{name}")


async def put_bundle(
    client: ClusterClient, read: Configuration, bundle: bytes, owner: Owner
) -> Configuration | None:
    """Puts a bundle into the entries that are ours, where it isn't there already.

    Returns:
        The configuration as it is then; None where it held the bundle before.

    Raises:
        Conflict: It has been changed since it was read.
        ClusterError: It can't be written, or cert-manager writes it.
    """
    if all(held == bundle for held in read.bundles(owner)):
        return None
    notes = read.object.item["metadata"].get("annotations") or {}
    for annotation in INJECTED:
        if annotation in notes:
            raise ClusterError(
                f"{read.name} has the annotation {annotation}, so cert-manager puts its bundle in:"
                " take the annotation out, or don't run `accelbind certs run` beside cert-manager"
            )
    item = read.object.copy()
    for entry in _entries(item):
        if owner.owns(entry):
            config = entry.setdefault("clientConfig", {})
            config["caBundle"] = base64.b64encode(bundle).decode()
    return Configuration(await replace_object(client, read.object, item), read.name)


def _host(config: dict[str, Any]) -> str:
    try:
        return urlsplit(str(config.get("url", ""))).hostname or ""
    except ValueError:
        return ""


def _entries(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for entry in item.get("webhooks") or []:
        if isinstance(entry, dict):
            yield entry


def _bundle(entry: dict[str, Any]) -> bytes:
    text = (entry.get("clientConfig") or {}).get("caBundle") or ""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
