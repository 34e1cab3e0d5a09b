"""Users of a kubeconfig: a plugin that is asked for a token, and a file that holds one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.cluster.client import ClusterClient, load_config
from tests.services.cluster.test_client import POD, Server, answer

pytestmark = pytest.mark.anyio

PLUGIN = """#!/bin/sh
echo "$KUBERNETES_EXEC_INFO" > "$NOTE"
echo '{"kind": "ExecCredential", "status": {"token": "'"$(cat "$1")"'"}}'
"""


def written(folder: Path, server: str, user: dict[str, Any]) -> Path:
    file = folder / "kubeconfig"
    context = {"name": "c", "context": {"cluster": "k", "user": "u"}}
    config = {
        "current-context": "c",
        "contexts": [context],
        "clusters": [{"name": "k", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }
    file.write_text(yaml.safe_dump(config))
    return file


def of_plugin(version: str) -> Callable[[Path], dict[str, Any]]:
    def user(folder: Path) -> dict[str, Any]:
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

    return user


def of_file(_folder: Path) -> dict[str, Any]:
    return {"tokenFile": "token"}


@pytest.mark.parametrize("user", [of_plugin("v1"), of_plugin("v1beta1"), of_file])
async def test_a_token_is_had_from_where_the_kubeconfig_says_and_had_anew_when_it_is_refused(
    tmp_path: Path, user: Callable[[Path], dict[str, Any]]
) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    answers = answer(200, b"{}"), answer(401, b""), answer(200, b"{}")
    async with Server(*answers).run() as server:
        config = load_config(written(tmp_path, server.url, user(tmp_path)))
        assert config is not None
        async with ClusterClient(config) as client:
            await client.get(POD)
            token.write_text("second")
            assert await client.get(POD) == b"{}"
    asked = [request.partition("uthorization: ")[2].split("\r\n")[0] for request in server.requests]
    assert asked == ["Bearer first", "Bearer first", "Bearer second"]


async def test_a_plugin_of_today_is_told_what_to_answer(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first")
    async with Server(answer(200, b"{}")).run() as server:
        config = load_config(written(tmp_path, server.url, of_plugin("v1")(tmp_path)))
        assert config is not None
        async with ClusterClient(config) as client:
            await client.get(POD)
    told = json.loads((tmp_path / "note").read_text())
    assert told["apiVersion"] == "client.authentication.k8s.io/v1"
    assert told["spec"] == {"interactive": False}
