"""What `accelbind doctor` looks at in a cluster: the API server, workloads, nodes.

Each check asks by itself, bounded in time and size, and without the answer of the others. Where the
API server is out of reach, one check says why, and the others that they couldn't be looked at.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from accelbind.doctor.model import Check, Line, Once, Unseen, failed, ok, skipped, warning
from services.admission.findings import add_advertised
from services.devices.model import PluginMode
from services.kube.client import Answer, BadStatus, ClusterClient
from services.kube.config import load_config
from services.names import UNIT_RESOURCE
from services.process.errors import ClusterError
from services.process.text import plain

T = TypeVar("T")
Json: TypeAlias = dict[str, Any]

OLDEST: Final = (1, 30)
"""The first version with all that the manifests need: matchConditions, admission policies."""
NEWEST: Final = (1, 36)
"""The last one that was tried."""

PAGE: Final = 200
MAX_OBJECTS: Final = 20_000

_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)")
MODE_ANNOTATION: Final = "fpga.intel.com/device-plugin-mode"
_MODES: Final = (PluginMode.AF, PluginMode.REGION, PluginMode.REGIONDEVEL)
_PUBLIC_PLUGINS: Final = ("intel-fpga-plugin", "accelerator-device-plugin", "fpgadeviceplugin")


@dataclass(slots=True)
class Cluster:
    """A cluster that is looked at.

    Args:
        kubeconfig: How to reach its API server, if a file says it.
        namespace: Where accelbind runs.
        prefixes: Our domains, each with its slash.
    """

    kubeconfig: Path | None
    namespace: str
    prefixes: tuple[str, ...]
    version: Once[Json] = field(init=False)
    nodes: Once[list[Json]] = field(init=False)

    def __post_init__(self) -> None:
        self.version = Once(self._version)
        self.nodes = Once(lambda: self.items("/api/v1/nodes", keep=_of_node))

    # Asking -----------------------------------------------------------------------------------

    def get(self, path: str, **params: str | int) -> Json | None:
        """The object at a path, None where there is none.

        Raises:
            Unseen: We may not see it.
            ClusterError: It can't be had.
        """
        self.reached()
        return self.ask(lambda client: _get(client, path, params))

    def items(
        self, path: str, *, keep: Callable[[Json], Json | None] = dict, **params: str | int
    ) -> list[Json]:
        """The objects of a list; none where nothing of the kind is served.

        Args:
            path: The list's.
            keep: What of an object is kept, None for nothing: a large cluster has many.
            params: Query parameters.

        Raises:
            Unseen: We may not see it.
            ClusterError: It can't be had.
        """
        self.reached()
        return self.ask(lambda client: _items(client, path, keep, params))

    def post(self, path: str, bodies: Sequence[Json]) -> list[Answer]:
        """What is answered to each of some questions. Raises as `get`."""
        self.reached()

        async def work(client: ClusterClient) -> list[Answer]:
            return [await client.request("POST", path, body=body) for body in bodies]

        return self.ask(work)

    def ask(self, work: Callable[[ClusterClient], Awaitable[T]]) -> T:
        """What comes of questions that a client is given to. Raises as `get`."""

        async def whole() -> T:
            config = load_config(self.kubeconfig)
            if config is None:
                raise ClusterError("nothing says how to reach an API server: name a kubeconfig")
            async with ClusterClient(config) as client:
                return await work(client)

        try:
            return asyncio.run(whole())
        except ClusterError as error:
            status = error if isinstance(error, BadStatus) else error.__cause__
            if isinstance(status, BadStatus) and status.status == _FORBIDDEN:
                raise Unseen(str(error)) from error
            raise

    def reached(self) -> None:
        """Whether the API server answers at all.

        Raises:
            Unseen: It doesn't; another check says why.
        """
        try:
            self.version()
        except ClusterError as error:
            raise Unseen("the API server does not answer: see cluster.api-server") from error

    def _version(self) -> Json:
        return self.ask(lambda client: _get(client, "/version", {})) or {}

    # Looking ----------------------------------------------------------------------------------

    def checks(self) -> list[Check]:
        """All that this module looks at."""
        return [
            Check("cluster.api-server", "Does the API server answer?", self.api_server),
            Check("cluster.workloads", "Do our workloads run?", self.workloads),
            Check("cluster.other-suites", "Is no other FPGA suite left?", self.other_suites),
            Check("cluster.nodes", "Do nodes have accelerators to give?", self.of_nodes),
        ]

    def api_server(self) -> Iterator[Line]:
        """Where it is, and its version."""
        try:
            told = str(self.version().get("gitVersion", ""))
        except ClusterError as error:
            yield failed(str(error), "try kubectl get --raw /version with the same --kubeconfig")
            return
        found = _VERSION.match(told)
        release = (int(found[1]), int(found[2])) if found else NEWEST
        if release < OLDEST:
            yield warning(
                f"Kubernetes {plain(told)} is older than 1.{OLDEST[1]}",
                "the manifests need matchConditions and admission policies: docs/migration.md",
            )
        yield ok(f"it answers, Kubernetes {plain(told) or '(no version told)'}")

    def workloads(self) -> Iterator[Line]:
        """Deployments and DaemonSets of ours, and why their pods aren't ready."""
        where = f"/namespaces/{self.namespace}"
        found = False
        for kind, plural in (("Deployment", "deployments"), ("DaemonSet", "daemonsets")):
            for item in self.items(f"/apis/apps/v1{where}/{plural}"):
                found = True
                yield _of_workload(kind, item, self.namespace)
        for pod in self.items(f"/api/v1{where}/pods", keep=_unless_ready):
            found = True
            yield from _of_pod(pod)
        if not found:
            yield skipped(
                f"nothing runs in namespace {self.namespace} (--namespace names another one)"
            )

    def other_suites(self) -> Iterator[Line]:
        """What is left of the suites that accelbind takes over from."""
        for item in self.items("/apis/deviceplugin.intel.com/v1/fpgadeviceplugins"):
            name = plain(str(_metadata(item).get("name")))
            yield failed(
                f"FpgaDevicePlugin {name}: the operator re-creates its DaemonSet",
                f"kubectl delete fpgadeviceplugin {name} (docs/migration.md tells the order)",
            )
        for item in self.items("/apis/apps/v1/daemonsets"):
            metadata = _metadata(item)
            name, namespace = str(metadata.get("name")), str(metadata.get("namespace"))
            if any(word in name for word in _PUBLIC_PLUGINS):
                owned = " (its operator re-creates it)" if metadata.get("ownerReferences") else ""
                yield failed(
                    f"DaemonSet {plain(namespace)}/{plain(name)} offers the same devices{owned}",
                    "end it before accelbind's plugin serves its nodes: docs/migration.md",
                )

    def of_nodes(self) -> Iterator[Line]:
        """What nodes offer of our domains."""
        offering = 0
        for node in self.nodes():
            metadata = _metadata(node)
            name = plain(str(metadata.get("name")))
            mode = (metadata.get("annotations") or {}).get(MODE_ANNOTATION)
            if mode is not None and mode not in _MODES:
                yield failed(
                    f"node {name} is annotated {MODE_ANNOTATION}={plain(str(mode))}, no mode",
                    f"kubectl annotate node {name} --overwrite {MODE_ANNOTATION}=af",
                )
            amounts = add_advertised({}, node, (*self.prefixes, UNIT_RESOURCE))
            gone = sorted(resource for resource, count in amounts.items() if not count)
            if gone:
                yield warning(
                    f"node {name} knows {', '.join(map(plain, gone))}, but has none to give",
                    f"accelbind doctor on {name}; of a resource that is no more the kubelet keeps"
                    " the name, past its restarts, and that harms nobody",
                )
            offering += any(amounts.values())
        if offering:
            yield ok(f"{offering} node{'s offer' if offering != 1 else ' offers'} accelerators")
        else:
            yield failed(
                f"none of {len(self.nodes())} nodes offers an accelerator",
                "accelbind doctor on a node with cards; kubectl get pods -o wide -n"
                f" {self.namespace} tells where plugins run. Where such nodes come on demand only:"
                " --skip cluster.nodes",
            )


