"""A deployment that was written for the public suite, taken over as docs/migration.md tells.

Definitions, mappings and pods are as that suite's users have them. A plugin of the tests' own, with
the public one's socket names, device ids and answers, stands for the suite's.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from accelbind.plain_port import PlainPort
from certs.folder import issue
from services.bitstreams.storage import BitstreamStorage
from services.names import DOMAIN, function_name
from simulator.apiserver.standin import ApiServerStandIn
from simulator.bitstreams import make_gbs
from simulator.cards import CardSpec, Rack
from simulator.driver import raw_bitstream
from simulator.kubelet.standin import KubeletStandIn
from tests.accelbind.doctor import answers as cluster
from tests.accelbind.doctor.answers import Json
from tests.plugin.support import AF, container, pod, running, settings
from tests.simulator.apiserver.support import MERGE, NODES, PODS, client_of, created
from tests.simulator.kubelet.fake_plugin import FakePlugin, devices
from tests.support import Processes, eventually_async, python_module

pytestmark = pytest.mark.anyio

A10 = "69528db6eb31577a8c3668f9faa081f6"
NLB0 = "d8424dc4a4a3c413f89e433683f9040b"
NLB3 = "f7df405cbd7acf7222f144b0b93acd18"
NLB3_RESOURCE = f"{DOMAIN}/{function_name(A10, NLB3)}"
GIVEN = "simulator.accelbind.dev/containers"
OLD_CONFIGURATION = "intelfpgawebhook-mutating-webhook-configuration"

ID = "^[0-9a-f]{8,32}$"
MODE = {"type": "string", "pattern": "^af|region$"}
SPECS: dict[str, Json] = {
    "AcceleratorFunction": {
        "afuId": {"type": "string", "pattern": "^[0-9a-f]{8,40}$"},
        "interfaceId": {"type": "string", "pattern": ID},
        "mode": MODE,
    },
    "FpgaRegion": {"interfaceId": {"type": "string", "pattern": ID}},
}
"""The fields of both kinds in the suite's definitions."""


def definition(kind: str) -> Json:
    """A definition of the public suite."""
    spec = {"type": "object", "required": [*SPECS[kind]], "properties": SPECS[kind]}
    parts = {"spec": spec, "status": {"type": "object"}}
    schema = {"type": "object", "required": ["spec"], "properties": parts}
    version = {"name": "v2", "served": True, "storage": True}
    names = {"kind": kind, "plural": f"{kind.lower()}s", "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.lower()}s.fpga.intel.com"},
        "spec": {
            "group": "fpga.intel.com",
            "scope": "Namespaced",
            "names": names | {"listKind": f"{kind}List"},
            "versions": [version | {"schema": {"openAPIV3Schema": schema}}],
        },
    }


COLLECTION = f"""
# One card's image: the region, and two functions in both modes
apiVersion: fpga.intel.com/v2
kind: FpgaRegion
metadata: {{name: arria10.dcp1.2}}
spec: {{interfaceId: {A10}}}
---
apiVersion: fpga.intel.com/v2
kind: AcceleratorFunction
metadata: {{name: arria10.dcp1.2-nlb0-orchestrated}}
spec: {{afuId: {NLB0}, interfaceId: {A10}, mode: region}}
---
apiVersion: fpga.intel.com/v2
kind: AcceleratorFunction
metadata: {{name: arria10.dcp1.2-nlb3-preprogrammed}}
spec: {{afuId: {NLB3}, interfaceId: {A10}, mode: af}}
---
# Of an OpenCL image, whose id is longer
apiVersion: fpga.intel.com/v2
kind: AcceleratorFunction
metadata: {{name: d5005-matrix-orchestrated}}
spec:
  afuId: 40007c0623210742000ebc58df6f5343e668b03a
  interfaceId: bfac4d851ee856fe8c95865ce1bbaa2d
  mode: region
"""

