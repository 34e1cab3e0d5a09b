"""Read what the nodes of a cluster have, with the rights of whoever asks.

The process on a node knows best, and answers at `/devices` through the API server's pod proxy.
Where it does not, the node's ResourceSlices and the claims say what it published. What the kubelet
still counts is in the Node.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from accelbind.cluster import ENDED, Json, Reader, number_of, part
from accelbind.dra.objects import CLAIMS, SLICES, newest_devices, results_of
from certs.settings import NAMESPACE
from plugin.dra.slices import UNHEALTHY as TAINT
from plugin.dra.slices import read_attributes
from plugin.mode import ANNOTATED, ANNOTATION
from services.containers.holders import FPGA_RESOURCES, Holder
from services.devices.dra import CARD, DRIVER, FPGA, NUMA_NODE, PCI_BUS_ID
from services.kube.client import FORBIDDEN, ClusterClient, Status, segment
from services.kubelet.values import HEALTHY, UNHEALTHY
from services.names import DEVICE_DOMAIN
from services.node.table import FROM_PLUGIN, Row, Table
from services.process.errors import ClusterError
from services.process.json import UNREADABLE
from services.process.problem import Problem
from services.process.settings import variable
from services.process.text import plain

T = TypeVar("T")

Progress: TypeAlias = Callable[[int, int], None]
"""Gets how many nodes have answered or failed to, and how many there are."""

AT_ONCE: Final = 32
"""Requests to nodes at a time. If the first ones all fail for one reason of `EVERYWHERE`, no more
are made."""
ANSWER_SECONDS: Final = 3.0
COMPONENT: Final = "app.kubernetes.io/component=accelbind-plugin"
"""The label of the pods of all pools."""
PORT: Final = "metrics"
"""The name of the port that answers. The pod proxy takes its number only."""
RUNNING: Final = "Running"
SLICED: Final = "slices"
"""The source of a node's devices that are read from its ResourceSlices."""
_OF_TABLE: Final = ("mode", "process_version", "source", "problems", "devices")
_COUNTED: Final = (*FPGA_RESOURCES, f"{DEVICE_DOMAIN}/")
_SILENT: Final = f"its process does not answer within {ANSWER_SECONDS:g} s"
_FORBIDDEN: Final = "no right to ask its process"
EVERYWHERE: Final = {
    _SILENT: (
        "no process answers that was asked: if not only these nodes are silent, the NetworkPolicy"
        " accelbind-nobody keeps API servers from their port for metrics, unless the value"
        " networkPolicies.apiServers (or the component api-servers) names the addresses of the API"
        " servers"
    ),
    _FORBIDDEN: (
        "the right to get pods/proxy in the namespace of accelbind is missing, so nodes cannot be"
        " asked"
    ),
}
"""Errors that are reported once if all first nodes give the same one, with the explanation."""
_UNREACHABLE: Final = "API servers do not reach its process"
_NO_PROCESS: Final = "what answers in its pod is no process of accelbind"
_NOT_ASKED: Final = "not asked, since no other node answers"


class FleetNode(msgspec.Struct, frozen=True, rename="camel"):
    """A node, and what is known of its devices."""

    node: str
    pool: str = ""
    """The DaemonSet of its process."""
    pod: str = ""
    """Its process, as namespace/name."""
    mode: str = ""
    process_version: str = ""
    source: str = ""
    """Who says what is here: `plugin`, `dra`, or `slices` if no process answers; empty: nobody."""
    error: str = ""
    """Why its process does not answer."""
    problems: tuple[str, ...] = ()
    """What is wrong with the node: what its process says, and a mode that it should not serve."""
    counted: dict[str, int] = {}
    """What the kubelet counts as allocatable, by resource."""
    devices: tuple[Row, ...] = ()
    holders_known: bool = True
    """Whether it is known who has the devices: not by slices alone, without the claims."""


class Fleet(msgspec.Struct, frozen=True):
    """The nodes of a cluster that have to do with accelbind."""

    nodes: tuple[FleetNode, ...] = ()
    problems: tuple[str, ...] = ()
    """What could not be read, and why."""


@dataclass(slots=True)
class _Pod:
    node: str
    pool: str
    namespace: str
    name: str
    phase: str
    port: int
    mode: str
    """Of nodes without an annotation; empty if it is not known."""

    @property
    def path(self) -> str:
        where = f"{segment(self.namespace)}/pods/{segment(self.name)}:{self.port}"
        return f"/api/v1/namespaces/{where}/proxy/devices"