def _of_workload(kind: str, item: Json, namespace: str) -> Line:
    name, status = plain(str(_metadata(item).get("name"))), item.get("status") or {}
    if kind == "DaemonSet":
        wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    else:
        wanted = (item.get("spec") or {}).get("replicas", 1)
        ready = status.get("readyReplicas", 0)
    told = f"{kind} {name}: {ready} of {wanted} ready"
    if ready < wanted:
        command = f"kubectl describe {kind.lower()} -n {namespace} {name}"
        return failed(told, f"its pods say why; {command}")
    if not wanted:
        return warning(told, "no node fits its selector" if kind == "DaemonSet" else "scale it up")
    return ok(told)


def _of_node(node: Json) -> Json:
    """What is looked at of a node."""
    metadata, status = _metadata(node), node.get("status") or {}
    return {
        "metadata": {name: metadata.get(name) for name in ("name", "annotations", "labels")},
        "spec": {"taints": (node.get("spec") or {}).get("taints")},
        "status": {name: status.get(name) for name in ("capacity", "allocatable")},
    }


def _unless_ready(pod: Json) -> Json | None:
    """A pod that should be ready and isn't."""
    status = pod.get("status") or {}
    over = status.get("phase") == "Succeeded" or _metadata(pod).get("deletionTimestamp")
    ready = any(
        one.get("type") == "Ready" and one.get("status") == "True"
        for one in status.get("conditions") or ()
    )
    return None if over or ready else pod


