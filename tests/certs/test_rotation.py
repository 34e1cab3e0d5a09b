"""The whole way: `certs run`, mounted Secret, webhook, API server, while CAs are lost by hand."""

import asyncio
import itertools
import json
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from certs.authority import certificate_pem
from certs.certificates import is_signed_by
from services.kube.client import ClusterClient
from services.kube.connection import connector
from simulator.apiserver.standin import ApiServerStandIn, Options
from tests.certs.cluster import (
    MUTATING,
    apply_manifests,
    configuration,
    edit_secret,
    entry,
    secret,
    serving,
    the_bundle,
)
from tests.certs.memory import CA, HOST, TLS
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


def shown(port: int, *trusted: x509.Certificate) -> x509.Certificate:
    """What a webhook shows to a client that trusts these CAs.

    Raises:
        ssl.SSLError: The client refuses it.
    """
    context = ssl.create_default_context(cadata=b"".join(map(certificate_pem, trusted)).decode())
    with (
        socket.create_connection(("127.0.0.1", port), 60) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as secured,
    ):
        return x509.load_der_x509_certificate(secured.getpeercert(binary_form=True) or b"")


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
        numbers = itertools.count()
        async with connector(api.kubeconfig_path)() as client:

            async def all_is_well() -> x509.Certificate:
                """A pod passes, and so does a client with the bundle that the API server has."""
                created = await create_pod(client, next(numbers))
                assert RESOURCE in created["spec"]["containers"][0]["resources"]["limits"]
                return await asyncio.to_thread(shown, ports["admission"], *the_bundle(api))

            await all_is_well()
            for damage in ({"ca_key": None}, {"ca_crt": None, "ca_key": None}):
                before = the_bundle(api)[0]
                edit_secret(api, CA, **damage)
                deadline = asyncio.get_running_loop().time() + 200
                while True:
                    await all_is_well()
                    mount(api, tmp_path)
                    served = await all_is_well()
                    if served == serving(api) and not is_signed_by(served, before):
                        break
                    assert asyncio.get_running_loop().time() < deadline
        assert next(numbers) > 3
