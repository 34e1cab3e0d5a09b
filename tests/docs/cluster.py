"""The cluster for the commands of the documentation: stand-ins, and processes of this machine.

The Deployments of webhook and certs and the DaemonSet of the plugin become processes once they are
applied. Everything else is only stored.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal

from services.bitstreams.storage import BitstreamStorage
from simulator.apiserver.resources import Resource, resource
from simulator.apiserver.standin import ApiServerStandIn, Options
from simulator.bitstreams import make_gbs
from simulator.cards import NLB0, NLB3, CardSpec, Rack
from simulator.driver import raw_bitstream
from tests.manifests.rendering import NAMESPACE
from tests.manifests.running import (
    WEBHOOK,
    bundled,
    certs,
    is_ready,
    mounted,
    start_webhook,
)
from tests.support import Processes, eventually, python_module

Json = dict[str, Any]

NODE = "worker-1"
INTERFACE = "ce48969398f05f33946d560708be108a"
OTHER_NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-2"}}
"""For pages that name a second node; nothing runs there."""
EVERY = 0.1

FURTHER = """
Deployment apps/v1 deploy
DaemonSet apps/v1 ds
ReplicaSet apps/v1 rs
Service v1 svc
ServiceAccount v1 sa
ConfigMap v1 cm
ResourceQuota v1 quota
Role rbac.authorization.k8s.io/v1
RoleBinding rbac.authorization.k8s.io/v1
ClusterRole rbac.authorization.k8s.io/v1 cluster
ClusterRoleBinding rbac.authorization.k8s.io/v1 cluster
NetworkPolicy networking.k8s.io/v1
PodDisruptionBudget policy/v1
ValidatingAdmissionPolicy admissionregistration.k8s.io/v1 cluster
ValidatingAdmissionPolicyBinding admissionregistration.k8s.io/v1 cluster
PodMonitor monitoring.coreos.com/v1
ServiceMonitor monitoring.coreos.com/v1
PrometheusRule monitoring.coreos.com/v1
FpgaDevicePlugin deviceplugin.intel.com/v1beta1 cluster
NodeFeatureRule nfd.k8s-sigs.io/v1alpha1 cluster
"""
"""Kinds that the stand-in only stores: kind, version, short name or `cluster` for its scope."""


def _resource(kind: str, api_version: str, word: str = "") -> Resource:
    return resource(
        kind,
        api_version,
        namespaced=word != "cluster",
        short_names=(word,) if word not in ("", "cluster") else (),
        subresources=frozenset({"status"}),
    )


class Cluster:
    """A stand-in for an API server, a node with two cards, and processes for workloads.

    The stand-in finds Services in `services`. The path of the folder is short enough for sockets.
    """

    def __init__(
        self,
        portal: BlockingPortal,
        api: ApiServerStandIn,
        services: dict[str, str],
        folder: Path,
        processes: Processes,
    ) -> None:
        self.portal, self.api, self.services = portal, api, services
        self.folder, self.processes = folder, processes
        self.kubeconfig = api.kubeconfig_path
        self._started: set[str] = set()
        self._over = threading.Event()
        self._controllers = threading.Thread(target=self._control)

    def start(self) -> None:
        rack = Rack(self.folder / "root")
        for _ in range(2):
            rack.add_card(CardSpec(interface_id=INTERFACE, afu_ids=(NLB0,)))
        source = self.folder / "new.gbs"
        source.write_bytes(make_gbs(INTERFACE, NLB3, raw_bitstream(NLB3)))
        BitstreamStorage(self.folder / "bitstreams").install(source)
        ready = self.folder / "kubelet.ready"
        self.processes.start(
            python_module(
                "simulator.kubelet",
                *("--dir", self.folder, "--node-name", NODE, "--retry-seconds", "0.5"),
                *("--api-server", self.api.address, "--ready-file", ready),
            ),
            name="kubelet",
        )
        driver = ("--root", self.folder / "root")
        self.processes.start(python_module("simulator.driver", *driver), name="driver")
        eventually(ready.exists, what="the kubelet stand-in")
        self.portal.call(self.api.put, OTHER_NODE)
        self._controllers.start()

    def stop(self) -> None:
        self._over.set()
        if self._controllers.ident is not None:
            self._controllers.join(60)

    def get(self, kind: str, name: str, namespace: str) -> Json:
        """Return an object; empty if there is none."""
        return self.portal.call(partial(self.api.get, kind, name, namespace)) or {}

    def _control(self) -> None:
        while not self._over.wait(EVERY):
            for kind in ("Deployment", "DaemonSet"):
                for item in self.portal.call(self.api.objects, kind):
                    self._reconcile(kind, item)

    def _reconcile(self, kind: str, item: Json) -> None:
        metadata = item["metadata"]
        name = metadata["name"]
        if name not in self._started and metadata["namespace"] == NAMESPACE:
            start = getattr(self, f"_start_{name.removeprefix('accelbind-')}", None)
            if start is not None:
                if not start():
                    return
                self._started.add(name)
        if item.get("status", {}).get("observedGeneration") != metadata["generation"]:
            strategy = {"type": "RollingUpdate"} | item["spec"].get("updateStrategy", {})
            spec = item["spec"] | {"updateStrategy": strategy}  # with the default
            changed = item | {"spec": spec, "status": _rolled_out(kind, item)}
            self.portal.call(self.api.put, changed)

    def _start_certs(self) -> bool:
        certs(self.processes, self.api.address)
        return True

    def _start_webhook(self) -> bool:
        """Start it once its Secret is complete; return whether it is ready and trusted."""
        tls, ports = self.folder / "tls", self.folder / "webhook.ports"
        if not tls.exists():
            if not mounted(self.get, tls):
                return False
            self._webhook = start_webhook(self.processes, self.api.address, tls, ports)
        if not ports.exists():
            return False
        served = self._webhook.ports(ports)
        if not is_ready(served["metrics"]):
            return False
        self.services[WEBHOOK] = f"127.0.0.1:{served['admission']}"
        return bundled(self.get)

    def _start_plugin(self) -> bool:
        """Start it once the DaemonSet selects the node; return whether it runs."""
        daemonset = self.get("DaemonSet", "accelbind-plugin", NAMESPACE)
        labels = self.get("Node", NODE, "").get("metadata", {}).get("labels") or {}
        selector = daemonset["spec"]["template"]["spec"]["nodeSelector"]
        if not selector.items() <= (labels | {"kubernetes.io/os": "linux"}).items():
            return False
        self.processes.simulated_plugin(
            *("--mode", "af", "--node-name", NODE, "--api-server", self.api.address),
            *("--root", self.folder / "root", "--kubelet-dir", self.folder),
            *("--pod-logs-dir", self.folder / "pod-logs", "--state-dir", self.folder / "state"),
            *("--bitstreams", self.folder / "bitstreams", "--scan-interval", "1"),
            *("--metrics-host", "127.0.0.1", "--metrics-port", "0"),
        )
        return True


def _rolled_out(kind: str, item: Json) -> Json:
    """Return the status of a workload whose pods all run."""
    generation = {"observedGeneration": item["metadata"]["generation"]}
    if kind == "DaemonSet":
        names = ("desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled")
        return generation | dict.fromkeys((*names, "numberAvailable", "numberReady"), 1)
    count = item["spec"].get("replicas", 1)
    replicas = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    available = {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"}
    return generation | dict.fromkeys(replicas, count) | {"conditions": [available]}


@contextmanager
def cluster(folder: Path, short: Path) -> Iterator[Cluster]:
    """A cluster without accelbind; `short` is for the node's files and sockets."""
    services: dict[str, str] = {}
    processes = Processes(folder)
    with start_blocking_portal() as portal:
        api = ApiServerStandIn(folder, Options(services=services))
        for line in FURTHER.split("\n")[1:-1]:
            further = _resource(*line.split())
            api.table.put(further)
            api.store.shelf(further)
        with portal.wrap_async_context_manager(api):
            made = Cluster(portal, api, services, short, processes)
            try:
                made.start()
                yield made
            finally:
                made.stop()
                left = list(processes.close())
    assert left == []
