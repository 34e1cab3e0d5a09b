"""Lists of objects, read page by page: all pages show one moment."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final, TypeVar

import msgspec

from services.kube.client import (
    MAX_OBJECT,
    NOT_FOUND,
    BadStatus,
    ClusterClient,
    TooLong,
    Unreadable,
)
from services.process.errors import ClusterError
from services.process.json import UNREADABLE
from services.process.text import plain

T = TypeVar("T")

PAGE: Final = 500  # objects, as client-go requests them
_MAX_PAGE: Final = 2 * PAGE
"""Objects of a page. An API server keeps to the limit, except in `cached` lists: they are short."""

MAX_LIST: Final = 64 * 1024 * 1024
"""Bytes of all pages of a list, each page and object counting `OBJECT_BYTES` more."""
OBJECT_BYTES: Final = 1024
"""About what an object costs in memory, however small it is."""
MAX_SURVEY: Final = 1024 * 1024 * 1024
"""As `MAX_LIST`, for a command that lists all pods of a cluster and keeps little of each."""
LIST_SECONDS: Final = 120.0
"""From the first request of a list to the last."""


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    """The moment that the list shows."""
    continue_: str = msgspec.field(name="continue", default="")
    """The token of the next page; empty on the last one."""


class Page(msgspec.Struct):
    """A page of a list; its objects are not decoded."""

    metadata: _ListMeta
    items: list[msgspec.Raw]


# A struct, because its decoder stops at the first item too many. A list is decoded as a whole, even
# with a `max_length`: 14 MB of `0,` would take 550 MB.
_Items: Any = msgspec.defstruct(
    "_Items",
    [(f"item{n}", msgspec.Raw | msgspec.UnsetType, msgspec.UNSET) for n in range(_MAX_PAGE)],
    array_like=True,
    forbid_unknown_fields=True,
)
_PageOfItems: Any = msgspec.defstruct(
    "_PageOfItems", [("metadata", _ListMeta), ("items", _Items | None)]
)

# Made once: msgspec learns a type at its first use, and the doctor's checks, which run in threads,
# would do that at the same time.
_PAGE: Final = msgspec.json.Decoder(_PageOfItems)
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


async def _decode_page(body: bytes, path: str) -> Page:
    page = await decode(body, path, _PAGE)
    items = () if page.items is None else msgspec.structs.astuple(page.items)
    return Page(page.metadata, [item for item in items if item is not msgspec.UNSET])


async def read_pages(
    client: ClusterClient,
    path: str,
    selector: str = "",
    *,
    labels: str = "",
    most: int | None = None,
    cached: bool = False,
) -> AsyncGenerator[Page, None]:
    """Yield a list page by page, up to `most` bytes; `MAX_LIST` unless given.

    With a `selector`, it has only the objects whose fields it names (`spec.nodeName=node-1`), with
    `labels` those that have these (`app=webhook`). A `cached` one is what the API server remembers:
    it may be some seconds old, and costs the database nothing.

    Raises:
        BadStatus: The API server refuses; with 410, the list has expired meanwhile.
        TooLong: The list has more bytes.
        Unreadable: A page isn't one, or has many more objects than requested.
        ClusterError: The API server doesn't answer.
    """
    limit, token, left = PAGE, "", most or MAX_LIST
    deadline = time.monotonic() + LIST_SECONDS
    while True:
        params: dict[str, str | int] = {"limit": limit}
        if selector:
            params["fieldSelector"] = selector
        if labels:
            params["labelSelector"] = labels
        if token:
            params["continue"] = token
        elif cached:
            params["resourceVersion"] = "0"
        try:
            answer = await client.request("GET", path, params=params)
            body = client.expect(answer, f"GET {path}").body
            page = await _decode_page(body, path)
        except TooLong:
            if limit == 1:
                raise
            # The next pages are smaller, for a while.
            limit = max(1, limit // 8)
            continue
        left -= len(body) + OBJECT_BYTES * (1 + len(page.items))
        if left < 0:
            raise TooLong(f"the list GET {path} has too many bytes or objects")
        if time.monotonic() > deadline:
            raise ClusterError(f"the list GET {path} takes longer than {LIST_SECONDS:.0f} s")
        # A broken proxy or server must not keep us in the loop.
        if token and page.metadata.continue_ == token:
            raise Unreadable(f"the list GET {path} repeats a page")
        yield page
        limit = min(PAGE, limit * 2)
        token = page.metadata.continue_
        if not token:
            return


async def list_objects(
    client: ClusterClient,
    path: str,
    read: Callable[[dict[str, Any]], T | None],
    selector: str = "",
    *,
    labels: str = "",
    most: int | None = None,
    cached: bool = False,
) -> list[T]:
    """The results of `read` for each object of a list, without None; the rest as `read_pages`."""
    listing = read_pages(client, path, selector, labels=labels, most=most, cached=cached)
    async with aclosing(listing) as pages:
        return [
            converted
            async for page in pages
            for item in page.items
            if (converted := read(await decode_object(item, path))) is not None
        ]


async def survey_objects(
    client: ClusterClient,
    path: str,
    read: Callable[[dict[str, Any]], T | None],
    *,
    labels: str = "",
) -> list[T]:
    """The same of a whole cluster; nothing if it does not serve the kind."""
    try:
        return await list_objects(client, path, read, labels=labels, most=MAX_SURVEY)
    except BadStatus as error:
        if error.status != NOT_FOUND:
            raise
        return []


async def decode_object(body: bytes | msgspec.Raw, path: str) -> dict[str, Any]:
    """The object in the answer to a GET, or in a part of it."""
    await asyncio.sleep(0)  # a page may have many, and other tasks run in between
    if memoryview(body).nbytes > MAX_OBJECT:  # decoded, it could take twenty times as much
        raise Unreadable(f"an object in the answer to GET {path} is larger than {MAX_OBJECT} bytes")
    return await decode(body, path, _OBJECT)


async def decode(body: bytes | msgspec.Raw, path: str, decoder: "msgspec.json.Decoder[T]") -> T:
    """The answer to a GET, or a part of it, as a value of the decoder's type."""
    try:
        return await decode_pruned(decoder, body)
    except UNREADABLE as error:
        raise Unreadable(
            f"the answer to GET {path} can't be read: {plain(str(error), 200)}"
        ) from error


