"""The Secrets and webhook configurations of a cluster, as one round reads and writes them."""

import base64
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from certs.settings import CertsSettings
from certs.state import Stored
from services.kube.client import ClusterClient, segment
from services.kube.objects import (
    BUNDLE_WRITERS,
    GROUP,
    PLURALS,
    NamedObject,
    Secret,
    decode_base64,
    ensure_secret,
    read_object,
    read_secret,
    replace_object,
)
from services.process.errors import ClusterError

SUFFIX: Final = ".accelbind.dev"
"""The suffix of the names of accelbind's entries in the manifests."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The objects that a round has read; each write succeeds only on the version that was read."""

    at: CertsSettings
    authority: Secret
    serving: Secret
    configurations: dict[str, NamedObject | None]
    """By name with their kind: `mutatingwebhookconfigurations/accelbind`."""

    @property
    def certificates(self) -> Stored:
        """The certificates in these objects."""
        at = self.at
        bundles = [
            (f"{name}[{number}]", decode_base64(config.get("caBundle") or ""))
            for name, stored in self.configurations.items()
            if stored
            for number, config in enumerate(_configs(at, stored.item))
        ]
        place = f"Secret {at.namespace}/{at.ca_secret}"
        return Stored(self.authority.data, self.serving.data, bundles, place)

    async def write_bundle(self, client: ClusterClient, name: str, bundle: bytes) -> bool:
        """Set the bundle in our entries of a configuration; False if they have it already.

        Raises:
            Conflict: The configuration has changed since it was read.
            ClusterError: It doesn't exist, can't be written, or has another writer.
        """
        stored, text = self.configurations[name], base64.b64encode(bundle).decode()
        if stored is None:
            raise ClusterError("it does not exist")
        item = copy.deepcopy(stored.item)
        for config in _configs(self.at, item):
            config["caBundle"] = text
        if item == stored.item:
            return False
        annotations = item["metadata"].get("annotations") or {}
        for annotation in BUNDLE_WRITERS.keys() & annotations.keys():
            # Both would write their bundles for ever, and API servers see either.
            raise ClusterError(
                f"it has the annotation {annotation}, so {BUNDLE_WRITERS[annotation]} maintains its"
                " bundle: remove the annotation, or don't run `accelbind certs run` beside it"
            )
        await replace_object(client, stored, item)
        return True


async def read_snapshot(client: ClusterClient, at: CertsSettings, *, create: bool) -> Snapshot:
    """Read both Secrets and all webhook configurations; may `create` the Secrets, empty."""
    # In the reverse order of writing, so that a delayed replica undoes nothing. If the Secret of
    # the CA has changed since, either the object that is written next has changed too, and the
    # write fails; or the write is right: the old bundle trusts everything that is served until the
    # new one has been read back from the configurations.
    names = [f"{plural}/{segment(one)}" for plural in PLURALS for one in at.webhook_config]
    configurations = {name: await read_object(client, f"{GROUP}/{name}") for name in names}
    get_secret = ensure_secret if create else read_secret
    serving = await get_secret(client, at.namespace, at.tls_secret)
    authority = await get_secret(client, at.namespace, at.ca_secret)
    return Snapshot(at, authority, serving, configurations)


def _configs(at: CertsSettings, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The `clientConfig` of our entries of a webhook configuration."""
    for entry in item.get("webhooks") or []:
        config = entry.get("clientConfig") or {}
        if service := config.get("service"):
            ours = (service.get("namespace"), service.get("name")) == (at.namespace, at.service)
        else:  # one with a URL: the webhook runs outside of the cluster
            ours = str(entry.get("name", "")).endswith(SUFFIX)
        if ours:
            yield config