async def read_fleet(
    client: ClusterClient, only: Collection[str] = (), progress: Progress = lambda *_: None
) -> Fleet:
    """The nodes with accelbind; of a few if `only` names them.

    Raises:
        ClusterError: The API server does not answer, or neither pods nor nodes may be listed.
    """
    reader = Reader(client)
    pods = await reader.listed("/api/v1/pods", _pod, labels=COMPONENT)
    if pods is None:
        pods = await reader.listed(f"/api/v1/namespaces/{NAMESPACE}/pods", _pod, labels=COMPONENT)
    nodes = await reader.listed("/api/v1/nodes", _node)
    if pods is None and nodes is None:
        raise ClusterError("; ".join(reader.problems))

    def is_chosen(node: str) -> bool:
        return not only or node in only

    # Of two on a node, one may still wait for the other.
    by_phase = sorted(pods or (), key=lambda each: each.phase == RUNNING)
    asked = {each.node: each for each in by_phase if is_chosen(each.node)}
    tables, errors = await _ask(client, [*asked.values()], reader.problems, progress)
    amounts_of = {name: amounts for name, amounts, _ in nodes or ()}
    annotated = {name: mode for name, _, mode in nodes or ()}
    names = asked.keys() | {name for name, each in amounts_of.items() if any(each.values())}
    published: Mapping[str, tuple[Row, ...]] = {}
    claims_known = True
    if not tables or {name for name in names if is_chosen(name)} != tables.keys():
        published, claims_known = await _read_published(reader)

    def found(name: str) -> FleetNode:
        pod, table = asked.get(name), tables.get(name)
        place = (pod.pool, f"{pod.namespace}/{pod.name}") if pod else ("", "")
        node = FleetNode(name, *place, counted=amounts_of.get(name, {}))
        if table:
            shown = {each: getattr(table, each) for each in _OF_TABLE}
            wanted = annotated.get(name) or (pod.mode if pod else "")
            shown["problems"] = (*table.problems, *_other_mode(table, wanted))
            return msgspec.structs.replace(node, **shown)
        rows = published.get(name, ())
        error = errors.get(name, "no process of accelbind runs here")
        source = SLICED if rows else ""
        known = claims_known or not rows
        return msgspec.structs.replace(
            node, error=error, source=source, devices=rows, holders_known=known
        )

    chosen = sorted(filter(is_chosen, names | published.keys()))
    unknown = (each for each in only if each not in chosen)
    reader.problems += [
        f"node {plain(each)} neither runs accelbind nor has its devices" for each in unknown
    ]
    return Fleet(tuple(map(found, chosen)), tuple(reader.problems))


def _other_mode(table: Table, wanted: str) -> Iterator[str]:
    # A plugin reads its node's mode when it starts; with DRA there is none.
    if table.source == FROM_PLUGIN and wanted not in ("", table.mode):
        yield (
            f"it is to serve mode {wanted}, and its plugin serves {table.mode}, as when it started:"
            " drain it, and delete the pod of its plugin"
        )


# The processes -----------------------------------------------------------------------------------


