"""`accelbind certs run` as real processes beside an API server."""

import asyncio
import base64
import json
from pathlib import Path

from accelbind.devices.source import PlainPort
from certs.authority import create_authority, utc_now
from simulator.apiserver.standin import ApiServerStandIn
from tests.certs.cluster import MUTATING, bundles, configuration, empty_secret
from tests.certs.memory import CA, NAMESPACE, rebuilt
from tests.support import Processes, eventually_async


async def test_errors_make_it_not_ready_until_they_are_over(
    api: ApiServerStandIn, processes: Processes, tmp_path: Path
) -> None:
    file = tmp_path / "ports.json"
    process = processes.accelbind(
        *("certs", "run", "--api-server", api.address, "--ports-file", file),
        *("--metrics-port", "0", "--interval", "1s", "--settle", "1s"),
    )
    port = PlainPort("localhost", (await asyncio.to_thread(process.ports, file))["metrics"])

    async def get(path: str) -> tuple[int, str]:
        status, text = await asyncio.to_thread(port.get, path)
        return status, text.decode()

    async def ready() -> bool:
        return (await get("/readyz"))[0] == 200

    async def reports(text: str) -> bool:
        status, body = await get("/readyz")
        return status == 503 and text in body

    await eventually_async(ready, what="readiness")

    # A CA that only a person can remove.
    theirs = rebuilt(create_authority(utc_now()), "company")
    data = {"ca.crt": base64.b64encode(theirs.certificate.pem).decode()}
    api.put(empty_secret(CA) | {"data": data})
    reason = f"Secret {NAMESPACE}/{CA}: ca.crt: accelbind has not created this CA: CN=company"
    await eventually_async(lambda: reports(reason), what=reason)
    api.put(empty_secret(CA))
    await eventually_async(ready, what="readiness")

    # An API server that is away.
    async with api.away():
        await eventually_async(lambda: reports("can't be reached"), what="the reason")
        assert (await get("/healthz"))[0] == 200
        metrics = (await get("/metrics"))[1]
        assert "accelbind_certs_failing 1.0\n" in metrics
        assert "accelbind_certs_failures_total 0.0\n" not in metrics
    await eventually_async(ready, what="readiness")
    events = [json.loads(line)["event"] for line in process.stderr.splitlines()]
    assert events.count("certificates cannot be reconciled") >= 2
    assert events.count("certificates are reconciled again") == 2

    # A configuration that is away, or never was there by this name.
    api.drop(MUTATING, "accelbind")
    missing = "mutatingwebhookconfigurations/accelbind: it does not exist"
    await eventually_async(lambda: missing in process.stderr, what="a warning")

    # A token that was renewed.
    api.change_token()
    api.put(configuration(MUTATING))
    await eventually_async(lambda: b"" not in bundles(api), what="the bundle")


async def test_sigterm_ends_it_while_the_api_server_hangs(processes: Processes) -> None:
    asked = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        asked.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    async with server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        flags = ("--api-server", address, "--metrics-port", "0")
        process = processes.accelbind("certs", "run", *flags)
        await asyncio.wait_for(asked.wait(), 60)
        assert await asyncio.to_thread(process.terminate) == 0
    events = [json.loads(line)["event"] for line in process.stderr.splitlines()]
    assert events[-1] == "stopped"
    assert "certificates cannot be reconciled" not in events, "it waited for an answer"
