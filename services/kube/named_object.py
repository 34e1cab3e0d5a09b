"""One object by its name: read as it is, and written back only if nobody else has changed it.

What is read goes back whole, with what we know nothing of, under the `resourceVersion` that it came
with: the API server answers 409 where somebody was faster (optimistic concurrency). A plain GET
without a version is what etcd agrees on, so what is read is never older than the question.
"""

import copy
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from services.kube.client import CONFLICT, NOT_FOUND, BadStatus, ClusterClient
from services.process.errors import ClusterError
from services.process.text import plain

MANAGER: Final = "accelbind-certs"
"""Who has written a field, in `managedFields`."""


class Conflict(ClusterError):
    """Somebody else was faster: what was read doesn't count any more."""


@dataclass(frozen=True, slots=True)
class NamedObject:
    """An object as it was read.

    Attributes:
        path: Where it is, such as `/api/v1/namespaces/a/secrets/b`.
        item: All of it; leave it as it is.
        date: What the API server's clock said, as in HTTP's `Date`; empty if it said nothing.
    """

    path: str
    item: dict[str, Any]
    date: str

    def copy(self) -> dict[str, Any]:
        """A copy of the object to change and write."""
        return copy.deepcopy(self.item)


async def read_object(client: ClusterClient, path: str) -> NamedObject | None:
    """The object at a path, None where there is none.

    Raises:
        ClusterError: It can't be had, or is no object.
    """
    answer = await client.request("GET", path)
    if answer.status == NOT_FOUND:
        return None
    client.expect(answer, f"GET {path}")
    return NamedObject(path, _object(answer.body, path), answer.date)


async def replace_object(
    client: ClusterClient, read: NamedObject, item: dict[str, Any]
) -> NamedObject:
    """Writes an object that has been read and changed.

    Args:
        client: Whom to ask.
        read: As it was read.
        item: As it shall be, from `read.copy()`.

    Raises:
        Conflict: It has been changed since it was read.
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
    return NamedObject(path, _object(answer.body, path), answer.date)


def _object(body: bytes, path: str) -> dict[str, Any]:
    try:
        item = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ClusterError(f"{path} can't be read: {plain(str(error), 200)}") from error
    metadata = item.get("metadata") if isinstance(item, dict) else None
    if not isinstance(metadata, dict) or not metadata.get("resourceVersion"):
        raise ClusterError(f"{path} can't be read: it has no metadata.resourceVersion")
    found: dict[str, Any] = item
    return found