async def _ask(
    client: ClusterClient, pods: Sequence[_Pod], problems: list[str], progress: Progress
) -> tuple[dict[str, Table], dict[str, str]]:
    """The answers, and why there is none, by node."""
    tables: dict[str, Table] = {}
    errors = {each.node: f"its pod {each.name} is {each.phase}" for each in pods}
    running = [each for each in pods if each.phase == RUNNING]
    gate, done = asyncio.Semaphore(AT_ONCE), count(1)

    async def ask(pod: _Pod) -> None:
        async with gate:
            try:
                tables[pod.node] = await _answer_of(client, pod)
            except ClusterError as error:
                errors[pod.node] = str(error)
        progress(next(done), len(running))

    async def ask_all(group: Sequence[_Pod]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for each in group:
                tasks.create_task(ask(each))

    first, others = running[:AT_ONCE], running[AT_ONCE:]
    await ask_all(first)
    reasons = {errors[each.node] for each in first if not tables}
    if len(reasons) == 1 and reasons & EVERYWHERE.keys():
        problems.append(EVERYWHERE[reasons.pop()])
        errors |= {each.node: _NOT_ASKED for each in others}
    else:
        await ask_all(others)
    return tables, {node: errors[node] for node in errors.keys() - tables.keys()}


async def _answer_of(client: ClusterClient, pod: _Pod) -> Table:
    """The devices of a node. Raises ClusterError with the reason why they are unknown."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            answer = await client.request("GET", pod.path)
        table = msgspec.json.decode(answer.body, type=Table)
    except TimeoutError as error:
        raise ClusterError(_SILENT) from error
    except UNREADABLE as error:
        raise ClusterError(_NO_PROCESS) from error
    if not table.source:  # the API server's own answer, or somebody else's
        if answer.status == FORBIDDEN:
            raise ClusterError(_FORBIDDEN)
        with contextlib.suppress(*UNREADABLE):
            if message := msgspec.json.decode(answer.body, type=Status).message:
                raise ClusterError(f"{_UNREACHABLE}: {plain(message, 300)}")
        raise ClusterError(_NO_PROCESS)
    if answer.status != HTTPStatus.OK:  # it knows no devices yet
        why = "; ".join(plain(each, 300) for each in table.problems)
        raise ClusterError(why or f"its process answers {answer.status}")
    if table.node != pod.node:  # another pod has this one's address by now
        raise ClusterError(f"the process of node {plain(table.node)} answers in its place")
    return table


def _pod(item: Json) -> _Pod | None:
    metadata, spec = part(item, "metadata"), part(item, "spec")
    labels, phase = part(metadata, "labels"), part(item, "status").get("phase")
    key, _, value = COMPONENT.partition("=")
    containers = spec.get("containers") or ()
    ports = _named((each.get("ports") for each in containers), PORT, "containerPort")
    modes = _named((each.get("env") for each in containers), variable("mode"), "value")
    if labels.get(key) != value or phase in ENDED or not spec.get("nodeName") or not ports:
        return None
    owners = metadata.get("ownerReferences") or ()
    pool = next((str(each.get("name")) for each in owners if each.get("controller")), "")
    place = str(metadata.get("namespace")), str(metadata.get("name"))
    mode = str(modes[0]) if modes else ""
    return _Pod(str(spec["nodeName"]), pool, *place, str(phase), int(ports[0]), mode)


def _named(lists: Iterable[list[Json] | None], name: str, key: str) -> list[Any]:
    """The values of a key of the entries with a name, of all containers."""
    return [each.get(key) for one in lists for each in one or () if each.get("name") == name]


# What the API server knows -----------------------------------------------------------------------


def _node(item: Json) -> tuple[str, dict[str, int], str]:
    """The name of a node, what the kubelet counts, and the mode of its annotation."""
    annotation = part(item, "metadata", "annotations").get(ANNOTATION)
    mode = str(annotation) if annotation in ANNOTATED else ""
    amounts = part(item, "status", "allocatable")
    ours = {key: amounts[key] for key in sorted(amounts) if key.startswith(_COUNTED)}
    return str(item["metadata"]["name"]), {key: number_of(ours[key]) for key in ours}, mode


async def _read_published(reader: Reader) -> tuple[Mapping[str, tuple[Row, ...]], bool]:
    """The devices by node, and whether it is known who has them."""
    slices = await reader.listed(SLICES, dict)
    devices = newest_devices(slices or ())
    if not devices:
        return {}, True
    claims = await reader.listed(CLAIMS, dict)
    holders: dict[tuple[str, str], list[Holder]] = defaultdict(list)
    for claim in claims or ():
        for each in results_of(claim):
            if each.get("driver") == DRIVER:
                holders[str(each.get("pool")), str(each.get("device"))] += _users(claim)
    rows = {
        node: tuple(_row(each, holders.get((node, str(each.get("name"))), ())) for each in found)
        for node, found in devices.items()
    }
    return rows, claims is not None


def _users(claim: Json) -> Iterable[Holder]:
    metadata, pods = claim["metadata"], part(claim, "status").get("reservedFor") or ()
    of_pods = [str(each.get("name")) for each in pods if each.get("resource") == "pods"]
    for pod in of_pods or [""]:
        yield Holder(str(metadata.get("namespace")), pod, "", str(metadata.get("name")))


def _row(device: Json, holders: Iterable[Holder]) -> Row:
    attributes = read_attributes(device)
    kind, numa = str(attributes.get("type") or ""), attributes.get(NUMA_NODE)
    taints = [each for each in device.get("taints") or () if each.get("key") == TAINT]
    return Row(
        device=str(device.get("name")),
        card=str(attributes.get(CARD) or ""),
        type="" if kind == FPGA else kind,
        pci_addresses=tuple(str(each) for each in (attributes.get(PCI_BUS_ID),) if each),
        numa_node=numa if isinstance(numa, int) else None,
        interface_id=str(attributes.get("interfaceID") or ""),
        afu_ids=tuple(str(each) for each in (attributes.get("afuID"),) if each),
        health=UNHEALTHY if taints else HEALTHY,
        reasons=tuple(Problem(str(each.get("value")), "as its slice says") for each in taints),
        holders=tuple(sorted(holders)),
    )
