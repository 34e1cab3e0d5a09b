"""Checks of `accelbind doctor`: plugin DaemonSets. Each node needs exactly one plugin."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from accelbind.doctor.cluster import APPLY, Cluster, Json, name_of, part
from accelbind.doctor.model import Line, failed, ok, skipped, warning
from accelbind.doctor.workloads import PLUGIN_CONTAINER, is_pool, read_nodes, read_offered
from accelbind.survey import ENDED
from plugin.mode import ANNOTATED, ANNOTATION
from services.devices.model import PluginMode
from services.names import DEVICE_DOMAIN, FUNCTION_PREFIX, REGION_PREFIX, UNIT_RESOURCE
from services.process.objects import is_kind
from services.process.settings import variable
from services.process.text import count, listing, plain

Place: TypeAlias = tuple[str, ...]
"""How plugins cover a node: a word, and what the line about such nodes names."""

LABEL: Final = "accelbind.dev/plugin"
_SHOWN: Final = 10
"""Nodes that a sentence names; a command names all of them."""
_OFFERED: Final[dict[str, str]] = {
    PluginMode.AF: FUNCTION_PREFIX,
    PluginMode.REGION: REGION_PREFIX,
    PluginMode.REGIONDEVEL: REGION_PREFIX,
    PluginMode.UNITS: UNIT_RESOURCE,
    PluginMode.BDF: UNIT_RESOURCE,
}
"""Start of the names of the resources that FPGAs have in a mode."""
_KEEPS_AWAY: Final = ("NoSchedule", "NoExecute")
_CONDITION: Final = "node.kubernetes.io/"
"""Prefix of taints by which Kubernetes reports conditions."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A DaemonSet of the plugin or of the DRA driver."""

    name: str
    spec: Json
    """Of its pods."""
    nodes: frozenset[str]
    """Those on which it has a pod."""

    def mode_on(self, node: Json) -> str:
        """The mode of its plugin on a node."""
        annotation = part(node, "metadata", "annotations").get(ANNOTATION)
        if annotation in ANNOTATED:
            return str(annotation)
        return self._setting("mode") or "af"

    @property
    def is_dra(self) -> bool:
        """Whether it offers devices to DRA, which has no modes."""
        arguments = " ".join(
            argument
            for container in _plugin_containers(self.spec)
            for argument in map(str, container.get("args") or ())
        )
        return "--api=dra" in arguments or "--api dra" in arguments

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Starts of the names of the resources of its device types."""
        domains = self._setting("resource_domain") or DEVICE_DOMAIN
        return tuple(f"{each.strip()}/" for each in domains.split(","))

    def _setting(self, name: str) -> str:
        """A setting of its container, by its variable; empty if it has none."""
        variables = (
            each
            for container in _plugin_containers(self.spec)
            for each in container.get("env") or ()
        )
        values = (each.get("value") for each in variables if each.get("name") == variable(name))
        return str(next(values, "") or "")


def read_pools(cluster: Cluster) -> list[Pool]:
    """The plugin's DaemonSets. Raises as `Cluster.get`."""
    # Its pods say where a DaemonSet runs: a selector alone says where it should.
    nodes: dict[str, set[str]] = defaultdict(set)
    for pod in cluster.items(f"/api/v1/namespaces/{cluster.namespace}/pods"):
        if part(pod, "status").get("phase") not in ENDED:
            owners = part(pod, "metadata").get("ownerReferences") or ()
            for owner in (each for each in owners if is_kind(each, "DaemonSet", "apps")):
                nodes[str(owner.get("name"))].add(str(part(pod, "spec").get("nodeName")))
    return [
        Pool(name_of(item), part(item, "spec", "template", "spec"), frozenset(nodes[name_of(item)]))
        for item in cluster.items(f"/apis/apps/v1/namespaces/{cluster.namespace}/daemonsets")
        if is_pool(item)
    ]


def check_pools(cluster: Cluster) -> Iterator[Line]:
    """Does one plugin DaemonSet cover each node with accelerators, and do nodes offer any?"""
    pools = cluster.once(read_pools)
    nodes: dict[Place, list[str]] = defaultdict(list)
    published, offering = cluster.once(read_offered), 0
    types = (each for pool in pools for each in pool.prefixes)
    prefixes = (*cluster.resources, *types)
    for node in cluster.once(read_nodes):
        name = name_of(node)
        by_dra = published.by_node.get(name) or published.healthy.get(name)
        # The kubelet counts devices for minutes after a plugin has ended: so a node that lost it,
        # by an upgrade or with its label, is found.
        offers = bool(by_dra) or _has(part(node, "status", "capacity"), prefixes)
        nodes[_place(node, pools, offers=offers)].append(name)
        # What a node that serves by DRA has in its status, a plugin has left there.
        amounts = published.by_node.get(name) or part(node, "status", "allocatable")
        offering += bool(published.healthy.get(name)) or _has(amounts, prefixes)
    nodes.pop(("no accelerators",), None)
    covered = nodes.pop(("covered",), [])
    if not pools:
        yield _without_pools(cluster.namespace, nodes.get(("uncovered",), ()))
        return
    for place, names in sorted(nodes.items()):
        yield _line(place, names, pools)
    yield from _other_modes(cluster.once(read_nodes), pools, cluster.namespace)
    yield from _shared_regions(cluster.once(read_nodes), pools)
    if not offering and not nodes:
        yield failed(
            f"plugins cover {count(len(covered), 'node')}, and none offers an accelerator",
            "run accelbind doctor on a node with cards; or --skip cluster.pools if such nodes come"
            " only on demand",
        )
    elif covered or not nodes:
        yield ok(f"plugins cover {count(len(covered), 'node')}")


