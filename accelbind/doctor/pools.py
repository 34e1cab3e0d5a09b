"""What `accelbind doctor` checks about plugin DaemonSets: which nodes each of them covers.

A node with accelerators needs exactly one plugin. A node that lost its plugin, by an upgrade or
with its label, still lists its resources, so it is found here.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeVar

from accelbind.doctor.cluster import APPLY, Cluster, Json, metadata
from accelbind.doctor.model import Line, failed, ok, skipped, warning
from accelbind.doctor.node_fit import is_selected, untolerated_taints
from accelbind.doctor.workloads import MODE_ANNOTATION, read_nodes
from accelbind.output import count
from services.admission.findings import add_advertised
from services.containers.enforce import Enforce, is_enforced
from services.devices.model import PluginMode
from services.names import UNIT_RESOURCE
from services.process.text import plain

E = TypeVar("E", bound=StrEnum)

LABEL: Final = "accelbind.dev/plugin"
_CONTAINER: Final = "plugin"
_SHOWN: Final = 10
"""Nodes that a sentence names; a command names all of them."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A DaemonSet of the plugin: its name, and the spec of its pods."""

    name: str
    spec: Json

    @property
    def account(self) -> str:
        """The service account of its plugins."""
        return str(self.spec.get("serviceAccountName") or "default")

    @property
    def needs_only_our_label(self) -> bool:
        """Whether our label is all that a Linux node needs to be selected."""
        selector = self.spec.get("nodeSelector") or {}
        return (
            LABEL in selector
            and set(selector) <= {LABEL, "kubernetes.io/os"}
            and "affinity" not in self.spec
        )

    def uses(self, nodes: Sequence[Json]) -> Iterator[tuple[PluginMode, bool]]:
        """Yield the modes of its plugins, each with whether mappings are enforced there."""
        env = {
            str(each.get("name")): str(each.get("value"))
            for container in self.spec.get("containers") or ()
            if container.get("name") == _CONTAINER
            for each in container.get("env") or ()
        }
        enforce = _member(Enforce, env.get("ACCELBIND_ENFORCE_MAPPINGS"), Enforce.AUTO)
        own = _member(PluginMode, env.get("ACCELBIND_MODE"), PluginMode.AF)
        annotated = (
            (metadata(node).get("annotations") or {}).get(MODE_ANNOTATION)
            for node in nodes
            if is_selected(self.spec, node)
        )
        for mode in {own, *(_member(PluginMode, each, own) for each in annotated)}:
            yield mode, is_enforced(enforce, mode)


def read_pools(cluster: Cluster) -> list[Pool]:
    """The plugin's DaemonSets. Raises as `Cluster.get`."""
    pools = []
    for item in cluster.items(f"/apis/apps/v1/namespaces/{cluster.namespace}/daemonsets"):
        template = (item.get("spec") or {}).get("template") or {}
        spec = template.get("spec") or {}
        if any(each.get("name") == _CONTAINER for each in spec.get("containers") or ()):
            pools.append(Pool(str(metadata(item).get("name")), spec))
    return pools


def read_uses(cluster: Cluster) -> dict[str, set[tuple[PluginMode, bool]]]:
    """The modes in use by service account, each with whether mappings are enforced.

    Raises as `Cluster.get`.
    """
    nodes = cluster.once(read_nodes)
    found: dict[str, set[tuple[PluginMode, bool]]] = defaultdict(set)
    for pool in cluster.once(read_pools):
        found[pool.account].update(pool.uses(nodes))
    return found


def check_pools(cluster: Cluster) -> Iterator[Line]:
    """Nodes that no plugin serves, or two, or that have a taint against their plugin."""
    pools = cluster.once(read_pools)
    if not pools:
        yield _without_pools(cluster)
        return
    coverage = _Coverage(pools, _running(cluster), (*cluster.prefixes, UNIT_RESOURCE))
    for node in cluster.once(read_nodes):
        coverage.add(node)
    yield from coverage.lines(cluster.namespace)


def _without_pools(cluster: Cluster) -> Line:
    missing = f"there is no plugin DaemonSet in namespace {cluster.namespace}"
    nodes = [
        str(metadata(node).get("name"))
        for node in cluster.once(read_nodes)
        if _has_capacity(node, (*cluster.prefixes, UNIT_RESOURCE))
    ]
    if not nodes:
        return skipped(missing)
    verb = "has" if len(nodes) == 1 else "have"
    todo = f"if accelbind runs in another namespace, name it with -n; else {APPLY}"
    return failed(f"{missing}, but {_list_nodes(nodes)} {verb} accelerators", todo)


