"""Clients that are replaced while others still use the old one."""

import asyncio
from pathlib import Path

import pytest

from services.kube.client import BadStatus, ClusterClient, Unreadable
from services.kube.connection import ApiConnection, connector
from services.process.errors import ClusterError
from tests.services.kube.kubeconfigs import write_config

pytestmark = pytest.mark.anyio


def is_open(client: ClusterClient) -> bool:
    return not client.is_closed


async def fail(connection: ApiConnection, error: ClusterError) -> ClusterClient:
    """Use the client without success."""
    with pytest.raises(type(error)):
        async with connection.client() as client:
            raise error
    return client


def refused(status: int) -> BadStatus:
    return BadStatus("refused", status)


@pytest.mark.parametrize(
    ("error", "renewed"),
    [
        (refused(404), True),
        (refused(503), True),
        (refused(409), False),
        (ClusterError("away"), True),
        (Unreadable("garbled"), False),
    ],
)
async def test_after_an_error_that_other_files_could_explain_they_are_read_again(
    tmp_path: Path, error: ClusterError, renewed: bool
) -> None:
    connection = ApiConnection(connector(write_config(tmp_path, {"server": "http://old"})))
    async with connection.client() as old:
        write_config(tmp_path, {"server": "http://new"})
        assert await fail(connection, error) is old
        async with connection.client() as client:
            assert client.server == ("http://new" if renewed else "http://old")
            assert is_open(old), "somebody still uses it"
    assert is_open(old) is not renewed
    await connection.aclose()
    assert not is_open(client)


async def test_of_two_who_come_after_an_error_one_renews_the_client(tmp_path: Path) -> None:
    made = []
    make = connector(write_config(tmp_path, {"server": "http://a"}))

    def counted() -> ClusterClient:
        made.append(make())
        return made[-1]

    async def use() -> ClusterClient:
        async with connection.client() as client:
            return client

    connection = ApiConnection(counted)
    old = await fail(connection, refused(401))
    one, other = await asyncio.gather(use(), use())
    assert one is other is not old
    assert len(made) == 2
    await connection.aclose()
    assert not any(is_open(client) for client in made)


async def test_a_client_that_can_not_be_renewed_is_kept(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"server": "http://a"})
    connection = ApiConnection(connector(path))
    path.write_text("{")
    old = await fail(connection, refused(401))
    async with connection.client() as kept:
        assert kept is old
    await connection.aclose()


async def test_without_any_configuration_there_is_no_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ClusterError, match="no kubeconfig was found"):
        ApiConnection(connector())