DEMO = """
apiVersion: v1
kind: Pod
metadata: {{name: demo-{name}}}
spec:
  containers:
  - name: test-container
    image: registry.example/opae-nlb-demo:1
    imagePullPolicy: IfNotPresent
    securityContext: {{capabilities: {{add: [IPC_LOCK]}}}}
    resources:
      limits: {{"fpga.intel.com/{resource}": 1, cpu: 1, hugepages-2Mi: 20Mi}}
  restartPolicy: Never
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def demo(name: str, resource: str) -> Json:
    found: Json = yaml.safe_load(DEMO.format(name=name, resource=resource))
    return found


@dataclass
class Stage:
    """The cluster: an API server, a node for each mode, what stands for the old suite."""

    folder: Path
    api: ApiServerStandIn
    http: httpx2.AsyncClient
    processes: Processes

    def home(self, node: str) -> Path:
        """What `/var/lib/kubelet` is: the public names of sockets leave little room before them."""
        return self.folder if node == "af" else self.folder / "r"

    def start_kubelet(self, node: str) -> None:
        home, ready = self.home(node), self.folder / f"{node}.ready"
        self.processes.start(
            python_module(
                "simulator.kubelet",
                *("--dir", home, "--node-name", node, "--retry-seconds", "0.2"),
                *("--kubeconfig", self.api.kubeconfig_path, "--ready-file", ready),
            ),
            name=f"kubelet-{node}",
        )

    def start_plugin(self, node: str, mode: str) -> None:
        home = self.home(node)
        self.processes.simulated_plugin(
            *("--mode", mode, "--root", home / "root", "--kubelet-dir", home),
            *("--pod-logs-dir", home / "pod-logs", "--state-dir", home / "state"),
            *("--bitstreams", home / "bitstreams", "--scan-interval", "1"),
            *("--kubeconfig", self.api.kubeconfig_path, "--node-name", node),
            *("--metrics-host", "127.0.0.1", "--metrics-port", "0"),
            name=f"plugin-{node}",
        )

    async def pod(self, name: str) -> Json:
        found: Json = (await self.http.get(f"{PODS}/{name}")).json()
        return found

    async def running(self, name: str) -> Json:
        async def look() -> Json | None:
            found = await self.pod(name)
            return found if found.get("status", {}).get("phase") == "Running" else None

        return await eventually_async(look, timeout=120, what=f"pod {name} running") or {}

    async def has(self, node: str, resource: str, count: str) -> None:
        async def look() -> bool:
            status = (await self.http.get(f"{NODES}/{node}")).json().get("status", {})
            return bool(status.get("allocatable", {}).get(resource) == count)

        await eventually_async(look, timeout=120, what=f"{count} of {resource} on {node}")


@pytest.fixture
async def stage(
    short_dir: Path, tmp_path: Path, processes: Processes, anyio_backend: str
) -> AsyncIterator[Stage]:
    assert anyio_backend
    async with ApiServerStandIn(tmp_path) as api, client_of(api) as http:
        yield Stage(short_dir, api, http, processes)


def allocated(pod: Json, resource: str) -> list[str]:
    given = json.loads(pod["metadata"]["annotations"][GIVEN])["test-container"]
    found: list[str] = given["allocated"][resource]
    return found


async def furnish_as_the_public_suite(stage: Stage) -> None:
    """Definitions, mappings, and a webhook that nobody runs any more and that lets pods pass."""
    for kind in SPECS:
        stage.api.put(definition(kind))
    for each in yaml.safe_load_all(COLLECTION):
        path = f"/apis/fpga.intel.com/v2/namespaces/default/{each['kind'].lower()}s"
        await created(stage.http, path, each)
    (configuration,) = cluster.documents("base/webhook-mutating.yaml")
    configuration["metadata"] = {"name": OLD_CONFIGURATION}
    configuration["webhooks"] = [
        configuration["webhooks"][0]
        | {
            "name": "fpga.mutator.webhooks.intel.com",
            "clientConfig": {"url": "https://127.0.0.1:9/pods"},
            "failurePolicy": "Ignore",
            "matchConditions": [],
        }
    ]
    stage.api.put(configuration)


async def start_nodes(stage: Stage) -> None:
    """A node for each mode, with cards, and pages for the demo's buffers."""
    rack = Rack(stage.home("af") / "root")
    for _ in range(2):
        rack.add_card(CardSpec(driver="opae", interface_id=A10, afu_ids=(NLB3,)))
    region = stage.home("region")
    Rack(region / "root").add_card(CardSpec(interface_id=A10, afu_ids=(NLB3,)))
    source = stage.folder / "new.gbs"
    source.write_bytes(make_gbs(A10, NLB0, raw_bitstream(NLB0)))
    BitstreamStorage(region / "bitstreams").install(source)
    stage.processes.start(
        python_module("simulator.driver", "--root", region / "root"), name="driver"
    )
    for node in ("af", "region"):
        stage.start_kubelet(node)
    for node in ("af", "region"):
        await eventually_async((stage.folder / f"{node}.ready").exists, timeout=120)
        pages = {"status": {part: {"hugepages-2Mi": "1Gi"} for part in ("capacity", "allocatable")}}
        done = await stage.http.patch(f"{NODES}/{node}/status", json=pages, headers=MERGE)
        assert done.status_code == 200


