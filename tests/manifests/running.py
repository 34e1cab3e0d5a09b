"""Real processes in the place of the manifests' pods, on an API server stand-in."""

import asyncio
import base64
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

from simulator.apiserver.standin import ApiServerStandIn, Options
from tests.manifests.rendering import NAMESPACE, WEBHOOK_KINDS, Json, rendered
from tests.support import Process, Processes, eventually_async

WEBHOOK = f"accelbind-webhook.{NAMESPACE}.svc"
TLS_SECRET = "accelbind-webhook-tls"  # noqa: S105 - its name
Get: TypeAlias = Callable[[str, str, str], Json | None]
"""Gives an object by kind, name and namespace."""


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[tuple[ApiServerStandIn, dict[str, str]]]:
    """A stand-in with what processes meet of the manifests, and where it finds Services."""
    services: dict[str, str] = {}
    async with ApiServerStandIn(folder, Options(services=services)) as api:
        for item in rendered("base"):
            if item["kind"] in ("Namespace", *WEBHOOK_KINDS):
                api.put(item)
        yield api, services


def certs(processes: Processes, api_server: str) -> Process:
    return processes.accelbind(
        *("certs", "run", "--api-server", api_server, "--namespace", NAMESPACE),
        *("--metrics-port", "0", "--interval", "1s"),
        name="certs",
    )


def mounted(get: Get, folder: Path) -> bool:
    """Write the serving Secret into a folder once it is whole, as a kubelet does."""
    data: Json = (get("Secret", TLS_SECRET, NAMESPACE) or {}).get("data") or {}
    items = ("tls.crt", "tls.key")
    if not all(data.get(key) for key in items):
        return False
    folder.mkdir(exist_ok=True)
    for key in items:
        (folder / key).write_bytes(base64.b64decode(data[key]))
    return True


def bundled(get: Get) -> bool:
    """Whether all webhooks of both configurations have a CA bundle."""
    found = [get(kind, "accelbind", "") or {} for kind in WEBHOOK_KINDS]
    hooks = [hook for each in found for hook in each.get("webhooks", ())]
    return bool(hooks) and all(hook["clientConfig"].get("caBundle") for hook in hooks)


def is_ready(port: int) -> bool:
    """Whether a Service would lead to who has this plain port."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=60) as answer:
            return bool(answer.status == 200)
    except OSError:  # HTTPError is one
        return False


async def webhook(
    processes: Processes, api: ApiServerStandIn, folder: Path, services: dict[str, str]
) -> None:
    """The webhook behind its Service, with the certificate of the Secret."""
    tls, file = folder / "tls", folder / "webhook.json"
    await eventually_async(lambda: mounted(api.get, tls))
    process = processes.accelbind(
        *("webhook", "--tls-cert", tls / "tls.crt", "--tls-key", tls / "tls.key"),
        *("--api-server", api.address, "--port", "0", "--metrics-port", "0"),
        *("--ports-file", file, "--drain-seconds", "0"),
    )
    ports = await asyncio.to_thread(process.ports, file)
    ready = partial(is_ready, ports["metrics"])
    await eventually_async(lambda: asyncio.to_thread(ready))
    services[WEBHOOK] = f"127.0.0.1:{ports['admission']}"
    await eventually_async(lambda: bundled(api.get))


def plugin(
    processes: Processes, folder: Path, api: ApiServerStandIn, *, enforced: bool = False
) -> Process:
    return processes.accelbind(
        *("plugin", "--root", folder / "root", "--kubelet-dir", folder / "k"),
        *("--node-name", "n1", "--metrics-host", "127.0.0.1", "--metrics-port", "0"),
        *("--api-server", api.address, "--state-dir", folder / "state"),
        *("--pod-logs-dir", folder / "k" / "pod-logs", "--scan-interval", "0.1"),
        *("--ports-file", folder / "ports", "--bitstreams", folder / "bitstreams"),
        *("--enforce-mappings", "always" if enforced else "auto"),
    )
