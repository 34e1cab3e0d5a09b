"""Checks of `accelbind doctor`: whether plugins cover the nodes, and what these say."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from accelbind.doctor.cluster import APPLY, Cluster, Json, name_of, part
from accelbind.doctor.model import Line, failed, ok, skipped, warning
from accelbind.doctor.workloads import PLUGIN_CONTAINER, is_pool, read_nodes
from accelbind.fleet.reading import Fleet, FleetNode, read_fleet
from plugin.mode import ANNOTATED, ANNOTATION
from services.devices.model import PluginMode
from services.devices.ofs import IN_USE
from services.kubelet.values import HEALTHY
from services.names import REGION_PREFIX
from services.node.table import FROM_PLUGIN
from services.process.settings import variable
from services.process.text import count, listing, plain

LABEL: Final = "accelbind.dev/plugin"
_SHOWN: Final = 10
"""Nodes that a sentence names; a command names all of them."""
_DEVICES: Final = "accelbind devices --cluster --node"


def check_pools(cluster: Cluster) -> Iterator[Line]:
    """Does a plugin cover each node with accelerators, and what do the plugins say?"""
    nodes = {name_of(each): each for each in cluster.once(read_nodes)}
    path = f"/apis/apps/v1/namespaces/{cluster.namespace}/daemonsets"
    pools = {name_of(each): each for each in cluster.items(path) if is_pool(each)}
    fleet = cluster.query(read_fleet)
    covered = [each for each in fleet.nodes if each.pod]
    uncovered = _uncovered(cluster, nodes, fleet)
    if not pools:
        yield _without_pools(cluster.namespace, uncovered)
        return
    if uncovered:
        taints = {
            f"{taint.get('key')}:{taint.get('effect')}"
            for name in uncovered
            for taint in part(nodes.get(name, {}), "spec").get("taints") or ()
        }
        tainted = f" (taints: {', '.join(sorted(taints))})" if taints else ""
        yield failed(
            f"no plugin has a pod on {_list_nodes(uncovered)} with accelerators or the label"
            f" {LABEL}{plain(tainted)}",
            f"kubectl label node {' '.join(uncovered)} {LABEL}=true, tolerate their taints"
            " (component tolerate-taints tolerates all), and see what else the node selector or"
            f" affinity of {', '.join(pools)} requires",
        )
    for each in covered:
        yield from _said(each)
        yield from _other_mode(each, nodes.get(each.node, {}), pools.get(each.pool, {}))
    yield from _shared_regions(covered)
    for problem in fleet.problems:
        yield skipped(f"modes and devices are not checked: {plain(problem)}")
    if not any(_offers(cluster, each) for each in fleet.nodes) and not uncovered:
        # Without answers, the resources of other domains are unknown.
        line = warning if fleet.problems else failed
        yield line(
            f"plugins cover {count(len(covered), 'node')}, and none offers an accelerator",
            "run accelbind doctor on a node with cards; or --skip cluster.pools if such nodes come"
            " only on demand",
        )
    elif covered or not uncovered:
        yield ok(f"plugins cover {count(len(covered), 'node')}")


def _uncovered(cluster: Cluster, nodes: Mapping[str, Json], fleet: Fleet) -> list[str]:
    # The kubelet counts devices for minutes after a plugin has ended: so a node that lost it, by an
    # upgrade or with its label, is found.
    wanted = {
        name
        for name, node in nodes.items()
        if part(node, "metadata", "labels").get(LABEL) == "true"
        or any(
            key.startswith(cluster.resources) and str(amount) != "0"
            for key, amount in part(node, "status", "capacity").items()
        )
    }
    wanted |= {each.node for each in fleet.nodes if each.devices}
    return sorted(wanted - {each.node for each in fleet.nodes if each.pod})


def _said(node: FleetNode) -> Iterator[Line]:
    if node.error:  # that a pod is not ready is another check's
        yield skipped(f"node {node.node}: {plain(node.error)}")
    for problem in node.problems:
        yield warning(f"node {node.node}: {plain(problem, 600)}", f"{_DEVICES} {node.node}")
    codes = Counter(problem.code for row in node.devices for problem in row.reasons[:1])
    del codes[IN_USE]  # as it should be
    if codes:
        shown = ", ".join(f"{code} ({number})" for code, number in sorted(codes.items()))
        text = f"node {node.node}: devices are not healthy: {plain(shown)}"
        yield warning(text, f"{_DEVICES} {node.node} --devices --unhealthy")


def _other_mode(found: FleetNode, node: Json, pool: Json) -> Iterator[Line]:
    # A plugin reads its node's mode when it starts.
    annotation = part(node, "metadata", "annotations").get(ANNOTATION)
    mode = str(annotation) if annotation in ANNOTATED else _mode_of(pool)
    if found.source == FROM_PLUGIN and mode != found.mode:
        namespace, _, name = found.pod.partition("/")
        yield warning(
            f"node {found.node} is to serve mode {mode}, and its plugin serves {found.mode}, as"
            " when it started",
            f"drain the node, and restart its plugin: kubectl -n {namespace} delete pod {name}",
        )


def _mode_of(pool: Json) -> str:
    """The mode of the plugins of a DaemonSet on nodes without an annotation."""
    variables = (
        each
        for container in part(pool, "spec", "template", "spec").get("containers") or ()
        if container.get("name") == PLUGIN_CONTAINER
        for each in container.get("env") or ()
    )
    values = (each.get("value") for each in variables if each.get("name") == variable("mode"))
    return str(next(values, None) or PluginMode.AF)


def _shared_regions(nodes: Sequence[FleetNode]) -> Iterator[Line]:
    # A region's resource has one name in both modes.
    by_mode: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for node in nodes:
        for resource in sorted({row.resource for row in node.devices}):
            if resource.startswith(REGION_PREFIX):
                by_mode[node.mode][resource].append(node.node)
    programmed, developed = by_mode[PluginMode.REGION], by_mode[PluginMode.REGIONDEVEL]
    for resource in sorted(programmed.keys() & developed.keys()):
        yield warning(
            f"{plain(resource)} is offered in mode region ({_list_nodes(programmed[resource])}) and"
            f" in mode regiondevel ({_list_nodes(developed[resource])}): a pod for one mode can be"
            " scheduled to the other, where it does not start and keeps the device; with"
            " --enforce-mappings=never a pod for mode region starts there and can program the"
            " region",
            "use one of these modes per interface ID, or node selectors in the pods: docs/pools.md",
        )


def _offers(cluster: Cluster, node: FleetNode) -> bool:
    # If it publishes devices, a plugin has left there what the kubelet still counts.
    if node.devices:
        return any(row.health == HEALTHY for row in node.devices)
    return any(key.startswith(cluster.resources) and each for key, each in node.counted.items())


def _without_pools(namespace: str, names: Sequence[str]) -> Line:
    missing = f"there is no plugin DaemonSet in namespace {namespace}"
    if not names:
        return skipped(missing)
    verb = "has" if len(names) == 1 else "have"
    todo = f"if accelbind runs in another namespace, name it with -n; else {APPLY}"
    return failed(f"{missing}, but {_list_nodes(names)} {verb} accelerators", todo)


def _list_nodes(names: Sequence[str]) -> str:
    shown = listing(names, most=_SHOWN)
    return f"node {shown}" if len(names) == 1 else f"{len(names)} nodes ({shown})"