def start_webhook(stage: Stage) -> tuple[int, bytes]:
    tls, ports = stage.folder / "tls", stage.folder / "webhook.ports"
    issued = issue(tls, ["127.0.0.1"])
    process = stage.processes.accelbind(
        *("webhook", "--host", "127.0.0.1", "--port", "0"),
        *("--metrics-host", "127.0.0.1", "--metrics-port", "0"),
        *("--tls-cert", issued.certificate, "--tls-key", issued.key, "--ports-file", ports),
        *("--kubeconfig", stage.api.kubeconfig_path),
    )
    found = process.ports(ports, timeout=120)
    return found["admission"], issued.ca_certificate.read_bytes()


async def migrate_cluster(stage: Stage) -> None:
    """Steps 1 to 3: definitions, our webhook beside the old one, then the old one's end."""
    for each in cluster.definitions():
        stage.api.put(each)
    port, bundle = await asyncio.to_thread(start_webhook, stage)
    for each in cluster.configurations(f"https://127.0.0.1:{port}", bundle):
        stage.api.put(each)
    await cluster.expect(stage.api, "cluster.other-webhooks", "failed")
    stage.api.drop("MutatingWebhookConfiguration", OLD_CONFIGURATION)
    for check in ("other-webhooks", "webhooks", "webhook-rules", "served", "definitions"):
        await cluster.expect(stage.api, f"cluster.{check}", "ok")


def container_of(pod: Json) -> dict[str, Any]:
    (found,) = pod["status"]["containerStatuses"]
    return {key: found[key] for key in ("restartCount", "state")}


