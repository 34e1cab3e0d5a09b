"""What the page shows: readings of a cluster, made while somebody looks."""

import asyncio
import contextlib
import dataclasses
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from accelbind.cluster import Json, part
from accelbind.devices.fleet import Fleet, FleetNode, read_fleet
from accelbind.devices.show import Tally
from accelbind.doctor.cluster import Cluster, read_targets
from accelbind.doctor.model import Unseen
from accelbind.doctor.workloads import PENDING, noted, read_pods, waiting_lines
from accelbind.output import error_text
from services.admission.mutate import Policy
from services.kube.access import Access
from services.kube.client import ClusterClient
from services.kube.lists import list_objects
from services.node.table import Row
from services.process.errors import ClusterError
from services.process.text import plain

EVENTS: Final = "/api/v1/events"
SHARE: Final = 4
"""Times as long as a reading takes, there is none: of a large cluster it is many requests."""
_LIVING: Final = (PENDING, "Running", "Unknown")
_TEXT: Final = 600


class Tile(msgspec.Struct, frozen=True):
    """A node of the fleet at a glance."""

    name: str
    pool: str
    mode: str
    version: str
    all: int
    free: int | None
    """None if it is unknown who has the devices, as is `used`."""
    used: int | None
    unhealthy: int
    state: str
    """`healthy`, `unhealthy`, `empty` (no device) or `silent` (its process does not answer)."""
    note: str


class Reading(msgspec.Struct, frozen=True):
    """A cluster at one moment."""

    at: str
    """When it was read (RFC 3339)."""
    seconds: float
    """How long that took."""
    tiles: list[Tile]
    resources: list[Json]
    """Numbers of devices by resource: name, all, free, used (None if unknown), unhealthy."""
    pods: list[Json]
    """Those that request our resources: namespace, name, node, phase, asks, and why they wait, as
    `accelbind doctor` says it (what, todo)."""
    problems: list[str]
    """What could not be read."""


class Shown(msgspec.Struct, frozen=True):
    """The last reading, and why there is no newer one."""

    reading: Reading | None = None
    error: str = ""


class Live:
    """Reads a cluster again and again while somebody watches."""

    def __init__(self, access: Access, namespace: str, policy: Policy, interval: float) -> None:
        self.client = ClusterClient(access)
        self.policy = policy
        self.shown = Shown()
        self.fleet = Fleet()
        """As of the last reading."""
        self._access = access
        self._namespace = namespace
        self._interval = interval
        self._watching = 0
        self._changed = asyncio.Condition()

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._watching)
            started = time.monotonic()
            try:
                self.shown = Shown(await self._read())
            except Exception as error:  # noqa: BLE001 - the page shows it, and the next reading may work
                self.shown = Shown(self.shown.reading, plain(error_text(error), _TEXT))
            async with self._changed:
                self._changed.notify_all()
            took = time.monotonic() - started
            await asyncio.sleep(max(self._interval, SHARE * took))

    async def watch(
        self, is_ending: Callable[[], bool], heartbeat: float
    ) -> AsyncIterator[Shown | None]:
        """Yield what is shown, now and after each change; None at times in between."""
        last: Shown | None = None
        self._watching += 1
        async with self._changed:
            self._changed.notify_all()
        try:
            while not is_ending():
                shown = self.shown
                yield None if shown is last else shown
                last = shown
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(heartbeat), self._changed:
                        await self._changed.wait()
        finally:
            self._watching -= 1

    def node(self, name: str) -> FleetNode | None:
        """A node of the last reading."""
        return next((each for each in self.fleet.nodes if each.node == name), None)

    async def events(self, node: str) -> list[Json]:
        """The Events on a node, the newest first.

        Raises:
            ClusterError: They can't be read.
        """
        selector = f"involvedObject.kind=Node,involvedObject.name={node}"
        found = await list_objects(self.client, EVENTS, _event, selector)
        return sorted(found, key=lambda each: str(each["at"]), reverse=True)

    async def _read(self) -> Reading:
        started = time.monotonic()
        at = datetime.now(UTC).isoformat(timespec="seconds")
        self.fleet = fleet = await read_fleet(self.client)
        problems = [*fleet.problems]
        pods = await asyncio.to_thread(self._read_pods, problems)
        return Reading(
            at,
            round(time.monotonic() - started, 2),
            [*map(_tile, fleet.nodes)],
            [*_by_resource(fleet)],
            pods,
            [plain(each, _TEXT) for each in problems],
        )

    def _read_pods(self, problems: list[str]) -> list[Json]:
        # In a thread: the doctor's checks wait for their answers.
        cluster = Cluster(lambda: self._access, self._namespace, self.policy)
        targets: frozenset[str] = frozenset()
        pods: list[Json] = []
        try:
            with contextlib.suppress(Unseen):  # those that the webhook noted are found without
                targets = read_targets(cluster)
            found = read_pods(cluster, targets, _LIVING)
            pods = [_pod(each) for each in found]
            rows = {id(pod): row for pod, row in zip(found, pods, strict=True)}
            waiting = [each for each in found if part(each, "status").get("phase") == PENDING]
            for pod, line in waiting_lines(cluster, waiting):
                rows[id(pod)]["why"].append({"what": line.what, "todo": line.todo})
        except (ClusterError, Unseen) as error:
            problems.append(f"pods that wait: {error}")
        return pods


def _tile(node: FleetNode) -> Tile:
    tally = Tally.of(node.devices)
    state = "silent" if node.error else "unhealthy" if tally.unhealthy else "healthy"
    if state == "healthy" and not tally.all:
        state = "empty"
    return Tile(
        node.node,  # whole: the page asks for the node by it
        plain(node.pool),
        plain(node.mode),
        plain(node.process_version),
        tally.all,
        tally.free if node.holders_known else None,
        tally.used if node.holders_known else None,
        tally.unhealthy,
        state,
        plain(node.error or "; ".join(node.problems), _TEXT),
    )


def _by_resource(fleet: Fleet) -> Iterator[Json]:
    rows: dict[str, list[Row]] = defaultdict(list)
    unknown: set[str] = set()
    for node in fleet.nodes:
        for row in node.devices:
            name = row.resource or row.type
            rows[name].append(row)
            if not node.holders_known:
                unknown.add(name)
    for name in sorted(rows):
        uses = dict.fromkeys(("free", "used")) if name in unknown else {}
        yield {"name": name, **dataclasses.asdict(Tally.of(rows[name])), **uses}


def _pod(pod: Json) -> Json:
    metadata, spec = part(pod, "metadata"), part(pod, "spec")
    return {
        "namespace": str(metadata.get("namespace")),
        "name": str(metadata.get("name")),
        "node": str(spec.get("nodeName") or ""),
        "phase": str(part(pod, "status").get("phase")),
        "asks": noted(pod) or ", ".join(pod["requested"]),
        "why": [],
    }


def _event(item: Json) -> Json:
    return {
        "at": str(item.get("lastTimestamp") or item.get("eventTime") or ""),
        "type": str(item.get("type") or ""),
        "reason": str(item.get("reason") or ""),
        "message": str(item.get("message") or ""),
    }
