"""Secrets by name: their data as bytes, written under the version that was read."""

import base64
import binascii
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from services.kube.client import ClusterClient, segment
from services.kube.named_object import NamedObject, read_object, replace_object
from services.process.errors import ClusterError


@dataclass(frozen=True, slots=True)
class Secret:
    """A Secret as it was read.

    Attributes:
        object: All of it.
        data: What it holds; a value that is no base64 counts as empty.
    """

    object: NamedObject
    data: Mapping[str, bytes]


def secret_path(namespace: str, name: str) -> str:
    """Where a Secret is."""
    return f"/api/v1/namespaces/{segment(namespace)}/secrets/{segment(name)}"


async def read_secret(client: ClusterClient, namespace: str, name: str) -> Secret:
    """A Secret.

    Raises:
        ClusterError: It isn't there, or can't be had.
    """
    found = await read_object(client, secret_path(namespace, name))
    if found is None:
        raise ClusterError(
            f"there is no Secret {namespace}/{name}: apply the manifests, which make it empty"
            " (we may not create Secrets)"
        )
    return _secret(found)


async def write_secret(
    client: ClusterClient, read: Secret, data: Mapping[str, bytes], *, ours: Collection[str]
) -> Secret:
    """Writes keys of a Secret, and leaves others as they are.

    Args:
        client: Whom to ask.
        read: As it was read.
        data: What it shall hold.
        ours: The keys that are ours; those of them that `data` lacks are taken out.

    Raises:
        Conflict: It has been changed since it was read.
        ClusterError: It can't be written.
    """
    item = read.object.copy()
    held = item.get("data") or {}
    kept = {key: value for key, value in held.items() if key not in ours}
    item["data"] = kept | {key: base64.b64encode(value).decode() for key, value in data.items()}
    return _secret(await replace_object(client, read.object, item))


def _secret(found: NamedObject) -> Secret:
    held = found.item.get("data") or {}
    return Secret(found, {str(key): _decoded(value) for key, value in held.items()})


def _decoded(value: object) -> bytes:
    try:
        return base64.b64decode(str(value), validate=True)
    except (binascii.Error, ValueError):
        return b""
