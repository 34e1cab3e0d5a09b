"""What `accelbind doctor` checks about plugin DaemonSets: which nodes each of them covers.

A node with accelerators needs exactly one plugin. A node that lost its plugin, by an upgrade or
with its label, still lists its resources, so it is found here.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias, TypeVar

from accelbind.doctor.cluster import MODE_ANNOTATION, Cluster
from accelbind.doctor.model import Check, Line, Once, failed, ok, skipped, warning
from accelbind.doctor.node_fit import is_selected, untolerated_taints
from services.admission.findings import add_advertised
from services.containers.enforce import Enforce, is_enforced
from services.devices.model import PluginMode
from services.names import UNIT_RESOURCE
from services.process.text import plain

E = TypeVar("E", bound=StrEnum)
Json: TypeAlias = dict[str, Any]

LABEL: Final = "accelbind.dev/plugin"
_CONTAINER: Final = "plugin"
_SHOWN: Final = 10
"""Nodes that a sentence names; a command names all of them."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A DaemonSet of the plugin.

    Args:
        name: The DaemonSet's.
        spec: Its pods'.
    """

    name: str
    spec: Json

    @property
    def account(self) -> str:
        """The service account of its plugins."""
        return str(self.spec.get("serviceAccountName") or "default")

    @property
    def by_label(self) -> bool:
        """Whether our label is all that a Linux node needs to be selected."""
        selector = self.spec.get("nodeSelector") or {}
        return (
            LABEL in selector
            and set(selector) <= {LABEL, "kubernetes.io/os"}
            and "affinity" not in self.spec
        )

    def uses(self, nodes: Sequence[Json]) -> Iterator[tuple[PluginMode, bool]]:
        """The modes that its plugins run in, each with whether mappings are enforced there."""
        env = {
            str(each.get("name")): str(each.get("value"))
            for container in self.spec.get("containers") or ()
            if container.get("name") == _CONTAINER
            for each in container.get("env") or ()
        }
        enforce = _member(Enforce, env.get("ACCELBIND_ENFORCE_MAPPINGS"), Enforce.AUTO)
        own = _member(PluginMode, env.get("ACCELBIND_MODE"), PluginMode.AF)
        modes = {own}
        for node in nodes:
            if is_selected(self.spec, node):
                modes.add(_member(PluginMode, _annotation(node), own))
        yield from ((mode, is_enforced(enforce, mode)) for mode in modes)


@dataclass(slots=True)
class Pools:
    """The plugin's DaemonSets of a cluster, and the nodes that they cover.

    Args:
        cluster: The cluster.
    """

    cluster: Cluster
    pools: Once[list[Pool]] = field(init=False)

    def __post_init__(self) -> None:
        self.pools = Once(self._pools)

    def _pools(self) -> list[Pool]:
        path = f"/apis/apps/v1/namespaces/{self.cluster.namespace}/daemonsets"
        return [pool for item in self.cluster.items(path) if (pool := _pool(item)) is not None]

    def uses(self) -> dict[str, set[tuple[PluginMode, bool]]]:
        """The modes in use by service account, each with whether mappings are enforced.

        Raises as `Cluster.get`.
        """
        nodes, found = self.cluster.nodes(), defaultdict[str, set[tuple[PluginMode, bool]]](set)
        for pool in self.pools():
            found[pool.account].update(pool.uses(nodes))
        return dict(found)

    def checks(self) -> list[Check]:
        """All that this module looks at."""
        return [
            Check(
                "cluster.pools",
                "Does one plugin DaemonSet cover each node with accelerators?",
                self.covered,
            )
        ]

    def covered(self) -> Iterator[Line]:
        """Nodes that no plugin serves, or two, or that a taint closes to their plugin."""
        pools = self.pools()
        if not pools:
            yield skipped(f"no plugin DaemonSet is in namespace {self.cluster.namespace}")
            return
        found = _Coverage(pools, self._running(), (*self.cluster.prefixes, UNIT_RESOURCE))
        for node in self.cluster.nodes():
            found.add(node)
        yield from found.lines(self.cluster.namespace)

    def _running(self) -> set[tuple[str, str]]:
        """DaemonSet and node of each pod that runs."""
        path = f"/api/v1/namespaces/{self.cluster.namespace}/pods"
        return {
            (str(owner.get("name")), str(pod["spec"].get("nodeName")))
            for pod in self.cluster.items(path, keep=_of_pod)
            for owner in pod["metadata"].get("ownerReferences") or ()
            if owner.get("kind") == "DaemonSet"
        }


class _Coverage:
    """The nodes by what is wrong with them: a large cluster has many of the same kind."""

    def __init__(
        self, pools: Sequence[Pool], running: set[tuple[str, str]], prefixes: tuple[str, ...]
    ) -> None:
        self._pools, self._running, self._prefixes = pools, running, prefixes
        self._covered = 0
        self._without: list[str] = []
        self._left: list[str] = []
        self._twice: dict[str, list[str]] = defaultdict(list)
        self._tainted: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._absent: dict[str, list[str]] = defaultdict(list)

    def add(self, node: Json) -> None:
        metadata = node.get("metadata") or {}
        name = str(metadata.get("name"))
        offered = add_advertised({}, node, self._prefixes)
        chosen = [pool for pool in self._pools if is_selected(pool.spec, node)]
        if not chosen:
            if _capacity(node, self._prefixes):
                self._without.append(name)
            elif offered:
                self._left.append(name)
            return
        if len(chosen) > 1:
            self._twice[" and ".join(pool.name for pool in chosen)].append(name)
        if offered or LABEL in (metadata.get("labels") or {}):
            for pool in chosen:
                self._judge(pool, node, name)

    def _judge(self, pool: Pool, node: Json, name: str) -> None:
        taints = untolerated_taints(pool.spec, node)
        if taints:
            self._tainted[pool.name, ", ".join(taints)].append(name)
        elif (pool.name, name) not in self._running:
            self._absent[pool.name].append(name)
        else:
            self._covered += 1

    def lines(self, namespace: str) -> Iterator[Line]:
        if self._without:
            yield failed(
                f"no plugin DaemonSet selects {_named(self._without)}, where accelerators are",
                self._to_select(self._without),
            )
        if self._left:
            yield warning(
                f"no plugin DaemonSet selects {_named(self._left)}, where accelerators were",
                f"nothing, if the cards are gone; else {self._to_select(self._left)}",
            )
        for both, names in sorted(self._twice.items()):
            yield failed(
                f"DaemonSets {plain(both)} select {_named(names)}: the second plugin only waits",
                "change the node selector of one of them",
            )
        for (pool, taints), names in sorted(self._tainted.items()):
            yield failed(
                f"DaemonSet {plain(pool)} does not tolerate {plain(taints)} of {_named(names)}",
                "add a toleration to the DaemonSet (component tolerate-taints tolerates all), or"
                " remove the taint",
            )
        for pool, names in sorted(self._absent.items()):
            yield failed(
                f"DaemonSet {plain(pool)} selects {_named(names)}, but has no pod there",
                f"kubectl describe daemonset -n {namespace} {plain(pool)}",
            )
        if self._covered or not (self._without or self._twice or self._tainted or self._absent):
            yield ok(f"plugins cover {self._covered} node{'' if self._covered == 1 else 's'}")

    def _to_select(self, names: Sequence[str]) -> str:
        if any(pool.by_label for pool in self._pools):
            return f"kubectl label node {' '.join(map(plain, names))} {LABEL}=true"
        pools = ", ".join(plain(pool.name) for pool in self._pools)
        return f"give it the labels that the node selector or affinity of {pools} asks for"


def _pool(item: Json) -> Pool | None:
    template = (item.get("spec") or {}).get("template") or {}
    spec = template.get("spec") or {}
    if not any(each.get("name") == _CONTAINER for each in spec.get("containers") or ()):
        return None
    return Pool(str((item.get("metadata") or {}).get("name")), spec)


def _of_pod(pod: Json) -> Json | None:
    """What is looked at of a pod; None of one that has ended."""
    status, metadata = pod.get("status") or {}, pod.get("metadata") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return None
    return {
        "metadata": {"ownerReferences": metadata.get("ownerReferences")},
        "spec": {"nodeName": (pod.get("spec") or {}).get("nodeName")},
    }


def _capacity(node: Json, prefixes: tuple[str, ...]) -> bool:
    """Whether the kubelet still counts devices; it does so for minutes after a plugin has ended."""
    capacity = (node.get("status") or {}).get("capacity") or {}
    return any(
        str(key).startswith(prefixes) and str(amount) != "0" for key, amount in capacity.items()
    )


def _annotation(node: Json) -> str | None:
    found = ((node.get("metadata") or {}).get("annotations") or {}).get(MODE_ANNOTATION)
    return None if found is None else str(found)


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(map(plain, names[:_SHOWN]))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"node {shown}" if len(names) == 1 else f"{len(names)} nodes ({shown}{more})"


def _member(kind: type[E], text: str | None, default: E) -> E:
    return kind(text) if text in {str(each) for each in kind} else default
