"""The cluster in which the documents' commands are tried: a stand-in that runs what it is sent.

Workloads of the manifests become processes of this machine: the Deployments of the certificates and
of the webhook, and the DaemonSet of the plugin on a node with cards. Everything else is kept.
"""

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal

from accelbind.doctor.node_fit import is_selected
from services.bitstreams.storage import BitstreamStorage
from simulator.apiserver.resources import Resource
from simulator.apiserver.standin import ApiServerStandIn, Options
from simulator.bitstreams import make_gbs
from simulator.cards import NLB0, NLB3, CardSpec, Rack
from simulator.driver import raw_bitstream
from tests.manifests.rendering import NAMESPACE
from tests.support import Processes, eventually, python_module

Json = dict[str, Any]

NODE = "worker-1"
INTERFACE = "ce48969398f05f33946d560708be108a"
SERVICE = f"accelbind-webhook.{NAMESPACE}.svc"
TLS_SECRET = "accelbind-webhook-tls"  # noqa: S105 - its name
EVERY = 0.1


_VERSIONS = {"deviceplugin.intel.com": "v1beta1", "nfd.k8s-sigs.io": "v1alpha1"}


def _resource(kind: str, group: str, *short: str, spread: bool = True, many: str = "") -> Resource:
    version = _VERSIONS.get(group, "v1")
    return Resource(
        group,
        version,
        many or f"{kind.lower()}s",
        kind,
        namespaced=spread,
        short_names=short,
        subresources=frozenset({"status"}),
        counts_generations=True,
    )


_RBAC, _MONITORING = "rbac.authorization.k8s.io", "monitoring.coreos.com"
_ADMISSION = "admissionregistration.k8s.io"
FURTHER = (
    _resource("Deployment", "apps", "deploy"),
    _resource("DaemonSet", "apps", "ds"),
    _resource("ReplicaSet", "apps", "rs"),
    _resource("Service", "", "svc"),
    _resource("ServiceAccount", "", "sa"),
    _resource("ConfigMap", "", "cm"),
    _resource("ResourceQuota", "", "quota"),
    _resource("Role", _RBAC),
    _resource("RoleBinding", _RBAC),
    _resource("ClusterRole", _RBAC, spread=False),
    _resource("ClusterRoleBinding", _RBAC, spread=False),
    _resource("NetworkPolicy", "networking.k8s.io", many="networkpolicies"),
    _resource("PodDisruptionBudget", "policy"),
    _resource(
        "ValidatingAdmissionPolicy", _ADMISSION, spread=False, many="validatingadmissionpolicies"
    ),
    _resource("ValidatingAdmissionPolicyBinding", _ADMISSION, spread=False),
    _resource("PodMonitor", _MONITORING),
    _resource("ServiceMonitor", _MONITORING),
    _resource("PrometheusRule", _MONITORING),
    _resource("FpgaDevicePlugin", "deviceplugin.intel.com", spread=False),
    _resource("NodeFeatureRule", "nfd.k8s-sigs.io", spread=False),
)
"""What the stand-in doesn't serve by itself: kept as it is sent, and nothing is made of it."""


