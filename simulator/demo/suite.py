"""Starts the demo's cluster: nodes with synthetic devices, stand-ins, webhook and plugins."""

import base64
import shutil
from collections.abc import Iterator
from pathlib import Path

from certs.folder import IssuedPaths, issue
from services.bitstreams.storage import BitstreamStorage
from services.mappings.kinds import TABLE
from services.names import UNIT_RESOURCE
from simulator.bitstreams import OPENCL_AFU, make_aocx, make_gbs
from simulator.cards import lay_out
from simulator.client import Client, Json
from simulator.demo import cluster
from simulator.demo.cluster import NodePlan, World
from simulator.demo.stage import Stage
from simulator.devices import DEVICES, DeviceTree
from simulator.driver import raw_bitstream

HOST = "127.0.0.1"
SCAN_SECONDS = "1"
WEBHOOK = "pods.accelbind.dev"
LAST_CHECK = "last-check.accelbind.dev"

ASKS_FOR_ACCELERATORS = """
has(object.spec) && object.spec != null &&
[dyn([object.spec]), object.spec.?containers.orValue([]),
 object.spec.?initContainers.orValue([])].exists(l,
  l != null && l.exists(c, has(c.resources) && c.resources != null &&
    [c.resources.?limits.orValue({}), c.resources.?requests.orValue({})].exists(m,
      m != null && m.exists(k, k.startsWith('fpga.intel.com/') || k.startsWith('accelbind.dev/')))))
""".strip()
"""The condition for which the API server calls the webhook: other pods never wait for it."""


def api_server(folder: Path) -> str:
    """The address of the API server of a stage with this folder."""
    return f"unix:{folder}/api/api.sock"


def raise_suite(stage: Stage, world: World, api: Client) -> None:
    """Start everything in a stage, and wait until all of it serves."""
    folder = stage.folder
    issued = issue(folder / "tls", ["localhost", HOST])
    ports = ("--ports-file", folder / "api-server.ports")
    stage.start("api-server", "simulator.apiserver", "--dir", folder / "api", *ports)
    _start_webhook(stage, issued, world.folder)
    stage.announced(folder / "api-server.ports", "the API server stand-in")
    for plan in world.nodes:
        _start_node(stage, plan)
    webhook_port = stage.announced(folder / "webhook.ports", "the webhook")["admission"]
    url = f"https://{HOST}:{webhook_port}"
    for namespace in set(world.namespaces) - {cluster.NAMESPACE}:
        made = {"kind": "Namespace", "metadata": {"name": namespace}}
        api.ask("POST", "/api/v1/namespaces", body=made)
    register(api, url, issued.ca_certificate, world)
    for plan in world.nodes:
        stage.announced(folder / f"plugin-{plan.name}.ports", f"the plugin of {plan.name}")


def _start_webhook(stage: Stage, issued: IssuedPaths, mappings: Path) -> None:
    stage.start(
        "webhook",
        "accelbind",
        *("webhook", "--host", HOST, "--port", "0"),
        *("--metrics-host", HOST, "--metrics-port", "0"),
        *("--tls-cert", issued.certificate, "--tls-key", issued.key),
        *("--mappings", mappings),
        *("--ports-file", stage.folder / "webhook.ports"),
    )


def settings_of(folder: Path, plan: NodePlan) -> dict[str, str | Path]:
    """The settings with which commands find a node, as its plugin does, by name."""
    home = folder / plan.name
    return {
        "api-server": api_server(folder),
        "mode": plan.mode,
        "node-name": plan.name,
        "root": plan.root or home / "root",
        "kubelet-dir": home,
        "pod-logs-dir": home / "pod-logs",
        "state-dir": home / "state",
        "device-types": plan.types or home / "types",
        "bitstreams": home / "bitstreams",
        "metrics-host": HOST,
    }


