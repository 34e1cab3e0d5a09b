"""Publishes a node's devices as ResourceSlices, and keeps them as they should be.

    idle ── confirmed, scan, claim, other slices stored ──► round ── done ──► idle
                                                             ▲ └─── failed ──► pause
                                                             └───────────────────┘

A round compares the devices with what was published last and with the versions that the watch
shows. Only if either differs it writes; if the versions do, it lists the stored slices before.
"""

from collections.abc import Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import structlog
from prometheus_client import Counter

from plugin.dra.book import ClaimBook
from plugin.dra.slices import (
    COLLECTION,
    KIND,
    Body,
    Slice,
    device_body,
    has_shares,
    has_taints,
    plan,
    read_slice,
    shown_attributes,
    slice_name,
    slice_spec,
    slices,
)
from services.devices.dra import API_VERSION, DRIVER
from services.devices.model import Contents, Inventory
from services.kube.client import ClusterClient, requested_pause, segment, will_pass
from services.kube.lists import list_objects
from services.kube.nodes import NODES
from services.kube.objects import (
    NamedObject,
    create_object,
    delete_object,
    read_object,
    replace_object,
    try_create,
)
from services.kube.reflector import Item, Reflector, Store
from services.kube.watches import USUAL_TIMING, WatchTiming
from services.node.ledger import Ledger
from services.node.state import NodeState
from services.process.errors import AccelbindError, ClusterError
from services.process.outage import Outage
from services.process.text import listing

MANAGER: Final = "accelbind-dra"

DELETED_SECONDS: Final = 1.0
"""Between a deletion by somebody else and creating the slice again. A kubelet that starts deletes
all slices of its node, and is through by then; so does the garbage collector for a lost Node."""

WATCH: Final = WatchTiming(first=165.0, longest=170.0, spread=0.95, watch=600.0)
"""Of the watch of a node's slices, which change seldom. Thousands of nodes lose theirs when an API
server restarts: a hundredth of them comes back in a second, and all do within three minutes."""

SPACING: Final = 0.5
"""Seconds between two rounds, at least."""

log = structlog.get_logger(component="dra")


class ReadsContents(Protocol):
    """Reads what was programmed into ports."""

    async def contents(self, inventory: Inventory) -> Contents:
        """The contents of ports, as accelbind has programmed them."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The API server's answer to the last write of a slice, or its content that needed none."""

    wanted: Sequence[Body]
    """The devices that were to be in it."""
    slice: NamedObject
    """As the API server has answered."""

    @property
    def stored(self) -> Sequence[Body]:
        """The devices that are in it."""
        return read_slice(self.slice.item).devices

    @property
    def version(self) -> str:
        """That of the slice."""
        return str(self.slice.item["metadata"]["resourceVersion"])


