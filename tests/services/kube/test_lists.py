"""Lists that a command reads as a whole, from a server that answers each page as a test says."""

import json
import tracemalloc
from itertools import count
from typing import Any

import pytest

from services.kube.client import ClusterClient, HttpResponse, TooLong, Unreadable
from services.kube.lists import PAGE, list_objects

pytestmark = pytest.mark.anyio


class Pages(ClusterClient):
    """A server whose lists have the same objects on each of `number` pages."""

    def __init__(self, number: int, *items: Any) -> None:
        self.server = "test"
        self._left, self._items, self._tokens = number, items, count()

    async def request(self, *_args: object, **_named: object) -> HttpResponse:
        self._left -= 1
        token = f"t{next(self._tokens)}" if self._left else ""
        page = {"metadata": {"continue": token}, "items": self._items}
        return HttpResponse(200, json.dumps(page).encode())


async def test_a_list_has_as_many_bytes_as_its_reader_allows() -> None:
    assert len(await list_objects(Pages(50, {"a": 1}), "/x", dict, most=200_000)) == 50
    with pytest.raises(TooLong, match="GET /x has too many bytes or objects"):
        await list_objects(Pages(500, {"a": 1}), "/x", dict, most=200_000)
    with pytest.raises(TooLong):
        await list_objects(Pages(50, {"a": "x" * 10_000}), "/x", dict, most=200_000)


async def test_an_object_larger_than_any_of_an_api_server_is_not_decoded() -> None:
    with pytest.raises(Unreadable, match="larger than 4194304 bytes"):
        await list_objects(Pages(1, {"a": "x" * 4_200_000}), "/x", dict)


class Raw(ClusterClient):
    """A server that answers everything with one body."""

    def __init__(self, body: bytes) -> None:
        self.server, self._body = "test", body

    async def request(self, *_args: object, **_named: object) -> HttpResponse:
        return HttpResponse(200, self._body)


async def test_a_page_of_far_more_objects_than_requested_is_not_decoded() -> None:
    assert len(await list_objects(Pages(1, *[{}] * 2 * PAGE), "/x", dict)) == 2 * PAGE
    server = Raw(b'{"metadata":{"continue":"N"},"items":[' + b"0," * 999_999 + b"0]}")
    tracemalloc.start()
    try:
        with pytest.raises(Unreadable, match=f"GET /x can't be read: .* {2 * PAGE}$"):
            await list_objects(server, "/x", dict)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


async def test_a_list_without_items_is_empty() -> None:
    assert await list_objects(Raw(b'{"metadata": {}, "items": null}'), "/x", dict) == []
