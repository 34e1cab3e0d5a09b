"""Clients that are replaced while others still use the old one."""

import asyncio
from pathlib import Path

import pytest

from services.kube.client import ClusterClient
from services.kube.connection import Connection, connector
from services.process.errors import ClusterError
from tests.services.kube.following import write_kubeconfig

pytestmark = pytest.mark.anyio


def is_open(client: ClusterClient) -> bool:
    return not client.is_closed


async def test_a_client_serves_all_who_ask(tmp_path: Path) -> None:
    connection = Connection(connector(write_kubeconfig(tmp_path, "http://a")))
    async with connection.client() as one, connection.client() as other:
        assert one is other
    assert is_open(one)
    await connection.aclose()
    assert not is_open(one)


async def test_a_renewed_client_is_what_the_files_say_now(tmp_path: Path) -> None:
    connection = Connection(connector(write_kubeconfig(tmp_path, "http://old")))
    async with connection.client() as old:
        write_kubeconfig(tmp_path, "http://new")
        await connection.renew(old)
        assert is_open(old), "somebody still uses it"
        async with connection.client() as new:
            assert (old.server, new.server) == ("http://old", "http://new")
    assert not is_open(old)
    assert is_open(new)
    await connection.aclose()


async def test_a_client_that_nobody_uses_is_closed_when_it_is_renewed(tmp_path: Path) -> None:
    connection = Connection(connector(write_kubeconfig(tmp_path, "http://a")))
    async with connection.client() as old:
        pass
    await connection.renew(old)
    assert not is_open(old)
    await connection.aclose()


async def test_of_two_who_find_a_client_of_no_use_one_renews_it(tmp_path: Path) -> None:
    made = []
    make = connector(write_kubeconfig(tmp_path, "http://a"))

    def counted() -> ClusterClient:
        made.append(make())
        return made[-1]

    connection = Connection(counted)
    async with connection.client() as old:
        await asyncio.gather(connection.renew(old), connection.renew(old))
        await connection.renew(old)
    async with connection.client() as new:
        assert new is not old
    assert [is_open(client) for client in made].count(True) == 1
    await connection.aclose()
    assert not any(is_open(client) for client in made)


async def test_a_client_that_can_not_be_renewed_is_kept(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path, "http://a")
    connection = Connection(connector(path))
    path.write_text("{")
    async with connection.client() as old:
        await connection.renew(old)
        async with connection.client() as kept:
            assert kept is old
    await connection.aclose()


async def test_without_any_configuration_there_is_no_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ClusterError, match="no kubeconfig was found"):
        Connection(connector())
