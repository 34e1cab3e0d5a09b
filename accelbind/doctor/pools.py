"""What `accelbind doctor` checks about plugin DaemonSets: which nodes each of them covers.

A node with accelerators needs exactly one plugin. A node that lost its plugin, by an upgrade or
with its label, still lists its resources, so it is found here.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias, TypeVar

from accelbind.doctor.cluster import APPLY, Cluster, Json, name_of, part
from accelbind.doctor.model import CheckStatus, Line, failed, ok, skipped, warning
from accelbind.doctor.node_fit import is_selected, untolerated_taints
from accelbind.doctor.workloads import MODE_ANNOTATION, read_nodes
from accelbind.output import count
from services.admission.findings import add_advertised
from services.containers.permission import Enforce, is_enforced
from services.devices.model import PluginMode
from services.names import UNIT_RESOURCE
from services.process.text import plain

E = TypeVar("E", bound=StrEnum)
Place: TypeAlias = tuple[str, ...]
"""How plugins cover a node: a word, and what the line about such nodes names."""

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
        selector = set(self.spec.get("nodeSelector") or ())
        return {LABEL} <= selector <= {LABEL, "kubernetes.io/os"} and "affinity" not in self.spec

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
            part(node, "metadata", "annotations").get(MODE_ANNOTATION)
            for node in nodes
            if is_selected(self.spec, node)
        )
        for mode in {own, *(_member(PluginMode, each, own) for each in annotated)}:
            yield mode, is_enforced(enforce, mode)


def read_pools(cluster: Cluster) -> list[Pool]:
    """The plugin's DaemonSets. Raises as `Cluster.get`."""
    found = cluster.items(f"/apis/apps/v1/namespaces/{cluster.namespace}/daemonsets")
    pools = [Pool(name_of(item), part(item, "spec", "template", "spec")) for item in found]
    return [
        pool
        for pool in pools
        if any(each.get("name") == _CONTAINER for each in pool.spec.get("containers") or ())
    ]


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
    """Does one plugin DaemonSet cover each node with accelerators?"""
    pools = cluster.once(read_pools)
    running = _running(cluster) if pools else set()
    nodes: dict[Place, list[str]] = defaultdict(list)
    for node in cluster.once(read_nodes):
        for place in _places(node, pools, running, (*cluster.prefixes, UNIT_RESOURCE)):
            nodes[place].append(name_of(node))
    covered = len(nodes.pop(("covered",), ()))
    if not pools:
        yield _without_pools(cluster.namespace, nodes.get(("unselected",), ()))
        return
    lines = [
        _line(place, names, pools, cluster.namespace) for place, names in sorted(nodes.items())
    ]
    yield from lines
    if covered or all(line.state is not CheckStatus.FAILED for line in lines):
        yield ok(f"plugins cover {count(covered, 'node')}")


def _running(cluster: Cluster) -> set[tuple[str, str]]:
    """DaemonSet and node of each pod that runs."""
    return {
        (plain(str(owner.get("name"))), plain(str(part(pod, "spec").get("nodeName"))))
        for pod in cluster.items(f"/api/v1/namespaces/{cluster.namespace}/pods")
        if part(pod, "status").get("phase") not in ("Succeeded", "Failed")
        for owner in part(pod, "metadata").get("ownerReferences") or ()
        if owner.get("kind") == "DaemonSet"
    }


def _places(
    node: Json, pools: Sequence[Pool], running: set[tuple[str, str]], prefixes: tuple[str, ...]
) -> Iterator[Place]:
    offered = add_advertised({}, node, prefixes)
    selecting = [pool for pool in pools if is_selected(pool.spec, node)]
    if not selecting:
        if _has_capacity(node, prefixes):
            yield ("unselected",)
        elif offered:
            yield ("former",)
        return
    if len(selecting) > 1:
        yield "twice", " and ".join(pool.name for pool in selecting)
    if not offered and LABEL not in part(node, "metadata", "labels"):
        return
    for pool in selecting:
        if taints := untolerated_taints(pool.spec, node):
            yield "tainted", pool.name, plain(", ".join(taints))
        elif (pool.name, name_of(node)) not in running:
            yield "without pod", pool.name
        else:
            yield ("covered",)


def _line(place: Place, names: Sequence[str], pools: Sequence[Pool], namespace: str) -> Line:
    nodes = _list_nodes(names)
    match place:
        case ("unselected",):
            text = f"no plugin DaemonSet selects {nodes} with accelerators"
            return failed(text, _how_to_select(pools, names))
        case ("former",):
            text = f"no plugin DaemonSet selects {nodes}, which had accelerators"
            todo = f"nothing, if the cards are gone; else {_how_to_select(pools, names)}"
            return warning(text, todo)
        case ("twice", both):
            text = f"DaemonSets {both} select {nodes}: the second plugin waits"
            return failed(text, "change the node selector of one of them")
        case ("tainted", pool, taints):
            todo = "add a toleration (component tolerate-taints tolerates all), or remove the taint"
            return failed(f"DaemonSet {pool} does not tolerate {taints} of {nodes}", todo)
    text = f"DaemonSet {place[1]} selects {nodes}, but has no pod there"
    return failed(text, f"kubectl describe daemonset -n {namespace} {place[1]}")


def _without_pools(namespace: str, names: Sequence[str]) -> Line:
    missing = f"there is no plugin DaemonSet in namespace {namespace}"
    if not names:
        return skipped(missing)
    verb = "has" if len(names) == 1 else "have"
    todo = f"if accelbind runs in another namespace, name it with -n; else {APPLY}"
    return failed(f"{missing}, but {_list_nodes(names)} {verb} accelerators", todo)


def _how_to_select(pools: Sequence[Pool], names: Sequence[str]) -> str:
    if any(pool.needs_only_our_label for pool in pools):
        return f"kubectl label node {' '.join(names)} {LABEL}=true"
    shown = ", ".join(pool.name for pool in pools)
    return f"add the labels that the node selector or affinity of {shown} requires"


def _has_capacity(node: Json, prefixes: tuple[str, ...]) -> bool:
    """Whether the kubelet still counts devices; it does for minutes after a plugin has ended."""
    amounts = part(node, "status", "capacity").items()
    return any(key.startswith(prefixes) and str(amount) != "0" for key, amount in amounts)


def _list_nodes(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"node {shown}" if len(names) == 1 else f"{len(names)} nodes ({shown}{more})"


def _member(kind: type[E], text: object, default: E) -> E:
    return kind(str(text)) if str(text) in {str(each) for each in kind} else default
