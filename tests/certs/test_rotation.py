"""A CA change under constant reviews: `certs run`, the mounted Secret, webhook and API server."""

import asyncio
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


async def test_no_pod_is_lost_while_the_ca_is_replaced(
    tmp_path: Path, processes: Processes
) -> None:
    services: dict[str, str] = {}
    async with ApiServerStandIn(tmp_path, Options(services=services, schedule=False)) as api:
        apply_manifests(api, configurations=False)
        api.put(configuration(MUTATING, pods_entry()))
        quick = ("--interval", "500ms", "--settle", "1s", "--metrics-port", "0")
        processes.accelbind("certs", "run", "--kubeconfig", api.kubeconfig_path, *quick)
        await eventually_async(lambda: secret(api, TLS).get("tls.crt"), timeout=60)
        mount(api, tmp_path)
        process, ports_file = start_webhook(processes, tmp_path)
        ports = await asyncio.to_thread(process.ports, ports_file)
        services[HOST] = f"127.0.0.1:{ports['admission']}"
        created: list[dict[str, Any]] = []
        done = asyncio.Event()

        async def create_pods() -> None:
            async with connector(api.kubeconfig_path)() as client:
                while not done.is_set():
                    created.append(await create_pod(client, len(created)))

        async def a_new_ca_serves() -> bool:
            """Whether the replica shows the newest certificate, to who trusts the bundle of now."""
            mount(api, tmp_path)
            served = await asyncio.to_thread(shown, ports["admission"], *the_bundle(api))
            return served == serving(api) and not is_signed_by(served, before)

        creating = asyncio.create_task(create_pods())
        before = the_bundle(api)[0]
        edit_secret(api, CA, ca_crt=None, ca_key=None)
        await eventually_async(a_new_ca_serves, timeout=200, interval=0.1)
        late = len(created) + 3
        await eventually_async(lambda: len(created) >= late or creating.done())
        done.set()
        await creating
    for each in created:
        assert RESOURCE in each["spec"]["containers"][0]["resources"]["limits"]