def _start_node(stage: Stage, plan: NodePlan) -> None:
    """Start a node: devices, kubelet, plugin. Its folders are short, for the sockets in them."""
    home, settings = stage.folder / plan.name, settings_of(stage.folder, plan)
    prepare_node(home, plan, home / "root")
    if plan.cards:
        driver = ("--root", home / "root", "--log", driver_log(stage.folder, plan))
        stage.start(f"driver-{plan.name}", "simulator.driver", *driver)
    stage.start(
        f"kubelet-{plan.name}",
        "simulator.kubelet",
        *("--dir", home, "--retry-seconds", "1"),
        *("--node-name", plan.name, "--api-server", api_server(stage.folder)),
        *(f"--other={resource}={number}" for resource, number in plan.others.items()),
    )
    stage.start(
        f"plugin-{plan.name}",
        "simulator.command",
        *("plugin", *(f"--{name}={value}" for name, value in settings.items())),
        *("--scan-interval", SCAN_SECONDS, "--metrics-port", "0"),
        *("--ports-file", stage.folder / f"plugin-{plan.name}.ports"),
        *(("--units", plan.capacity[UNIT_RESOURCE]) if UNIT_RESOURCE in plan.capacity else ()),
    )


def driver_log(folder: Path, plan: NodePlan) -> Path:
    return folder / plan.name / "driver.jsonl"


def prepare_node(home: Path, plan: NodePlan, root: Path) -> None:
    lay_out(root, plan.cards)
    tree, types = DeviceTree(root), home / "types"
    types.mkdir(exist_ok=True)
    for number, name in enumerate(plan.devices):
        DEVICES[name](tree, number)
        shutil.copy(cluster.device_type(name), types)
    storage, source = BitstreamStorage(home / "bitstreams"), home / "new.gbs"
    for interface_id, afu_id in plan.bitstreams:
        source.write_bytes(make_bitstream(interface_id, afu_id))
        storage.install(source)
        source.unlink()


def make_bitstream(interface_id: str, afu_id: str) -> bytes:
    """A GBS, or an AOCX for the longer ids of OpenCL programs."""
    if len(afu_id) > len(OPENCL_AFU):
        return make_aocx(interface_id, afu_id, raw_bitstream(OPENCL_AFU))
    return make_gbs(interface_id, afu_id, raw_bitstream(afu_id))


def register(api: Client, url: str, authority: Path, world: World) -> None:
    objects = list(webhook_configurations(url, authority))
    for obj in world.mappings:
        namespace = obj["metadata"].get("namespace", cluster.NAMESPACE)
        kind = TABLE[obj["kind"]]
        objects.append((f"/apis/{kind.api_version}/namespaces/{namespace}/{kind.plural}", obj))
    for path, obj in objects:
        place = f"{path}/{obj['metadata']['name']}"
        api.ask("PATCH", place, body=obj, content_type="application/apply-patch+yaml")


def webhook_configurations(url: str, authority: Path) -> Iterator[tuple[str, Json]]:
    """Two configurations, each with the path of its collection.

    `url` is where the API server reaches the webhook, `authority` the CA of its certificate.
    """
    bundle = base64.b64encode(authority.read_bytes()).decode()
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    for kind, name, path in (
        ("MutatingWebhookConfiguration", WEBHOOK, "mutate"),
        ("ValidatingWebhookConfiguration", LAST_CHECK, "validate"),
    ):
        condition = {"name": "asks-for-accelerators", "expression": ASKS_FOR_ACCELERATORS}
        webhook: Json = {
            "name": name,
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": f"{url}/{path}", "caBundle": bundle},
            "failurePolicy": "Fail",
            "matchConditions": [condition],
            "rules": [{"operations": ["CREATE"], **pods}],
            "sideEffects": "None",
            "timeoutSeconds": 5,
        }
        head: Json = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind}
        configuration = head | {"metadata": {"name": "accelbind"}, "webhooks": [webhook]}
        yield f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}s", configuration
