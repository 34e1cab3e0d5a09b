"""`accelbind certs run` as real processes beside an API server."""

import asyncio
import http.client
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from simulator.apiserver.standin import ApiServerStandIn
from tests.certs.cluster import (
    MUTATING,
    bundles,
    configuration,
    edit_secret,
    empty_secret,
)
from tests.certs.memory import CA, NAMESPACE, private_key_pem
from tests.support import Process, Processes, eventually_async

pytestmark = pytest.mark.anyio


class Replica:
    """One `accelbind certs run`."""

    def __init__(self, process: Process, ports: Path) -> None:
        self.process = process
        self._ports = ports

    async def get(self, path: str) -> tuple[int, str]:
        """A GET on its plain port."""

        def ask() -> tuple[int, str]:
            connection = http.client.HTTPConnection(
                "localhost", self.process.ports(self._ports)["metrics"], timeout=60
            )
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                return answer.status, answer.read().decode()
            finally:
                connection.close()

        return await asyncio.to_thread(ask)

    async def metric(self, name: str) -> float:
        for line in (await self.get("/metrics"))[1].splitlines():
            if line.startswith(f"{name} "):
                return float(line.removeprefix(f"{name} "))
        return -1.0

    async def ready(self) -> bool:
        return (await self.get("/readyz"))[0] == 200

    def events(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.process.stderr.splitlines()]
        return [line for line in lines if line["event"] == event]


def start(
    api: ApiServerStandIn, processes: Processes, folder: Path, *flags: str, name: str = "certs"
) -> Replica:
    ports = folder / f"{name}.json"
    where = ("--kubeconfig", str(api.kubeconfig_path), "--ports-file", str(ports))
    quick = ("--metrics-port", "0", "--interval", "1s", "--settle", "1s")
    process = processes.accelbind("certs", "run", *where, *quick, *flags, name=name)
    return Replica(process, ports)


async def test_errors_make_it_not_ready_until_they_are_over(
    api: ApiServerStandIn, processes: Processes, tmp_path: Path
) -> None:
    replica = start(api, processes, tmp_path)
    await eventually_async(replica.ready, what="readiness")

    async def reports(text: str) -> bool:
        status, body = await replica.get("/readyz")
        return status == 503 and text in body

    # A key that only a person can replace.
    encrypted = private_key_pem(ec.generate_private_key(ec.SECP256R1()), password=b"secret")
    edit_secret(api, CA, ca_key=encrypted)
    reason = f"Secret {NAMESPACE}/{CA}: the key is encrypted"
    await eventually_async(lambda: reports(reason), what=reason)
    api.put(empty_secret(CA))
    await eventually_async(replica.ready, what="readiness")

    # An API server that is away.
    async with api.away():
        await eventually_async(lambda: reports("can't be reached"), what="the reason")
        assert (await replica.get("/healthz"))[0] == 200
        assert await replica.metric("accelbind_certs_failing") == 1
    await eventually_async(replica.ready, what="readiness")
    assert len(replica.events("certificates cannot be reconciled")) >= 2
    assert len(replica.events("certificates are reconciled again")) == 2

    # A token that was renewed.
    api.change_token()
    api.put(configuration(MUTATING))
    await eventually_async(lambda: b"" not in bundles(api), what="the bundle")
    assert await replica.metric("accelbind_certs_failures_total") >= 2


async def test_sigterm_ends_it_while_the_api_server_hangs(
    processes: Processes, tmp_path: Path
) -> None:
    asked = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        asked.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    async with server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        kubeconfig = {
            "clusters": [{"name": "c", "cluster": {"server": address}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        file = tmp_path / "kubeconfig"
        file.write_text(json.dumps(kubeconfig))
        process = processes.accelbind("certs", "run", "--kubeconfig", file, "--metrics-port", "0")
        await asyncio.wait_for(asked.wait(), 60)
        assert await asyncio.to_thread(process.terminate) == 0
    events = [json.loads(line)["event"] for line in process.stderr.splitlines()]
    assert events[-1] == "stopped"
    assert "certificates cannot be reconciled" not in events, "it waited for an answer"
