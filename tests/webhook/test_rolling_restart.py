"""A rolling restart under constant reviews: no pod is refused or lost.

As in a Deployment: the new replica is ready first, then the old one gets SIGTERM, and the Service
leads elsewhere only some time after that.
"""

import asyncio
import base64
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from certs.folder import issue
from simulator.apiserver.standin import ApiServerStandIn, Options
from tests.simulator.apiserver.support import CONFIGS, PODS, client_of
from tests.support import eventually_async
from tests.webhook.reviews import RESOURCE, mapping_yaml, pod
from tests.webhook.running import Webhook, start_webhook

NAMESPACE, SERVICE = "accelbind-system", "accelbind-webhook"
HOST = f"{SERVICE}.{NAMESPACE}.svc"
CLIENTS = 4


class Replicas:
    """Replicas of the webhook with one certificate, and the Service that leads to the newest.

    Args:
        folder: For their files.
        services: The stand-in's table of Services.
    """

    def __init__(self, folder: Path, services: dict[str, str]) -> None:
        self._folder = folder
        self._services = services
        self.running: list[Webhook] = []
        self._tls = issue(folder / "tls", [HOST])

    @property
    def authority(self) -> bytes:
        return self._tls.ca_certificate.read_bytes()

    async def start(self) -> None:
        folder = self._folder / f"replica-{len(self.running)}"
        folder.mkdir()
        tls = ("--tls-cert", self._tls.certificate, "--tls-key", self._tls.key)
        flags: list[str | Path] = ["--drain-seconds", "6", *tls]
        files = {"m.yaml": mapping_yaml()}
        newest = await asyncio.to_thread(start_webhook, folder, *flags, mappings=files)
        self.running.append(newest)

        async def is_ready() -> bool:
            return (await asyncio.to_thread(newest.plain, "/readyz")).status == 200

        await eventually_async(is_ready)

    def lead_to_newest(self) -> None:
        address = f"127.0.0.1:{self.running[-1].port}"
        self._services[HOST] = address

    async def replace(self, created: Callable[[], int]) -> None:
        """Replace the newest; `created` returns how many pods there are."""
        old = self.running[-1]
        await self.start()
        old.process.popen.send_signal(signal.SIGTERM)

        async def is_draining() -> bool:
            return (await asyncio.to_thread(old.plain, "/readyz")).status == 503

        await eventually_async(is_draining)
        late = created() + 3 * CLIENTS  # on new connections, since each answer closes its own
        await eventually_async(lambda: created() >= late)
        self.lead_to_newest()
        assert await asyncio.to_thread(old.process.wait, 60) == 0
        assert old.events("closed connections with unanswered requests") == []


def configuration(authority: bytes) -> dict[str, Any]:
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"]}
    service = {"namespace": NAMESPACE, "name": SERVICE, "path": "/mutate"}
    hook = {
        "name": "pods.accelbind.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "rules": [rule | {"resources": ["pods"]}],
        "clientConfig": {"service": service, "caBundle": base64.b64encode(authority).decode()},
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "accelbind"},
        "webhooks": [hook],
    }


@pytest.mark.anyio
async def test_a_rolling_restart_loses_no_admission(tmp_path: Path) -> None:
    services: dict[str, str] = {}
    replicas = Replicas(tmp_path, services)
    created: list[str] = []
    options = Options(services=services, schedule=False)
    try:
        async with ApiServerStandIn(tmp_path, options) as api, client_of(api) as http:
            await replicas.start()
            replicas.lead_to_newest()
            made = await http.post(
                f"{CONFIGS}/mutatingwebhookconfigurations", json=configuration(replicas.authority)
            )
            assert made.status_code == 201, made.text

            async def create_pods() -> None:
                while not done.is_set():
                    wanted = pod()
                    wanted["metadata"] |= {"name": None, "generateName": "nlb-"}
                    answer = await http.post(PODS, json=wanted)
                    assert answer.status_code == 201, answer.text
                    (container,) = answer.json()["spec"]["containers"]
                    assert RESOURCE in container["resources"]["limits"]
                    created.append(answer.json()["metadata"]["name"])

            done = asyncio.Event()
            creating = [asyncio.create_task(create_pods()) for _ in range(CLIENTS)]
            await replicas.replace(lambda: len(created))
            done.set()
            await asyncio.gather(*creating)
    finally:
        for each in replicas.running:
            each.process.kill()