@pytest.mark.timeout(900)
async def test_a_deployment_of_the_public_suite_goes_on_unchanged(stage: Stage) -> None:
    await furnish_as_the_public_suite(stage)
    await start_nodes(stage)
    endpoint = f"{NLB3_RESOURCE.replace('/', '-')}.sock"
    old = FakePlugin(
        stage.home("af"),
        devices("intel-fpga-port.0", "intel-fpga-port.1"),
        resource=NLB3_RESOURCE,
        endpoint=endpoint,
    )
    await old.serve()
    await old.register()
    await stage.has("af", NLB3_RESOURCE, "2")
    resolved = NLB3_RESOURCE.partition("/")[2]  # what the old webhook made of the logical name
    await created(stage.http, PODS, demo("before", resolved))
    before = await stage.running("demo-before")

    await migrate_cluster(stage)
    await old.stop()
    await stage.has("af", NLB3_RESOURCE, "0")
    stage.start_plugin("af", "af")
    stage.start_plugin("region", "region")
    await stage.has("af", NLB3_RESOURCE, "2")
    await stage.has("region", f"fpga.intel.com/region-{A10}", "1")

    await created(stage.http, PODS, demo("preprogrammed", "arria10.dcp1.2-nlb3-preprogrammed"))
    await created(stage.http, PODS, demo("orchestrated", "arria10.dcp1.2-nlb0-orchestrated"))
    preprogrammed = await stage.running("demo-preprogrammed")
    orchestrated = await stage.running("demo-orchestrated")
    after = await stage.pod("demo-before")

    assert container_of(after) == container_of(before), "nothing was restarted"
    held = allocated(after, NLB3_RESOURCE)
    assert held == allocated(before, NLB3_RESOURCE)
    assert allocated(preprogrammed, NLB3_RESOURCE) not in ([], held)
    assert preprogrammed["spec"]["nodeName"] == "af"
    assert orchestrated["spec"]["nodeName"] == "region"
    afu = stage.home("region").glob("root/sys/**/dfl-port.0/afu_id")
    assert {path.read_text().strip() for path in afu} == {NLB0}, "the function was programmed"
    refused = await stage.http.post(PODS, json=demo("misspelled", "arria10.dcp1.2-nlb3-pre"))
    assert (refused.status_code, "did you mean" in refused.text) == (403, True)
    for check in ("pending-pods", "nodes"):
        await cluster.expect(stage.api, f"cluster.{check}", "ok")


async def all_registered(ports: Path) -> None:
    def look() -> bool:
        if not ports.exists():
            return False
        port = json.loads(ports.read_text())["metrics"]
        status, answer = PlainPort("127.0.0.1", port).get("/readyz")
        return status == 200 and AF in answer.decode()

    async def in_thread() -> bool:
        return await asyncio.to_thread(look)

    await eventually_async(in_thread, timeout=120, what="the plugin's readiness")


@pytest.mark.parametrize("overlap", [False, True], ids=["one-after-the-other", "both-for-a-while"])
async def test_the_plugin_changes_under_a_container_in_either_order(
    short_dir: Path, *, overlap: bool
) -> None:
    """A container keeps its device, restarts with what it was given, and nobody else gets it."""
    rack = Rack(short_dir / "root")
    for _ in range(2):
        rack.add_card(CardSpec())
    old = FakePlugin(short_dir / "k", devices("dfl-port.0", "dfl-port.1"), resource=AF)
    async with KubeletStandIn(short_dir / "k", node_name="n1", retry_seconds=0.02) as kubelet:
        await old.serve()
        await old.register()
        await kubelet.until(lambda: kubelet.allocatable.get(AF) == 2)
        held = await kubelet.settled(await kubelet.admit(pod("held", container("c", AF))))
        (device,) = kubelet.in_use(AF)
        if not overlap:
            await old.stop()
            await kubelet.until(lambda: kubelet.allocatable.get(AF) == 0)
        async with running(settings(short_dir)):
            await all_registered(short_dir / "ports")
            if overlap:
                await old.stop()
                await all_registered(short_dir / "ports")
            await kubelet.until(lambda: kubelet.allocatable.get(AF) == 2)
            assert (held["c"].running, held["c"].restarts) == (True, 0)
            await kubelet.restart_container(held, "c")
            await kubelet.until(lambda: held["c"].running)
            assert kubelet.in_use(AF) == {device}
            new = await kubelet.settled(await kubelet.admit(pod("new", container("c", AF))))
            assert new["c"].running
            assert kubelet.in_use(AF) == {"dfl-port.0", "dfl-port.1"}
            third = await kubelet.admit(pod("third", container("c", AF)))
            assert third.message.startswith("Pod was rejected"), "both are taken"
