"""Users of a kubeconfig: a plugin that is asked for a token, and a file that holds one."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.kube import credentials
from services.kube.client import BadStatus
from services.kube.connection import ApiConnection, connector
from services.process.errors import ClusterError
from tests.services.kube.kubeconfigs import client_of, write_config
from tests.services.kube.test_client import POD, Server, answer
from tests.support import eventually_async

pytestmark = pytest.mark.anyio

PLUGIN = """#!/bin/sh
echo "$KUBERNETES_EXEC_INFO" > "$NOTE"
echo '{"kind": "ExecCredential", "status": {"token": "'"$(cat "$1")"'"}}'
"""


def plugin_user(folder: Path, version: str) -> dict[str, Any]:
    plugin = folder / "plugin"
    plugin.write_text(PLUGIN)
    plugin.chmod(0o755)
    named = {
        "apiVersion": f"client.authentication.k8s.io/{version}",
        "interactiveMode": "Never",
        "command": str(plugin),
        "args": [str(folder / "token")],
        "env": [{"name": "NOTE", "value": str(folder / "note")}],
    }
    return {"exec": named}


def shown(server: Server) -> list[str]:
    """Who each request said it was from."""
    return [request.partition("uthorization: ")[2].split("\r\n")[0] for request in server.requests]


FILE_USER = {"tokenFile": "token"}


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_a_plugin_is_asked_for_a_token_and_asked_anew_when_that_is_refused(
    tmp_path: Path, version: str
) -> None:
    user = plugin_user(tmp_path, version)
    token = tmp_path / "token"
    token.write_text("first")
    answers = answer(200, b"{}"), answer(401, b""), answer(200, b"{}")
    async with Server(*answers).run() as server:
        config = write_config(tmp_path, {"server": server.url}, user)
        connection = ApiConnection(connector(config))
        async with connection.client() as client:
            await client.get(POD)
        assert "user-agent: accelbind\r\n" in server.requests[0].lower()
        token.write_text("second")
        with pytest.raises(BadStatus):
            async with connection.client() as client:
                await client.get(POD)
        async with connection.client() as client:
            assert await client.get(POD) == b"{}"
        await connection.aclose()
    assert shown(server) == ["Bearer first", "Bearer first", "Bearer second"]
    told = json.loads((tmp_path / "note").read_text())
    assert told["spec"] == {"interactive": False}
    assert told["apiVersion"] == user["exec"]["apiVersion"]


async def test_a_tokens_file_is_read_for_each_request_and_may_be_away(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    async with (
        Server(*[answer(200, b"{}")] * 3).run() as server,
        client_of(tmp_path, server.url, FILE_USER) as client,
    ):
        await client.get(POD)
        token.write_text("second")
        await client.get(POD)
        token.unlink()
        await client.get(POD)
    assert shown(server) == ["Bearer first", "Bearer second", "Bearer second"]


async def test_a_tokens_file_that_holds_none_is_named(tmp_path: Path) -> None:
    async with client_of(tmp_path, "http://a", FILE_USER) as client:
        for content, message in (
            (None, "can't be read: No such file"),
            (b"\xff", "can't be read: it is not text"),
            (b"one\r\nX: y", "holds more than one token"),
        ):
            if content is not None:
                (tmp_path / "token").write_bytes(content)
            with pytest.raises(ClusterError, match=f"the token file {tmp_path}/token {message}"):
                await client.get(POD)


def saying(script: str, **more: object) -> Callable[[Path], dict[str, Any]]:
    def user(folder: Path) -> dict[str, Any]:
        plugin = folder / "plugin"
        plugin.write_text(f"#!/bin/sh\n{script}\n")
        plugin.chmod(0o755)
        named = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}
        return {"exec": named | more}

    return user


@pytest.mark.parametrize(
    ("user", "message"),
    [
        (saying("echo '{\"status\": {}}'"), "prints holds no token: are you logged in"),
        (saying("echo Log in first"), "prints no ExecCredential"),
        (saying("printf 'nobody\\nhere' >&2; exit 3"), "fails with 3: nobody here$"),
        (saying("sleep 3600"), "takes longer than"),
        (
            saying("", command="no-such-plugin", installHint="get it from us"),
            "no-such-plugin can't be run: .*get it from us",
        ),
    ],
)
async def test_a_plugin_that_gives_nothing_is_named_with_what_it_says(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    user: Callable[[Path], dict[str, Any]],
    message: str,
) -> None:
    if "longer" in message:
        monkeypatch.setattr(credentials, "PLUGIN_SECONDS", 0.2)
    async with client_of(tmp_path, "http://a", user(tmp_path)) as client:
        with pytest.raises(ClusterError, match=f"the credential plugin .*{message}"):
            await client.get(POD)


@pytest.mark.parametrize("is_starting", [False, True])
async def test_a_plugin_is_ended_and_reaped_with_what_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_starting: bool
) -> None:
    pids = tmp_path / "pids"
    started = asyncio.Event()
    start = asyncio.create_subprocess_exec

    async def start_late(*command: str, **options: Any) -> asyncio.subprocess.Process:
        """Start it; a busy event loop hears of that later."""
        process = await start(*command, **options)
        await started.wait()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_late)
    if not is_starting:
        started.set()
    script = f"sleep 3600 & echo $$ $! > {tmp_path}/new; mv {tmp_path}/new {pids}; wait"
    async with client_of(tmp_path, "http://a", saying(script)(tmp_path)) as client:
        asking = asyncio.create_task(client.get(POD))
        await eventually_async(pids.exists, what="the plugin has started something")
        asking.cancel()
        await asyncio.sleep(0)
        started.set()
        with pytest.raises(asyncio.CancelledError):
            await asking
    plugin, child = map(int, pids.read_text().split())
    await eventually_async(lambda: not Path(f"/proc/{plugin}").exists(), what="no zombie is left")
    await eventually_async(lambda: not is_running(child), what="that is gone too")


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_a_plugin_is_asked_once_however_many_requests_wait_for_it(tmp_path: Path) -> None:
    script = f'echo x >> {tmp_path}/asked; echo \'{{"status": {{"token": "t"}}}}\''
    async with (
        Server(*[answer(200, b"{}")] * 3).run() as server,
        client_of(tmp_path, server.url, saying(script)(tmp_path)) as client,
    ):
        await asyncio.gather(*[client.get(POD) for _ in range(3)])
    assert (tmp_path / "asked").read_text() == "x\n"