_MAX_DEPTH: Final = 100
_BREATH: Final = 1000
"""Brackets and strings after which other tasks run."""
_STRING_OR_BRACKET: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[{]|[\]}]')


async def decode_pruned(decoder: "msgspec.json.Decoder[T]", data: bytes | msgspec.Raw) -> T:
    """Decode JSON; a value nested deeper than the decoder follows is read as null.

    Raises:
        TooLong: Such a value is in more than `MAX_OBJECT` bytes: in a page, request fewer objects.
    """
    try:
        return decoder.decode(data)
    except RecursionError as error:
        if memoryview(data).nbytes > MAX_OBJECT:
            raise TooLong(f"deeply nested JSON of more than {MAX_OBJECT} bytes") from error
        # The API server stores `managedFields` with thousands of levels; one such object must not
        # make the list of all namespaces unreadable.
        return decoder.decode(await _prune(bytes(data)))


async def _prune(data: bytes) -> bytes:
    """JSON with null in place of everything below `_MAX_DEPTH` levels."""
    kept, depth, start = bytearray(), 0, 0
    for number, match in enumerate(_STRING_OR_BRACKET.finditer(data)):
        if number % _BREATH == 0:
            await asyncio.sleep(0)
        if match[0] in b"[{":
            depth += 1
            if depth == _MAX_DEPTH:
                kept += data[start : match.start()] + b"null"
        elif match[0] in b"]}":
            if depth == _MAX_DEPTH:
                start = match.end()
            depth -= 1
    return bytes(kept + data[start:])