class Cluster:
    """A stand-in for an API server, a node, and processes for the workloads that it is sent.

    Args:
        portal: to the event loop in which the stand-in serves.
        api: the stand-in.
        services: where it finds Services.
        folder: with a path short enough for unix sockets in it.
        processes: takes what is started.
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
        """Lays out the node, and begins to look for workloads."""
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
                *("--pod-logs-dir", self.folder / "logs", "--kubeconfig", self.kubeconfig),
                *("--ready-file", ready),
            ),
            name="kubelet",
        )
        driver = ("--root", self.folder / "root")
        self.processes.start(python_module("simulator.driver", *driver), name="driver")
        eventually(ready.exists, timeout=60, what="the kubelet stand-in")
        self._controllers.start()

    def stop(self) -> None:
        """Looks for workloads no more."""
        self._over.set()
        if self._controllers.ident is not None:
            self._controllers.join(60)

    def get(self, kind: str, name: str, namespace: str) -> Json | None:
        """An object; None if there is none."""
        return self.portal.call(partial(self.api.get, kind, name, namespace))

    def _control(self) -> None:
        while not self._over.wait(EVERY):
            for kind in ("Deployment", "DaemonSet"):
                for item in self.portal.call(self.api.objects, kind):
                    self._see_to(kind, item)

    def _see_to(self, kind: str, item: Json) -> None:
        metadata = item["metadata"]
        name, status = metadata["name"], item.get("status", {})
        if name not in self._started and metadata["namespace"] == NAMESPACE:
            begin = getattr(self, f"_begin_{name.removeprefix('accelbind-')}", None)
            if begin is not None:
                if not begin():
                    return
                self._started.add(name)
        if status.get("observedGeneration") != metadata["generation"]:
            strategy = {"type": "RollingUpdate"} | item["spec"].get("updateStrategy", {})
            spec = item["spec"] | {"updateStrategy": strategy}  # with the default
            changed = item | {"spec": spec, "status": _rolled_out(kind, item)}
            self.portal.call(self.api.put, changed)

    def _begin_certs(self) -> bool:
        self.processes.accelbind(
            *("certs", "run", "--kubeconfig", self.kubeconfig, "--namespace", NAMESPACE),
            *("--metrics-port", "0", "--interval", "1s"),
        )
        return True

    def _begin_webhook(self) -> bool:
        """Starts it once its Secret is whole, as a kubelet would; whether it serves."""
        secret = self.get("Secret", TLS_SECRET, NAMESPACE) or {}
        pair = {name: (secret.get("data") or {}).get(name) for name in ("tls.crt", "tls.key")}
        if not all(pair.values()):
            return False
        tls, ports = self.folder / "tls", self.folder / "webhook.ports"
        if not tls.exists():
            tls.mkdir()
            for name, value in pair.items():
                (tls / name).write_bytes(base64.b64decode(str(value)))
            self._webhook = self.processes.accelbind(
                *("webhook", "--tls-cert", tls / "tls.crt", "--tls-key", tls / "tls.key"),
                *("--kubeconfig", self.kubeconfig, "--host", "127.0.0.1", "--port", "0"),
                *(
                    "--metrics-host",
                    "127.0.0.1",
                    "--metrics-port",
                    "0",
                    "--ports-file",
                    ports,
                    "--drain-seconds",
                    "0",
                ),
            )
        if not ports.exists():
            return False
        self.services[SERVICE] = f"127.0.0.1:{self._webhook.ports(ports)['admission']}"
        return self._bundled()

    def _bundled(self) -> bool:
        kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        found = [self.get(kind, "accelbind", "") or {} for kind in kinds]
        hooks = [hook for each in found for hook in each.get("webhooks", [])]
        return bool(hooks) and all(hook["clientConfig"].get("caBundle") for hook in hooks)

    def _begin_plugin(self) -> bool:
        """Starts it once the DaemonSet selects the node; whether it runs."""
        daemonset = self.get("DaemonSet", "accelbind-plugin", NAMESPACE) or {}
        node = self.get("Node", NODE, "") or {}
        labels = (node.get("metadata") or {}).get("labels") or {}
        linux = {"metadata": {"labels": labels | {"kubernetes.io/os": "linux"}}}
        if not is_selected(daemonset["spec"]["template"]["spec"], linux):
            return False
        self.processes.simulated_plugin(
            *("--mode", "af", "--node-name", NODE, "--kubeconfig", self.kubeconfig),
            *("--root", self.folder / "root", "--kubelet-dir", self.folder),
            *("--pod-logs-dir", self.folder / "logs", "--state-dir", self.folder / "state"),
            *("--bitstreams", self.folder / "bitstreams", "--scan-interval", "1"),
            *("--metrics-host", "127.0.0.1", "--metrics-port", "0"),
            *("--ports-file", self.plugin_ports),
        )
        return True

    @property
    def plugin_ports(self) -> Path:
        """Where the plugin says which port it took."""
        return self.folder / "plugin.ports"


def _rolled_out(kind: str, item: Json) -> Json:
    """The status of a workload all of whose pods run."""
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
    """A cluster without accelbind, and its end.

    Args:
        folder: for the API server's files and the processes' outputs.
        short: for the node's files and sockets.
    """
    services: dict[str, str] = {}
    processes = Processes(folder)
    with start_blocking_portal() as portal:
        api = ApiServerStandIn(folder, Options(services=services))
        for resource in FURTHER:
            api.table.put(resource)
            api.store.shelf(resource)
        with portal.wrap_async_context_manager(api):
            made = Cluster(portal, api, services, short, processes)
            try:
                made.start()
                yield made
            finally:
                made.stop()
                left = list(processes.close())
    assert left == []
