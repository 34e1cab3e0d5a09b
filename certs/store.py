"""The bundles of webhook configurations: only the `caBundle` of accelbind's own entries changes."""

import base64
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from certs.settings import CertsSettings
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


@dataclass(slots=True)
class Configurations:
    """The webhook configurations as a round read them."""

    at: CertsSettings
    present: dict[str, NamedObject] = field(default_factory=dict)
    """By name with their kind: `mutatingwebhookconfigurations/accelbind`."""
    missing: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def bundles(self) -> list[tuple[str, bytes]]:
        """The bundle of each of our entries, with its place; empty bytes if it has none."""
        return [
            (f"{name}[{number}]", decode_base64(config.get("caBundle") or ""))
            for name, stored in self.present.items()
            for number, config in enumerate(self._configs(stored.item))
        ]

    async def write(self, client: ClusterClient, name: str, bundle: bytes) -> bool:
        """Set the bundle of our entries of one that is present; False if they have it already.

        Raises:
            Conflict: The configuration has changed since it was read.
            ClusterError: It can't be written, or has another writer.
        """
        stored, text = self.present[name], base64.b64encode(bundle).decode()
        if all(config.get("caBundle") == text for config in self._configs(stored.item)):
            return False
        annotations = stored.item["metadata"].get("annotations") or {}
        for annotation, writer in BUNDLE_WRITERS.items():
            if annotation in annotations:
                # Both would write their bundles for ever, and API servers see either.
                raise ClusterError(
                    f"{name} has the annotation {annotation}, so {writer} maintains its bundle:"
                    " remove the annotation, or don't run `accelbind certs run` beside it"
                )
        item = copy.deepcopy(stored.item)
        for config in self._configs(item):
            config["caBundle"] = text
        await replace_object(client, stored, item)
        return True

    def _configs(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for entry in item.get("webhooks") or []:
            if isinstance(entry, dict) and self._owns(entry):
                yield entry.get("clientConfig") or {}

    def _owns(self, entry: dict[str, Any]) -> bool:
        if service := (entry.get("clientConfig") or {}).get("service"):
            called = service.get("namespace"), service.get("name")
            return called == (self.at.namespace, self.at.service)
        # One with a URL: the webhook runs outside of the cluster.
        return str(entry.get("name", "")).endswith(SUFFIX)


async def read_configurations(client: ClusterClient, at: CertsSettings) -> Configurations:
    """Read all webhook configurations, and note problems with them."""
    read = Configurations(at)
    for name in (f"{plural}/{segment(one)}" for plural in PLURALS for one in at.webhook_config):
        try:
            stored = await read_object(client, f"{GROUP}/{name}")
        except BadStatus as error:  # a right that is missing must not keep the others from theirs
            read.problems.append(str(error))
            continue
        if stored is None:
            read.missing.append(name)
        else:
            read.present[name] = stored
    return read
