"""Lists of objects, read page by page: all pages show one moment."""

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Final, TypeVar

import msgspec

from services.kube.client import ClusterClient, TooLong, Unreadable
from services.process.json import UNREADABLE
from services.process.text import plain

T = TypeVar("T")

PAGE: Final = 500  # objects, as client-go requests them


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    """The moment that the list shows."""
    continue_: str = msgspec.field(name="continue", default="")
    """The token of the next page; empty on the last one."""


class Page(msgspec.Struct):
    """A page of a list; its objects are not decoded."""

    metadata: _ListMeta
    items: list[msgspec.Raw] | None


async def read_pages(
    client: ClusterClient, path: str, selector: str = ""
) -> AsyncGenerator[Page, None]:
    """Yield a list page by page.

    With a `selector`, it has only the objects whose fields it names (`spec.nodeName=node-1`).

    Raises:
        BadStatus: The API server refuses; with 410, the list has expired meanwhile.
        ClusterError: It doesn't answer, or not with a list.
    """
    limit, token = PAGE, ""
    while True:
        params: dict[str, str | int] = {"limit": limit}
        if selector:
            params["fieldSelector"] = selector
        if token:
            params["continue"] = token
        try:
            answer = await client.request("GET", path, params=params)
        except TooLong:
            if limit == 1:
                raise
            # The next pages are smaller, for a while.
            limit = max(1, limit // 8)
            continue
        page = decode(client.expect(answer, f"GET {path}").body, path, Page)
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
) -> list[T]:
    """What `read` returns for each object of a list, without None."""
    async with aclosing(read_pages(client, path, selector)) as pages:
        return [
            converted
            async for page in pages
            for item in page.items or ()
            if (converted := read(decode(item, path, dict[str, Any]))) is not None
        ]


def decode(body: bytes | msgspec.Raw, path: str, kind: type[T]) -> T:
    """The answer to a GET, or a part of it, as a value of a type."""
    try:
        return decode_pruned(msgspec.json.Decoder(kind), body)
    except UNREADABLE as error:
        raise Unreadable(
            f"the answer to GET {path} can't be read: {plain(str(error), 200)}"
        ) from error


_MAX_DEPTH: Final = 100
_STRING_OR_BRACKET: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[{]|[\]}]')


def decode_pruned(decoder: "msgspec.json.Decoder[T]", data: bytes | msgspec.Raw) -> T:
    """Decode JSON; a value nested deeper than the decoder follows is read as null."""
    try:
        return decoder.decode(data)
    except RecursionError:
        # The API server stores `managedFields` with thousands of levels; one such object must not
        # make the list of all namespaces unreadable.
        return decoder.decode(_prune(bytes(data)))


def _prune(data: bytes) -> bytes:
    """JSON with null in place of everything below `_MAX_DEPTH` levels."""
    kept, depth, start = bytearray(), 0, 0
    for match in _STRING_OR_BRACKET.finditer(data):
        if match[0] in b"[{":
            depth += 1
            if depth == _MAX_DEPTH:
                kept += data[start : match.start()] + b"null"
        elif match[0] in b"]}":
            if depth == _MAX_DEPTH:
                start = match.end()
            depth -= 1
    return bytes(kept + data[start:])
