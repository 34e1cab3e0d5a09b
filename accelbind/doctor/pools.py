"""Checks of `accelbind doctor`: whether plugins cover the nodes, and what these say."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from accelbind.cluster import Json, part
from accelbind.devices.fleet import Fleet, FleetNode, read_fleet
from accelbind.doctor.cluster import APPLY, Cluster, name_of
from accelbind.doctor.model import Line, failed, ok, skipped, warning
from services.devices.model import PluginMode
from services.devices.ofs import IN_USE
from services.kubelet.values import HEALTHY
from services.names import REGION_PREFIX
from services.process.text import count, listing, plain

LABEL: Final = "accelbind.dev/plugin"
_SHOWN: Final = 10
"""Nodes that a sentence names; a command names all of them."""
_DEVICES: Final = "accelbind devices --cluster --node"


def check_pools(cluster: Cluster) -> Iterator[Line]:
    """Does a plugin cover each node with accelerators, and what do the plugins say?"""
    path = f"/apis/apps/v1/namespaces/{cluster.namespace}/daemonsets"
    pools = [name_of(each) for each in cluster.items(path) if _is_pool(each)]
    fleet = cluster.query(read_fleet)
    covered = [each for each in fleet.nodes if each.pod]
    uncovered = _uncovered(cluster, fleet)
    if uncovered:
        yield _uncovered_line(cluster, uncovered, pools)
    elif not pools:
        yield skipped(f"there is no plugin DaemonSet in namespace {cluster.namespace}")
        return
    for each in covered:
        yield from _said(each)
    yield from _shared_regions(covered)
    for problem in fleet.problems:
        yield skipped(f"modes and devices are not checked: {plain(problem)}")
    if not any(map(_offers, fleet.nodes)) and not uncovered:
        # Without answers, the resources of other domains are unknown.
        line = warning if fleet.problems else failed
        yield line(
            f"plugins cover {count(len(covered), 'node')}, and none offers an accelerator",
            "run accelbind doctor on a node with cards; or --skip cluster.pools if such nodes come"
            " only on demand",
        )
    elif covered or not uncovered:
        yield ok(f"plugins cover {count(len(covered), 'node')}")


def _is_pool(daemonset: Json) -> bool:
    """Whether it is one of the plugin or of the DRA driver."""
    containers = part(daemonset, "spec", "template", "spec").get("containers") or ()
    return any(each.get("name") == "plugin" for each in containers)


def _uncovered(cluster: Cluster, fleet: Fleet) -> list[str]:
    # The kubelet counts devices for minutes after a plugin has ended: so a node that lost it, by an
    # upgrade or with its label, is found.
    wanted = {
        name_of(node)
        for node in cluster.nodes
        if part(node, "metadata", "labels").get(LABEL) == "true"
        or any(
            key.startswith(cluster.resources) and str(amount) != "0"
            for key, amount in part(node, "status", "capacity").items()
        )
    }
    wanted |= {each.node for each in fleet.nodes if each.devices}
    return sorted(wanted - {each.node for each in fleet.nodes if each.pod})


def _uncovered_line(cluster: Cluster, names: Sequence[str], pools: Sequence[str]) -> Line:
    taints = {
        f"{taint.get('key')}:{taint.get('effect')}"
        for node in cluster.nodes
        if name_of(node) in names
        for taint in part(node, "spec").get("taints") or ()
    }
    tainted = f" (taints: {', '.join(sorted(taints))})" if taints else ""
    todo = (
        f"kubectl label node {' '.join(names)} {LABEL}=true, tolerate their taints (component"
        " tolerate-taints tolerates all), and see what else the node selector or affinity of"
        f" {', '.join(pools)} requires"
    )
    if not pools:
        todo = f"if accelbind runs in another namespace, name it with -n; else {APPLY}"
    return failed(
        f"no plugin of namespace {cluster.namespace} has a pod on {_list_nodes(names)} with"
        f" accelerators or the label {LABEL}{plain(tainted)}",
        todo,
    )


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


def _offers(node: FleetNode) -> bool:
    # If it has devices, a plugin has left there what the kubelet still counts.
    if node.devices:
        return any(row.health == HEALTHY for row in node.devices)
    return any(node.counted.values())


def _shared_regions(nodes: Sequence[FleetNode]) -> Iterator[Line]:
    # A region's resource has one name in both modes.
    offered: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for node in nodes:
        for row in node.devices:
            if row.resource.startswith(REGION_PREFIX):
                offered[row.resource][node.mode].add(node.node)
    for resource, by_mode in sorted(offered.items()):
        modes = [each for each in (PluginMode.REGION, PluginMode.REGIONDEVEL) if each in by_mode]
        if len(modes) > 1:
            places = [f"{mode} ({_list_nodes(sorted(by_mode[mode]))})" for mode in modes]
            yield warning(
                f"{plain(resource)} is offered in mode {' and in mode '.join(places)}: a pod for"
                " one mode can be scheduled to the other, where it does not start and keeps the"
                " device; with --enforce-mappings=never a pod for mode region starts there and can"
                " program the region",
                "use one of these modes per interface ID, or node selectors in the pods:"
                " docs/pools.md",
            )


def _list_nodes(names: Sequence[str]) -> str:
    shown = listing(names, most=_SHOWN)
    return f"node {shown}" if len(names) == 1 else f"{len(names)} nodes ({shown})"
