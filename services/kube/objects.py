"""Secrets and webhook configurations: read by name, written with the version that was read.

An object is written back whole, with unknown fields, under its `resourceVersion`: the API server
answers 409 if it has changed (optimistic concurrency). This needs the verbs `get` and `update`. A
Secret that was deleted is created again by server-side apply: unlike a POST it names its object, so
a Role with `resourceNames` can allow `patch` and `create` for exactly that one. A
GET without a version is a consistent read, so its result is never older than the request.

In a webhook configuration only the `caBundle` of accelbind's own entries is replaced. Entries of
other Services or URLs, and configurations that cert-manager maintains, are left unchanged.
"""

import base64
import binascii
import copy
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from services.kube.client import CONFLICT, NOT_FOUND, BadStatus, ClusterClient, segment
from services.process.errors import ClusterError
from services.process.text import plain

MANAGER: Final = "accelbind-certs"
"""The name of the writer in `managedFields`."""

LABELS: Final = {"app.kubernetes.io/part-of": "accelbind"}
"""Labels of a Secret that we create, as in the manifests."""

GROUP: Final = "/apis/admissionregistration.k8s.io/v1"
PLURALS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")

INJECTED: Final = ("cert-manager.io/inject-ca-from", "cert-manager.io/inject-ca-from-secret")
"""Annotations that make cert-manager's cainjector maintain the bundle."""

SUFFIX: Final = ".accelbind.dev"
"""The suffix of the names of accelbind's entries in the manifests."""


class Conflict(ClusterError):
    """The object has changed since it was read."""


@dataclass(frozen=True, slots=True)
class NamedObject:
    """An object that was read."""

    path: str
    """Such as `/api/v1/namespaces/a/secrets/b`."""
    item: dict[str, Any]
    """The whole object; not to be changed."""
    date: str
    """The API server's time, as in HTTP's `Date`; empty without one."""

    def copy(self) -> dict[str, Any]:
        """Return a copy of the object to change and write."""
        return copy.deepcopy(self.item)


async def read_object(client: ClusterClient, path: str) -> NamedObject | None:
    """Read the object at a path; None if it doesn't exist.

    Raises:
        ClusterError: It can't be read.
    """
    answer = await client.request("GET", path)
    if answer.status == NOT_FOUND:
        return None
    client.expect(answer, f"GET {path}")
    return NamedObject(path, _decode_object(answer.body, path), answer.date)


async def replace_object(
    client: ClusterClient, read: NamedObject, item: dict[str, Any]
) -> NamedObject:
    """Write an object that was read and changed; `item` comes from `read.copy()`.

    Raises:
        Conflict: It has changed since it was read.
        ClusterError: It can't be written.
    """
    path = read.path
    answer = await client.request("PUT", path, params={"fieldManager": MANAGER}, body=item)
    try:
        client.expect(answer, f"PUT {path}")
    except BadStatus as error:
        if error.status == CONFLICT:
            raise Conflict(str(error)) from error
        raise
    return NamedObject(path, _decode_object(answer.body, path), answer.date)


def _decode_object(body: bytes, path: str) -> dict[str, Any]:
    try:
        item = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ClusterError(f"{path} can't be read: {plain(str(error), 200)}") from error
    metadata = item.get("metadata") if isinstance(item, dict) else None
    if not isinstance(metadata, dict) or not metadata.get("resourceVersion"):
        raise ClusterError(f"{path} can't be read: it has no metadata.resourceVersion")
    found: dict[str, Any] = item
    return found


@dataclass(frozen=True, slots=True)
class Secret:
    """A Secret that was read."""

    object: NamedObject
    data: Mapping[str, bytes]
    """A value that isn't base64 is empty."""


async def read_secret(client: ClusterClient, namespace: str, name: str) -> Secret:
    """Read a Secret.

    Raises:
        ClusterError: It doesn't exist, or can't be read.
    """
    found = await read_object(client, secret_path(namespace, name))
    if found is None:
        raise ClusterError(
            f"Secret {namespace}/{name} does not exist: `accelbind certs run` creates it, and so"
            " does applying the manifests"
        )
    return _secret(found)