def _running(cluster: Cluster) -> set[tuple[str, str]]:
    """DaemonSet and node of each pod that runs."""
    path = f"/api/v1/namespaces/{cluster.namespace}/pods"
    return {
        (str(owner.get("name")), str(pod["spec"].get("nodeName")))
        for pod in cluster.items(path, keep=_pod_parts)
        for owner in pod["metadata"].get("ownerReferences") or ()
        if owner.get("kind") == "DaemonSet"
    }


def _pod_parts(pod: Json) -> Json | None:
    """What is needed of a pod; None for one that has ended."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return None
    return {
        "metadata": {"ownerReferences": metadata(pod).get("ownerReferences")},
        "spec": {"nodeName": (pod.get("spec") or {}).get("nodeName")},
    }


@dataclass(slots=True)
class _Coverage:
    """Nodes by what is wrong with them, since a large cluster has many of the same kind."""

    pools: Sequence[Pool]
    running: set[tuple[str, str]]
    prefixes: tuple[str, ...]
    covered: int = 0
    unselected: list[str] = field(default_factory=list)
    """Nodes with accelerators."""
    former: list[str] = field(default_factory=list)
    """Nodes that list resources, but no devices, and that no pool selects."""
    selected_twice: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    tainted: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    without_pod: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, node: Json) -> None:
        """Classify a node."""
        name = str(metadata(node).get("name"))
        offered = add_advertised({}, node, self.prefixes)
        selecting = [pool for pool in self.pools if is_selected(pool.spec, node)]
        if not selecting:
            if _has_capacity(node, self.prefixes):
                self.unselected.append(name)
            elif offered:
                self.former.append(name)
            return
        if len(selecting) > 1:
            self.selected_twice[" and ".join(pool.name for pool in selecting)].append(name)
        if offered or LABEL in (metadata(node).get("labels") or {}):
            for pool in selecting:
                self._add_selected(pool, node, name)

    def _add_selected(self, pool: Pool, node: Json, name: str) -> None:
        taints = untolerated_taints(pool.spec, node)
        if taints:
            self.tainted[pool.name, ", ".join(taints)].append(name)
        elif (pool.name, name) not in self.running:
            self.without_pod[pool.name].append(name)
        else:
            self.covered += 1

    def lines(self, namespace: str) -> Iterator[Line]:
        """Yield a line for each kind of problem."""
        if self.unselected:
            yield failed(
                f"no plugin DaemonSet selects {_list_nodes(self.unselected)} with accelerators",
                self._how_to_select(self.unselected),
            )
        if self.former:
            yield warning(
                f"no plugin DaemonSet selects {_list_nodes(self.former)}, which had accelerators",
                f"nothing, if the cards are gone; else {self._how_to_select(self.former)}",
            )
        for both, names in sorted(self.selected_twice.items()):
            yield failed(
                f"DaemonSets {plain(both)} select {_list_nodes(names)}: the second plugin waits",
                "change the node selector of one of them",
            )
        for (pool, taints), names in sorted(self.tainted.items()):
            yield failed(
                f"DaemonSet {plain(pool)} does not tolerate {plain(taints)} of"
                f" {_list_nodes(names)}",
                "add a toleration to the DaemonSet (component tolerate-taints tolerates all), or"
                " remove the taint",
            )
        for pool, names in sorted(self.without_pod.items()):
            yield failed(
                f"DaemonSet {plain(pool)} selects {_list_nodes(names)}, but has no pod there",
                f"kubectl describe daemonset -n {namespace} {plain(pool)}",
            )
        wrong = self.unselected or self.selected_twice or self.tainted or self.without_pod
        if self.covered or not wrong:
            yield ok(f"plugins cover {count(self.covered, 'node')}")

    def _how_to_select(self, names: Sequence[str]) -> str:
        if any(pool.needs_only_our_label for pool in self.pools):
            return f"kubectl label node {' '.join(map(plain, names))} {LABEL}=true"
        pools = ", ".join(plain(pool.name) for pool in self.pools)
        return f"add the labels that the node selector or affinity of {pools} requires"


def _has_capacity(node: Json, prefixes: tuple[str, ...]) -> bool:
    """Whether the kubelet still counts devices; it does for minutes after a plugin has ended."""
    capacity = (node.get("status") or {}).get("capacity") or {}
    return any(
        str(key).startswith(prefixes) and str(amount) != "0" for key, amount in capacity.items()
    )


def _list_nodes(names: Sequence[str]) -> str:
    shown = ", ".join(map(plain, names[:_SHOWN]))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"node {shown}" if len(names) == 1 else f"{len(names)} nodes ({shown}{more})"


def _member(kind: type[E], text: object, default: E) -> E:
    return kind(str(text)) if str(text) in {str(each) for each in kind} else default
