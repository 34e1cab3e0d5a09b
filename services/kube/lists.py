"""Reads all objects of a list once, page by page. `services.kube.reflector` follows changes too."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from services.kube.client import GONE, BadStatus, ClusterClient, TooLong
from services.process.errors import ClusterError
from services.process.text import plain

T = TypeVar("T")

_ATTEMPTS: Final = 5
"""Starts of a list: it may expire while it is read, or its pages may be too long."""
_PAGE: Final = 200


async def list_objects(
    client: ClusterClient, path: str, read: Callable[[dict[str, Any]], T | None]
) -> list[T]:
    """What a function returns for each object of a list, without None: clusters may be large."""
    limit, attempts = _PAGE, _ATTEMPTS
    while True:
        attempts -= 1
        try:
            return [
                found
                async for page in client.pages(path, limit=limit)
                for obj in decode(page, path, _Page).items or ()
                if (found := read(obj)) is not None
            ]
        except TooLong:
            limit = max(1, limit // 8)
            if not attempts:
                raise
        except BadStatus as error:
            if error.status != GONE or not attempts:
                raise


class _Page(msgspec.Struct):
    items: list[dict[str, Any]] | None


def decode(body: bytes, path: str, kind: type[T]) -> T:
    """The answer to a GET as a value of a type."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ClusterError(
            f"the answer to GET {path} can't be read: {plain(str(error), 200)}"
        ) from error