def _of_pod(pod: Json) -> Iterator[Line]:
    """Why a pod isn't ready."""
    status, metadata = pod.get("status") or {}, _metadata(pod)
    conditions = {one.get("type"): one for one in status.get("conditions") or ()}
    namespace, name = plain(str(metadata.get("namespace"))), plain(str(metadata.get("name")))
    reasons = [*waiting(pod)] or [
        str(one.get("message"))
        for one in conditions.values()
        if one.get("status") != "True" and one.get("message")
    ]
    why = plain("; ".join(reasons), 500) or f"phase {status.get('phase')}"
    yield failed(
        f"pod {namespace}/{name} isn't ready: {why}",
        f"kubectl describe pod -n {namespace} {name}; kubectl logs -n {namespace} {name}",
    )


def waiting(pod: Json) -> Iterator[str]:
    """Why containers of a pod wait, a clause each."""
    status = pod.get("status") or {}
    for part in ("initContainerStatuses", "containerStatuses"):
        for one in status.get(part) or ():
            state = (one.get("state") or {}).get("waiting") or {}
            if state.get("reason"):
                yield f"{one.get('name')}: {state['reason']}: {state.get('message', '')}"


def _metadata(item: Json) -> Json:
    found = item.get("metadata")
    return found if isinstance(found, dict) else {}


async def _get(client: ClusterClient, path: str, params: Mapping[str, str | int]) -> Json | None:
    body = await client.get(path, params)
    return None if body is None else _object(body, path)


async def _items(
    client: ClusterClient,
    path: str,
    keep: Callable[[Json], Json | None],
    params: Mapping[str, str | int],
) -> list[Json]:
    found: list[Json] = []
    query: dict[str, str | int] = {"limit": PAGE, **params}
    while True:
        body = await client.get(path, query)
        if body is None:
            return found
        page = _object(body, path)
        kept = (keep(item) for item in page.get("items") or () if isinstance(item, dict))
        found += [item for item in kept if item is not None]
        token = (page.get("metadata") or {}).get("continue")
        if not token or len(found) > MAX_OBJECTS:
            return found
        query["continue"] = str(token)


def _object(body: bytes, path: str) -> Json:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ClusterError(f"the answer to GET {path} is no JSON: {plain(str(error))}") from error
    if not isinstance(value, dict):
        raise ClusterError(f"the answer to GET {path} is no object")
    return value
