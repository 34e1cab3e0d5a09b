"""Secrets and other objects: read by name, written and deleted as the version that was read.

An object is written back whole, with unknown fields and its `resourceVersion`: the API server
answers 409 if it has changed (optimistic concurrency).
"""

import base64
import binascii
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from services.kube.client import (
    MAX_OBJECT,
    NOT_FOUND,
    BadStatus,
    ClusterClient,
    TooLong,
    segment,
)
from services.process.errors import ClusterError
from services.process.json import UNREADABLE
from services.process.text import plain

MANAGER: Final = "accelbind-certs"
"""The name of the writer in `managedFields`, if no other is given."""

# As in the manifests.
LABELS: Final = {"app.kubernetes.io/part-of": "accelbind"}

GROUP: Final = "/apis/admissionregistration.k8s.io/v1"
PLURALS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")

BUNDLE_WRITERS: Final = {
    "cert-manager.io/inject-ca-from": "cert-manager",
    "cert-manager.io/inject-ca-from-secret": "cert-manager",
    "accelbind.dev/ca-bundle": "the Helm chart",
}
"""Annotations that name the writer of `caBundle`: accelbind's own process then leaves it alone."""


@dataclass(frozen=True, slots=True)
class NamedObject:
    """An object that was read."""

    path: str
    """Such as `/api/v1/namespaces/a/secrets/b`."""
    item: dict[str, Any]
    """The whole object; not to be changed."""


async def read_object(client: ClusterClient, path: str) -> NamedObject | None:
    """The object at a path; None if it doesn't exist."""
    # Without a version it is a consistent read: never older than the request.
    answer = await client.request("GET", path)
    if answer.status == NOT_FOUND:
        return None
    client.expect(answer, f"GET {path}")
    return NamedObject(path, _decode_object(answer.body, path))


async def create_object(
    client: ClusterClient, collection: str, item: dict[str, Any], *, manager: str = MANAGER
) -> NamedObject:
    """Create `item` in a collection such as `/api/v1/namespaces/a/secrets`.

    Raises:
        Conflict: There is one of this name.
    """
    answer = await client.request("POST", collection, params={"fieldManager": manager}, body=item)
    client.expect(answer, f"POST {collection}")
    path = f"{collection}/{segment(item['metadata']['name'])}"
    return NamedObject(path, _decode_object(answer.body, path))


async def try_create(
    client: ClusterClient, collection: str, item: dict[str, Any], *, manager: str = MANAGER
) -> dict[str, Any]:
    """The object that the API server would store for `item`; nothing is stored."""
    params = {"fieldManager": manager, "dryRun": "All"}
    answer = await client.request("POST", collection, params=params, body=item)
    client.expect(answer, f"POST {collection}")
    return _decode_item(answer.body, collection)


async def replace_object(
    client: ClusterClient, read: NamedObject, item: dict[str, Any], *, manager: str = MANAGER
) -> NamedObject:
    """Write `item`, which is a changed copy of an object that was read.

    Raises:
        Conflict: The object has changed since.
    """
    path = read.path
    answer = await client.request("PUT", path, params={"fieldManager": manager}, body=item)
    client.expect(answer, f"PUT {path}")
    return NamedObject(path, _decode_object(answer.body, path))


async def delete_object(client: ClusterClient, read: NamedObject) -> None:
    """Delete an object as it was read; one that is gone is as good.

    Raises:
        Conflict: The object has changed since.
    """
    metadata = read.item["metadata"]
    versions = {key: metadata[key] for key in ("uid", "resourceVersion") if metadata.get(key)}
    answer = await client.request("DELETE", read.path, body={"preconditions": versions})
    if answer.status != NOT_FOUND:
        client.expect(answer, f"DELETE {read.path}")


def _decode_object(body: bytes, path: str) -> dict[str, Any]:
    if len(body) > MAX_OBJECT:  # decoded, it could take twenty times as much
        raise TooLong(f"{path} can't be read: it has more than {MAX_OBJECT} bytes")
    item = _decode_item(body, path)
    metadata = item.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("resourceVersion"):
        raise ClusterError(f"{path} can't be read: it has no metadata.resourceVersion")
    return item


def _decode_item(body: bytes, path: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except UNREADABLE as error:
        raise ClusterError(f"{path} can't be read: {plain(str(error), 200)}") from error


@dataclass(frozen=True, slots=True)
class Secret:
    """A Secret that was read."""

    object: NamedObject
    data: Mapping[str, bytes]
    """A value that isn't base64 is empty."""


async def read_secret(client: ClusterClient, namespace: str, name: str) -> Secret:
    """Read a Secret; it is an error if it doesn't exist."""
    stored = await read_object(client, secret_path(namespace, name))
    if stored is None:
        raise ClusterError(
            f"Secret {namespace}/{name} does not exist: `accelbind certs run` creates it"
        )
    return _secret(stored)


async def ensure_secret(client: ClusterClient, namespace: str, name: str) -> Secret:
    """Read a Secret; create it, empty, if it doesn't exist."""
    path = secret_path(namespace, name)
    if (stored := await read_object(client, path)) is not None:
        return _secret(stored)
    # Server-side apply names its object, unlike a POST, so a Role with `resourceNames` can allow
    # `patch` and `create` for exactly this one.
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
            " manifests, which contain the right to create it"
        ) from error
    return _secret(NamedObject(path, _decode_object(answer.body, path)))


async def write_secret(
    client: ClusterClient, read: Secret, data: Mapping[str, bytes], *, ours: Collection[str]
) -> Secret:
    """Write keys of a Secret; of the keys `ours`, those that `data` lacks are removed.

    Raises:
        Conflict: It has changed since it was read.
    """
    item = read.object.item
    others = {key: value for key, value in (item.get("data") or {}).items() if key not in ours}
    values = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return _secret(await replace_object(client, read.object, item | {"data": others | values}))


def secret_path(namespace: str, name: str) -> str:
    """The path of a Secret."""
    return f"/api/v1/namespaces/{segment(namespace)}/secrets/{segment(name)}"


def _secret(stored: NamedObject) -> Secret:
    data = stored.item.get("data") or {}
    return Secret(stored, {str(key): decode_base64(value) for key, value in data.items()})


def decode_base64(value: object) -> bytes:
    """The bytes of a base64 text; empty if it is none."""
    try:
        return base64.b64decode(str(value), validate=True)
    except (binascii.Error, ValueError):
        return b""