class SlicePublisher:
    """Publishes the devices of a node, whose name is that of the pool.

    Args:
        connection: To the API server.
        node: Its name.
        state: What it has.
        regions: Read what was programmed into ports.
        book: The claims that have devices.
        writes: Counts writes by their outcome: `created`, `updated`, `deleted`, `failed`.
        timing: Pauses and time-outs of writes.
    """

    def __init__(
        self,
        connection: ClusterClient,
        node: str,
        state: NodeState,
        regions: ReadsContents,
        book: ClaimBook,
        *,
        writes: Counter,
        timing: WatchTiming = USUAL_TIMING,
    ) -> None:
        self._client = connection
        self._node = node
        self._state = state
        self._regions = regions
        self._book = book
        self._writes = writes
        self._timing = timing
        self._selector = f"spec.nodeName={node},spec.driver={DRIVER}"
        self._store = Store[str](_version, self._on_stored)
        self._due = state.steps.follow()
        self._backoff = timing.backoff()
        self._confirmed = False
        self._not_before = 0.0
        """When the next round may begin."""
        self._answers: Mapping[str, Answer] | None = None
        """By slice, as of the last round that didn't fail; None before the first one."""
        self._has_taints = True
        self._is_tried = False
        """Whether it is known if the API server keeps shares of devices."""
        self._outdated: Ledger | None = None
        """One whose devices are not divided as the API server keeps it."""
        self._outage = Outage(
            log, "ResourceSlices can't be published", "ResourceSlices are published again"
        )
        self._renamed = Outage(
            log,
            "devices aren't published, since claims have them by earlier names",
            "no claim has a device by an earlier name",
            level="info",
        )

    @property
    def _stored(self) -> dict[str, str]:
        """The versions of the stored slices, as the watch shows them."""
        return self._store.objects.get("", {})

    @property
    def error(self) -> str:
        """Why the slices are not what they should be; empty if they are."""
        return self._outage.reason

    def confirm(self) -> None:
        """Note that the kubelet has registered the driver."""
        self._confirmed = True
        self._due.request()

    def loops(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """The loops that run while devices are published, by name."""
        reflector = Reflector(
            COLLECTION,
            self._client,
            self._store,
            WATCH,
            outage="the stored ResourceSlices are not being watched",
            recovery="the stored ResourceSlices are being watched again",
            selector=self._selector,
            namespaced=False,
            cached=True,
        )
        yield "slices", self._due.run_forever(self.run_once, spacing=SPACING)
        yield "slice watch", reflector.watch_forever()

    @property
    def _versions(self) -> dict[str, str]:
        """The versions of the slices as of the last round."""
        return {name: each.version for name, each in (self._answers or {}).items()}

    def _on_stored(self) -> None:
        """Note that the watch shows other slices than before."""
        if self._stored == self._versions:
            return  # our own writes
        if self._versions.keys() - self._stored.keys():
            self._not_before = self._timing.clock() + DELETED_SECONDS
        self._due.request()

    async def run_once(self) -> None:
        """Publish the devices, if anything has changed."""
        await self._timing.sleep(self._not_before - self._timing.clock())
        # A claim for a device that was published sooner could not be prepared.
        if not self._confirmed or self._state.ledger.inventory is None:
            return
        try:
            await self._publish(self._state.ledger.inventory)
        except AccelbindError as error:
            self._writes.labels("failed").inc()
            self._outage.failed(str(error))
            self._not_before = self._timing.clock() + self._backoff.pause(requested_pause(error))
            self._due.request()
        else:
            self._outage.ended()
            self._backoff.reset()

    async def _publish(self, inventory: Inventory) -> None:
        ledger = self._state.ledger
        if not await self._is_divided_right(ledger):
            return
        programmed = await self._regions.contents(inventory)
        answers = self._answers
        if answers is None:
            # Those of an earlier process: claims of then may still have the devices.
            stored = await self._list()
            before = [read_slice(each.item) for each in stored]
        else:
            stored = [each.slice for each in answers.values()]
            before = [Slice(name, 0, 0, each.wanted) for name, each in answers.items()]
        wanted = slices(
            ledger,
            programmed,
            shown_attributes(before),
            committed=self._book.committed(),
            renamed=self._renamed_of(ledger),
            taints=self._has_taints,
        )
        if answers is not None:
            # As far as our writes and the watch show.
            is_current = not self.error and self._stored == self._versions
            if is_current and [each.wanted for each in answers.values()] == wanted:
                return
            if not is_current:
                stored = await self._list()
        await self._write(wanted, stored)

    async def _is_divided_right(self, ledger: Ledger) -> bool:
        """Whether devices are divided as the API server keeps it, if any are.

        Otherwise a scan is requested, which finds replicas in place of shares, or the reverse.
        """
        if ledger is self._outdated:
            return False
        # A trial, since nothing else may be stored to learn it from: devices are left out while
        # claims have replicas of them. Two shares are the fewest that a server takes.
        divided = [
            replace(each, device=replace(each.device, shares=each.device.shares or 2))
            for each in ledger.by_name.values()
            if each.device.shares or (each.device.share is not None and not self._state.divides)
        ]
        if self._is_tried or not divided:
            return True
        wanted = Slice(f"{slice_name(self._node, 0)}-trial", 1, 1, [device_body(divided[0])])
        stored = None
        try:
            item = self._item(wanted, [])
            stored = await try_create(self._client, COLLECTION, item, manager=MANAGER)
        except ClusterError as error:
            if will_pass(error):
                raise
            # As where a webhook that allows no trials is asked; the features are on by default.
            log.warning("a slice with shares can't be tried out", reason=str(error))
        self._is_tried = True
        return stored is None or self._follow_server(keeps=has_shares(read_slice(stored).devices))

    def _follow_server(self, *, keeps: bool) -> bool:
        """Return whether devices are divided as the server `keeps` it; else request a scan."""
        if not keeps:
            log.warning(
                "the API server drops shares of devices (DRAConsumableCapacity): each share is"
                " published as a device"
            )
        if keeps == self._state.divides:
            return True
        self._state.divides, self._outdated = keeps, self._state.ledger
        self._state.rescan.request()
        return False

    def _renamed_of(self, ledger: Ledger) -> Collection[str]:
        """The devices that claims have by earlier names."""
        renamed = self._book.renamed(ledger.by_name)
        whose = [f"{device} (of {claim})" for device, claim in sorted(renamed.items())]
        self._renamed.update(listing(whose) if whose else "")
        return renamed.keys()

    async def _list(self) -> list[NamedObject]:
        # An old list leads to a conflict, and to another list after a pause. Thousands of nodes may
        # list at once, and the database may be read in full for each.
        def read(item: dict[str, Any]) -> NamedObject:
            about = {"apiVersion": API_VERSION, "kind": KIND}
            return NamedObject(f"{COLLECTION}/{item['metadata']['name']}", about | item)

        return await list_objects(self._client, COLLECTION, read, self._selector, cached=True)

    async def _write(self, wanted: list[list[Body]], known: Sequence[NamedObject]) -> None:
        stored = {each.item["metadata"]["name"]: each for each in known}
        present = [self._as_written(read_slice(each.item)) for each in stored.values()]
        planned = plan(self._node, wanted, present)
        for name in planned.delete:
            await delete_object(self._client, stored.pop(name))
            self._writes.labels("deleted").inc()
        for each in planned.write:
            stored[each.name] = await self._write_slice(each, stored.get(each.name))
        self._learn(wanted, stored)
        if planned.delete or planned.write:
            number = sum(map(len, wanted))
            log.info(
                "devices published", devices=number, slices=[each.name for each in planned.write]
            )

    async def _write_slice(self, wanted: Slice, stored: NamedObject | None) -> NamedObject:
        if stored is not None:
            spec = {"spec": slice_spec(self._node, wanted)}
            written = await replace_object(
                self._client, stored, stored.item | spec, manager=MANAGER
            )
            self._writes.labels("updated").inc()
            return written
        item = self._item(wanted, [await self._owner()])
        created = await create_object(self._client, COLLECTION, item, manager=MANAGER)
        self._writes.labels("created").inc()
        return created

    def _item(self, wanted: Slice, owners: list[dict[str, object]]) -> dict[str, Any]:
        metadata = {"name": wanted.name, "ownerReferences": owners}
        spec = slice_spec(self._node, wanted)
        return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}

    async def _owner(self) -> dict[str, object]:
        # Read each time: a Node that was recreated has another UID, and by the old one the garbage
        # collector would delete the slice at once.
        node = await read_object(self._client, f"{NODES}/{segment(self._node)}")
        if node is None:
            raise ClusterError(
                f'the API server has no node "{self._node}": set --node-name to the name of this'
                " node in kubectl get nodes"
            )
        uid = node.item["metadata"].get("uid", "")
        about = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": uid}
        return about | {"controller": True}

    def _as_written(self, stored: Slice) -> Slice:
        # If the stored slice is what the server made of our last write, compare with that write.
        answer = (self._answers or {}).get(stored.name)
        if answer is None or stored.devices != answer.stored:
            return stored
        return Slice(stored.name, stored.generation, stored.count, answer.wanted)

    def _learn(self, wanted: list[list[Body]], stored: Mapping[str, NamedObject]) -> None:
        # The API server drops fields that it doesn't know, and fills in others, such as `timeAdded`
        # of taints: without a note of that, the same would be written for ever.
        names = [slice_name(self._node, number) for number in range(len(wanted))]
        self._answers = {
            name: Answer(devices, stored[name]) for name, devices in zip(names, wanted, strict=True)
        }
        answers = self._answers.values()
        if any(has_taints(each.wanted) and not has_taints(each.stored) for each in answers):
            log.warning(
                "the API server drops taints of devices: unhealthy devices are left out of slices"
            )
            self._has_taints = False
            self._due.request()
        # The trial may have been refused, or the feature be off since.
        if any(has_shares(each.wanted) and not has_shares(each.stored) for each in answers):
            self._follow_server(keeps=False)


def _version(item: Item) -> str:
    return item.metadata.resource_version
