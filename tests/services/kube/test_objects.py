"""Secrets by name, written under the version that was read."""

import json
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.kube.client import ClusterClient, Conflict, HttpResponse, TooLong, Unreadable
from services.kube.lists import PAGE, list_objects
from services.kube.nodes import node_annotations
from services.kube.objects import (
    create_object,
    delete_object,
    ensure_secret,
    read_object,
    read_secret,
    write_secret,
)
from services.process.errors import ClusterError
from simulator.apiserver.http_server import Response
from simulator.apiserver.standin import ApiServerStandIn

OURS = frozenset({"a", "b"})


@pytest.fixture
def api(api: ApiServerStandIn) -> ApiServerStandIn:
    put(api, data={"a": "QQ==", "other": "Wg=="}, type="Opaque")
    return api


@pytest.fixture
async def client(api: ApiServerStandIn) -> AsyncIterator[ClusterClient]:
    async with ClusterClient(api.access) as made:
        yield made


def put(api: ApiServerStandIn, **fields: Any) -> None:
    metadata = {"name": "s", "namespace": "default", "labels": {"x": "y"}}
    api.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, **fields})


async def test_data_is_read_as_bytes(api: ApiServerStandIn, client: ClusterClient) -> None:
    put(api, data={"a": "QQ==", "other": "!! no base64"})
    found = await read_secret(client, "default", "s")
    assert found.data == {"a": b"A", "other": b""}


async def test_of_two_who_read_the_same_the_second_writer_is_told(client: ClusterClient) -> None:
    first = await read_secret(client, "default", "s")
    second = await read_secret(client, "default", "s")
    await write_secret(client, first, {"a": b"1"}, ours=OURS)
    with pytest.raises(Conflict, match="modified"):
        await write_secret(client, second, {"a": b"2"}, ours=OURS)
    assert (await read_secret(client, "default", "s")).data["a"] == b"1"


async def test_one_that_is_not_there_is_created_empty_and_then_left_alone(
    api: ApiServerStandIn, client: ClusterClient
) -> None:
    first = await ensure_secret(client, "default", "none")
    assert (first.data, first.object.item["type"]) == ({}, "Opaque")
    written = await write_secret(client, first, {"a": b"1"}, ours=OURS)
    again = await ensure_secret(client, "default", "none")
    assert again.object.item == written.object.item
    assert [each.request.method for each in api.seen] == ["GET", "PATCH", "PUT", "GET"]


async def test_creating_one_that_appeared_meanwhile_changes_nothing(
    api: ApiServerStandIn, client: ClusterClient
) -> None:
    with api.faults.answering(
        lambda _: Response(404, b"{}"), matches=lambda request: request.method == "GET"
    ):
        found = await ensure_secret(client, "default", "s")
    assert found.data == {"a": b"A", "other": b"Z"}


TOO_LARGE = b'{"metadata":{"resourceVersion":"1"},"a":"%s"}' % (b"x" * 4_200_000)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"metadata":{}}', TOO_LARGE], ids=["none", "list", "bare", "too large"]
)
async def test_answers_that_are_no_object_are_told(
    api: ApiServerStandIn, client: ClusterClient, body: bytes
) -> None:
    with (
        api.faults.answering(
            lambda _: Response(200, body), matches=lambda each: "/secrets/" in each.path
        ),
        pytest.raises(ClusterError, match="can't be read"),
    ):
        await read_secret(client, "default", "s")


async def test_names_cannot_lead_elsewhere(api: ApiServerStandIn, client: ClusterClient) -> None:
    with pytest.raises(ClusterError, match="does not exist"):
        await read_secret(client, "default", "../pods")  # nor is there such a Secret
    assert api.seen[-1].request.target == "/api/v1/namespaces/default/secrets/..%2Fpods"
    with pytest.raises(ClusterError, match="is not a valid object name"):
        await read_secret(client, "default", "..")


SECRETS = "/api/v1/namespaces/default/secrets"


async def test_an_object_is_created_once_and_deleted_as_it_was_read(client: ClusterClient) -> None:
    item = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "new"}}
    created = await create_object(client, SECRETS, item)
    assert created.path == f"{SECRETS}/new"
    with pytest.raises(Conflict, match="already exists"):
        await create_object(client, SECRETS, item)
    await delete_object(client, created)
    assert await read_object(client, created.path) is None
    await delete_object(client, created)  # it is gone: as good
    await create_object(client, SECRETS, item)
    with pytest.raises(Conflict):
        await delete_object(client, created)


# Lists that a command reads as a whole


class Bodies(ClusterClient):
    """A server that answers with these, one after the other."""

    def __init__(self, *bodies: bytes) -> None:
        self.server, self._bodies = "test", iter(bodies)

    async def request(self, *_args: object, **_named: object) -> HttpResponse:
        return HttpResponse(200, next(self._bodies))


def pages(number: int, *items: Any) -> Bodies:
    """A server with a list that has the same objects on each page."""
    tokens = [*(f"t{n}" for n in range(1, number)), ""]
    return Bodies(
        *(json.dumps({"metadata": {"continue": each}, "items": items}).encode() for each in tokens)
    )


async def test_a_list_has_as_many_bytes_as_its_reader_allows() -> None:
    assert len(await list_objects(pages(50, {"a": 1}), "/x", dict, most=200_000)) == 50
    with pytest.raises(TooLong, match="GET /x has too many bytes or objects"):
        await list_objects(pages(500, {"a": 1}), "/x", dict, most=200_000)
    with pytest.raises(TooLong):
        await list_objects(pages(50, {"a": "x" * 10_000}), "/x", dict, most=200_000)


async def test_an_object_larger_than_any_of_an_api_server_is_not_decoded() -> None:
    with pytest.raises(Unreadable, match="larger than 4194304 bytes"):
        await list_objects(pages(1, {"a": "x" * 4_200_000}), "/x", dict)


async def test_a_page_of_far_more_objects_than_requested_is_not_decoded() -> None:
    assert len(await list_objects(pages(1, *[{}] * 2 * PAGE), "/x", dict)) == 2 * PAGE
    server = Bodies(b'{"metadata":{"continue":"N"},"items":[' + b"0," * 999_999 + b"0]}")
    tracemalloc.start()
    try:
        with pytest.raises(Unreadable, match=f"GET /x can't be read: .* {2 * PAGE}$"):
            await list_objects(server, "/x", dict)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


async def test_a_list_without_items_is_empty() -> None:
    assert await list_objects(Bodies(b'{"metadata": {}, "items": null}'), "/x", dict) == []


async def test_a_node_with_a_bottomless_field_is_read() -> None:
    deep = b'{"metadata":{"name":"n","managedFields":' + b"[" * 5000 + b"]" * 5000 + b"}}"
    assert await node_annotations(Bodies(deep), "n") == {}