def _place(node: Json, pools: Sequence[Pool], *, offers: bool) -> Place:
    present = [pool.name for pool in pools if name_of(node) in pool.nodes]
    if present:
        return ("covered",) if len(present) == 1 else ("twice", " and ".join(present))
    is_labelled = part(node, "metadata", "labels").get(LABEL) == "true"
    if not is_labelled and not offers:
        return ("no accelerators",)
    taints = sorted((untolerated_taints(pool.spec, node) for pool in pools), key=len)
    if taints and taints[0]:
        return "tainted", plain(", ".join(taints[0]))
    return ("uncovered",)


def _other_modes(nodes: Sequence[Json], pools: Sequence[Pool], namespace: str) -> Iterator[Line]:
    # A plugin reads its node's mode when it starts.
    for node in nodes:
        offered = {
            key for key, amount in part(node, "status", "capacity").items() if str(amount) != "0"
        }
        for pool in (each for each in pools if not each.is_dra):
            mode, name = pool.mode_on(node), name_of(node)
            others = tuple(set(_OFFERED.values()) - {_OFFERED.get(mode, "")})
            wrong = sorted(each for each in offered if each.startswith(others))
            if name in pool.nodes and wrong:
                yield warning(
                    f"node {name} is to serve mode {mode}, and offers"
                    f" {listing([plain(each) for each in wrong], most=2)}: its plugin started in"
                    " another mode",
                    f"drain the node, and restart its plugin: kubectl -n {namespace} delete pod"
                    f" --field-selector spec.nodeName={name} -l app.kubernetes.io/name={pool.name}",
                )


def _shared_regions(nodes: Sequence[Json], pools: Sequence[Pool]) -> Iterator[Line]:
    # A region's resource has one name in both modes.
    by_mode: dict[str, dict[str, list[str]]] = {
        mode: defaultdict(list) for mode in (PluginMode.REGION, PluginMode.REGIONDEVEL)
    }
    for node in nodes:
        capacity = part(node, "status", "capacity").items()
        regions = [
            key for key, amount in capacity if key.startswith(REGION_PREFIX) and amount != "0"
        ]
        for pool in pools:
            mode = pool.mode_on(node)
            if name_of(node) in pool.nodes and mode in by_mode:
                for resource in regions:
                    by_mode[mode][resource].append(name_of(node))
    programmed, developed = by_mode.values()
    for resource in sorted(programmed.keys() & developed.keys()):
        yield warning(
            f"{plain(resource)} is offered in mode region ({_list_nodes(programmed[resource])}) and"
            f" in mode regiondevel ({_list_nodes(developed[resource])}): a pod for one mode can be"
            " scheduled to the other, where it does not start and keeps the device; with"
            " --enforce-mappings=never a pod for mode region starts there and can program the"
            " region",
            "use one of these modes per interface ID, or node selectors in the pods: docs/pools.md",
        )


def _has(amounts: Mapping[str, object], prefixes: tuple[str, ...]) -> bool:
    return any(key.startswith(prefixes) and str(each) != "0" for key, each in amounts.items())


def untolerated_taints(pod_spec: Json, node: Json) -> list[str]:
    """The taints, as `key=value:effect`, that keep a DaemonSet's pod from a node."""
    return [
        "=".join(filter(None, (taint.get("key"), taint.get("value")))) + f":{taint['effect']}"
        for taint in part(node, "spec").get("taints") or ()
        if taint.get("effect") in _KEEPS_AWAY
        and not str(taint.get("key")).startswith(_CONDITION)  # DaemonSets tolerate most of them
        and not any(_tolerates(each, taint) for each in pod_spec.get("tolerations") or ())
    ]


def _tolerates(toleration: Json, taint: Json) -> bool:
    if any(toleration.get(key) not in (None, "", taint.get(key)) for key in ("effect", "key")):
        return False
    if toleration.get("operator") == "Exists":
        return True
    same_value = (toleration.get("value") or "") == (taint.get("value") or "")
    return bool(toleration.get("key")) and same_value


def _line(place: Place, names: Sequence[str], pools: Sequence[Pool]) -> Line:
    nodes, daemonsets = _list_nodes(names), ", ".join(pool.name for pool in pools)
    match place:
        case ("twice", both):
            text = f"DaemonSets {both} select {nodes}: the second plugin waits"
            return failed(text, "change the node selector of one of them")
        case ("tainted", taints):
            todo = "add a toleration (component tolerate-taints tolerates all), or remove the taint"
            return failed(f"no plugin DaemonSet tolerates {taints} of {nodes}", todo)
    return failed(
        f"no plugin DaemonSet has a pod on {nodes} with accelerators or the label {LABEL}",
        f"kubectl label node {' '.join(names)} {LABEL}=true, and what else the node selector or"
        f" affinity of {daemonsets} requires",
    )


def _without_pools(namespace: str, names: Sequence[str]) -> Line:
    missing = f"there is no plugin DaemonSet in namespace {namespace}"
    if not names:
        return skipped(missing)
    verb = "has" if len(names) == 1 else "have"
    todo = f"if accelbind runs in another namespace, name it with -n; else {APPLY}"
    return failed(f"{missing}, but {_list_nodes(names)} {verb} accelerators", todo)


def _plugin_containers(pod_spec: Json) -> list[Json]:
    return [
        each for each in pod_spec.get("containers") or () if each.get("name") == PLUGIN_CONTAINER
    ]


def _list_nodes(names: Sequence[str]) -> str:
    shown = listing(names, most=_SHOWN)
    return f"node {shown}" if len(names) == 1 else f"{len(names)} nodes ({shown})"