async def ensure_secret(client: ClusterClient, namespace: str, name: str) -> Secret:
    """Read a Secret; create it, empty, where it does not exist.

    Raises:
        ClusterError: It can't be read or created.
    """
    path = secret_path(namespace, name)
    if (found := await read_object(client, path)) is not None:
        return _secret(found)
    answer = await client.request(
        "PATCH",
        path,
        params={"fieldManager": MANAGER},
        body={
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace, "labels": LABELS},
            "type": "Opaque",
        },
        content_type="application/apply-patch+yaml",
    )
    try:
        client.expect(answer, f"PATCH {path}")
    except BadStatus as error:
        raise ClusterError(
            f"Secret {namespace}/{name} does not exist and cannot be created: {error}; apply the"
            " manifests, which contain it and the right to create it"
        ) from error
    return _secret(NamedObject(path, _decode_object(answer.body, path), answer.date))


async def write_secret(
    client: ClusterClient, read: Secret, data: Mapping[str, bytes], *, ours: Collection[str]
) -> Secret:
    """Write keys of a Secret; of the keys `ours`, those that `data` lacks are removed.

    Raises:
        Conflict: It has changed since it was read.
        ClusterError: It can't be written.
    """
    item = read.object.copy()
    others = {key: value for key, value in (item.get("data") or {}).items() if key not in ours}
    item["data"] = others | {key: base64.b64encode(value).decode() for key, value in data.items()}
    return _secret(await replace_object(client, read.object, item))


def secret_path(namespace: str, name: str) -> str:
    """Return the path of a Secret."""
    return f"/api/v1/namespaces/{segment(namespace)}/secrets/{segment(name)}"


def _secret(found: NamedObject) -> Secret:
    data = found.item.get("data") or {}
    return Secret(found, {str(key): _decode_base64(value) for key, value in data.items()})


@dataclass(frozen=True, slots=True)
class Owner:
    """Identifies accelbind's entries in webhook configurations."""

    namespace: str
    """Of the Service that they call."""
    service: str
    hosts: frozenset[str] = frozenset()
    """Names in the serving certificate, for entries that call a URL instead."""

    def owns(self, entry: dict[str, Any]) -> bool:
        """Whether an entry is accelbind's."""
        config = entry.get("clientConfig") or {}
        if service := config.get("service"):
            return (service.get("namespace"), service.get("name")) == (self.namespace, self.service)
        return str(entry.get("name", "")).endswith(SUFFIX) or _host(config) in self.hosts


@dataclass(frozen=True, slots=True)
class Configuration:
    """A webhook configuration that was read."""

    object: NamedObject
    name: str
    """With its kind: `mutatingwebhookconfigurations/accelbind`."""

    def bundles(self, owner: Owner) -> list[bytes]:
        """Return the bundles of the owner's entries; empty bytes for an entry without one."""
        return [
            _decode_base64((entry.get("clientConfig") or {}).get("caBundle") or "")
            for entry in _entries(self.object.item)
            if owner.owns(entry)
        ]


async def read_configuration(client: ClusterClient, plural: str, name: str) -> Configuration | None:
    """Read a configuration; None if it doesn't exist.

    Raises:
        ClusterError: It can't be read.
    """
    found = await read_object(client, configuration_path(plural, name))
    return None if found is None else Configuration(found, f"{plural}/{name}")


async def write_bundle(
    client: ClusterClient, read: Configuration, bundle: bytes, owner: Owner
) -> Configuration | None:
    """Write a bundle into the owner's entries; None if all of them have it already.

    Raises:
        Conflict: The configuration has changed since it was read.
        ClusterError: It can't be written, or cert-manager writes it.
    """
    if all(present == bundle for present in read.bundles(owner)):
        return None
    annotations = read.object.item["metadata"].get("annotations") or {}
    for annotation in INJECTED:
        if annotation in annotations:
            raise ClusterError(
                f"{read.name} has the annotation {annotation}, so cert-manager maintains its"
                " bundle: remove the annotation, or don't run `accelbind certs run` beside it"
            )
    item = read.object.copy()
    for entry in _entries(item):
        if owner.owns(entry):
            config = entry.setdefault("clientConfig", {})
            config["caBundle"] = base64.b64encode(bundle).decode()
    return Configuration(await replace_object(client, read.object, item), read.name)


def configuration_path(plural: str, name: str) -> str:
    """Return the path of a webhook configuration."""
    return f"{GROUP}/{plural}/{segment(name)}"


def _entries(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (entry for entry in item.get("webhooks") or [] if isinstance(entry, dict))


def _host(config: dict[str, Any]) -> str:
    try:
        return urlsplit(str(config.get("url", ""))).hostname or ""
    except ValueError:
        return ""


def _decode_base64(value: object) -> bytes:
    try:
        return base64.b64decode(str(value), validate=True)
    except (binascii.Error, ValueError):
        return b""
