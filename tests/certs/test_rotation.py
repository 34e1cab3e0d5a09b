"""The whole way: `certs run`, mounted Secret, webhook, API server, while CAs are lost by hand."""

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from certs.reading import signed
from certs.verify import served_by
from services.kube.client import ClusterClient
from services.kube.connection import connector
from simulator.apiserver.standin import ApiServerStandIn, Options
from tests.certs.cluster import (
    CA,
    HOST,
    MUTATING,
    TLS,
    apply_manifests,
    configuration,
    edit_secret,
    entry,
    secret,
    serving,
    the_bundle,
)
from tests.support import Process, Processes, eventually_async
from tests.webhook.reviews import RESOURCE, mapping_yaml, pod

pytestmark = pytest.mark.anyio


def pods_entry() -> dict[str, Any]:
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"]}
    return entry("pods.accelbind.dev") | {"rules": [rule | {"resources": ["pods"]}]}


def mount(api: ApiServerStandIn, folder: Path) -> None:
    """What the kubelet does with a Secret that is mounted."""
    for name, content in secret(api, TLS).items():
        beside = folder / f".{name}.new"
        beside.write_bytes(content)
        beside.replace(folder / name)


def start_webhook(processes: Processes, folder: Path) -> tuple[Process, Path]:
    (folder / "maps").mkdir()
    (folder / "maps" / "m.yaml").write_text(mapping_yaml())
    ports = folder / "webhook.json"
    process = processes.accelbind(
        *("webhook", "--mappings", folder / "maps", "--ports-file", ports),
        *("--tls-cert", folder / "tls.crt", "--tls-key", folder / "tls.key"),
        *("--port", "0", "--metrics-port", "0"),
    )
    return process, ports


async def create_pod(client: ClusterClient, number: int) -> dict[str, Any]:
    asking = pod()
    asking["metadata"]["name"] = f"nlb-{number}"
    answer = await client.request("POST", "/api/v1/namespaces/default/pods", body=asking)
    assert answer.status == 201, answer.body
    created: dict[str, Any] = json.loads(answer.body)
    return created


async def test_pods_are_admitted_while_the_ca_is_lost_and_made_anew(
    tmp_path: Path, processes: Processes
) -> None:
    services: dict[str, str] = {}
    async with ApiServerStandIn(tmp_path, Options(services=services, schedule=False)) as api:
        apply_manifests(api, configurations=False)
        api.seed(configuration(MUTATING, pods_entry()))
        quick = ("--interval", "1s", "--settle", "2s", "--metrics-port", "0")
        processes.accelbind("certs", "run", "--kubeconfig", api.kubeconfig_path, *quick)
        await eventually_async(lambda: secret(api, TLS).get("tls.crt"), timeout=60)
        mount(api, tmp_path)
        process, ports_file = start_webhook(processes, tmp_path)
        ports = await asyncio.to_thread(process.ports, ports_file)
        services[HOST] = f"127.0.0.1:{ports['admission']}"
        url = f"https://127.0.0.1:{ports['admission']}"
        numbers = itertools.count()
        async with connector(api.kubeconfig_path)() as client:

            async def all_is_well() -> None:
                """A pod passes, and so does a client with the bundle that the API server has."""
                created = await create_pod(client, next(numbers))
                assert RESOURCE in created["spec"]["containers"][0]["resources"]["limits"]
                served = await asyncio.to_thread(served_by, url, HOST, the_bundle(api))
                assert served.problem == ""

            await all_is_well()
            for damage in ({"ca_key": None}, {"ca_crt": None, "ca_key": None}):
                before = the_bundle(api)[0]
                edit_secret(api, CA, **damage)
                deadline = asyncio.get_running_loop().time() + 200
                while True:
                    await all_is_well()
                    mount(api, tmp_path)
                    served = await asyncio.to_thread(served_by, url, HOST, the_bundle(api))
                    assert served.certificate is not None
                    if served.certificate == serving(api) and not signed(serving(api), before):
                        break
                    assert asyncio.get_running_loop().time() < deadline
        assert next(numbers) > 3
