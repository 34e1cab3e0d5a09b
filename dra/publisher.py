"""Publishes a node's devices as ResourceSlices, and keeps them as they should be.

    idle ── confirmed, scan, claim, other slices stored ──► round ── done ──► idle
                                                             ▲ └─── failed ──► pause
                                                             └───────────────────┘

A round compares the devices with what was published last and with the versions that the watch
shows. Only if either differs it lists the stored slices and writes.
"""

from collections.abc import (
    Awaitable,
    Callable,
    Container,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from typing import Any, Final

import structlog

from dra.slices import (
    COLLECTION,
    KIND,
    Body,
    Slice,
    devices_of_slices,
    has_taints,
    in_order,
    plan,
    read_attributes,
    read_slice,
    slice_spec,
)
from services.devices.dra import (
    API_VERSION,
    DRIVER,
    Attributes,
    DraDevice,
    carried,
    dra_devices,
)
from services.devices.model import Contents, Inventory
from services.kube.client import ClusterClient, requested_pause, segment
from services.kube.connection import ApiConnection
from services.kube.list_watch import USUAL_TIMING, WatchTiming
from services.kube.lists import list_objects
from services.kube.node_watcher import NODES
from services.kube.objects import (
    NamedObject,
    create_object,
    delete_object,
    read_object,
    replace_object,
)
from services.kube.reflector import Item, Reflector, Store
from services.node.state import NodeState
from services.process.due import Due
from services.process.errors import AccelbindError, ClusterError
from services.process.outage import Outage

MANAGER: Final = "accelbind-dra"

DELETED_SECONDS: Final = 1.0
"""Between a deletion by somebody else and creating the slice again. A kubelet that starts deletes
all slices of its node, and is through by then; so does the garbage collector for a lost Node."""

SPACING: Final = 0.5
"""Seconds between two rounds, at least."""

log = structlog.get_logger(component="dra")


class SlicePublisher:
    """Publishes the devices of a node, whose name is that of the pool.

    Args:
        connection: To the API server.
        node: Its name.
        state: What it has.
        programmed: Reads what was programmed into ports.
        held: Returns the devices that containers may change, by their names in slices.
        taken: Returns which devices containers have otherwise than by these names.
        programmable: Whether it programs regions.
        count: Called with the outcome of each write: `created`, `updated`, `deleted`, `failed`.
        timing: Pauses and time-outs.
    """

    def __init__(
        self,
        connection: ApiConnection,
        node: str,
        *,
        state: NodeState,
        programmed: Callable[[Inventory], Awaitable[Contents]],
        held: Callable[[], Container[str]],
        taken: Callable[[Iterable[DraDevice]], Awaitable[Container[str]]],
        programmable: bool,
        count: Callable[[str], object],
        timing: WatchTiming = USUAL_TIMING,
    ) -> None:
        self._connection = connection
        self._node = node
        self._state = state
        self._programmed = programmed
        self._held = held
        self._taken = taken
        self._programmable = programmable
        self._count = count
        self._timing = timing
        self._selector = f"spec.nodeName={node},spec.driver={DRIVER}"
        self._store = Store[str](_version, self._on_stored)
        self._due = Due()
        self._backoff = timing.backoff()
        self._confirmed = False
        self._not_before = 0.0
        """When the next round may begin."""
        self._published: list[list[Body]] | None = None
        """What the slices have, if the last round did not fail."""
        self._versions: dict[str, str] = {}
        """Of the slices as of the last round, by name."""
        self._shown: dict[str, Attributes] | None = None
        """The attributes of each published device, in order; None before the first list."""
        self._answers: dict[str, tuple[Sequence[Body], Sequence[Body]]] = {}
        """By slice: devices that were written, and what the API server has made of them."""
        self._has_taints = True
        self._outage = Outage(
            log, "ResourceSlices can't be published", "ResourceSlices are published again"
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

    def on_scan(self, _: NodeState) -> None:
        """Note that the node was scanned."""
        self._due.request()

    def loops(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """What runs while devices are published, by name."""
        reflector = Reflector(
            COLLECTION,
            self._connection,
            self._store,
            self._timing,
            outage="the stored ResourceSlices are not being watched",
            recovery="the stored ResourceSlices are being watched again",
            selector=self._selector,
            namespaced=False,
        )
        yield "slices", self._due.run_forever(self.run_once, spacing=SPACING)
        yield "slice watch", reflector.watch_forever()

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
        if not self._confirmed or self._state.inventory is None:
            return
        try:
            await self._publish(self._state.inventory)
        except AccelbindError as error:
            self._published = None
            self._count("failed")
            self._outage.failed(str(error))
            self._not_before = self._timing.clock() + self._backoff.pause(requested_pause(error))
            self._due.request()
        else:
            self._outage.ended()
            self._backoff.reset()

    async def _publish(self, inventory: Inventory) -> None:
        programmed = await self._programmed(inventory)
        present = dra_devices(
            self._state.advertised, inventory, programmed, programmable=self._programmable
        )
        taken = await self._taken(present)
        async with self._connection.client() as client:
            if self._shown is None:
                self._shown = await self._stored_attributes(client)
            held = self._held()
            # One that is taken is left out, since the scheduler would allocate it once more: a pod
            # of the plugin has it, or a claim by an earlier name, as before its type was renamed.
            # One that a claim has by this name shows what was in it before its containers could
            # change that.
            devices = [
                carried(each, self._shown.get(each.name, {}), programmed)
                if each.name in held
                else each
                for each in present
                if each.name not in taken
            ]
            devices = in_order(devices, self._shown)
            wanted = devices_of_slices(devices, taints=self._has_taints)
            if wanted == self._published and self._stored == self._versions:
                return
            await self._write(client, wanted)
        self._shown = {each.name: each.attributes for each in devices}

    async def _stored_attributes(self, client: ClusterClient) -> dict[str, Attributes]:
        # What an earlier process published: claims of then may still have the devices.
        stored = await self._list(client)
        bodies = [body for each in stored for body in read_slice(each.item).devices]
        return {body["name"]: read_attributes(body) for body in bodies}

    async def _list(self, client: ClusterClient) -> list[NamedObject]:
        def read(item: dict[str, Any]) -> NamedObject:
            about = {"apiVersion": API_VERSION, "kind": KIND}
            return NamedObject(f"{COLLECTION}/{item['metadata']['name']}", about | item, "")

        return await list_objects(client, COLLECTION, read, self._selector)

    async def _write(self, client: ClusterClient, wanted: list[list[Body]]) -> None:
        stored = {each.item["metadata"]["name"]: each for each in await self._list(client)}
        slices = {name: self._as_written(read_slice(each.item)) for name, each in stored.items()}
        planned = plan(self._node, wanted, slices.values())
        versions = {name: each.item["metadata"]["resourceVersion"] for name, each in stored.items()}
        for name in planned.delete:
            await delete_object(client, stored[name])
            del versions[name]
            self._count("deleted")
        for each in planned.write:
            written = await self._write_slice(client, each, stored.get(each.name))
            versions[each.name] = written.item["metadata"]["resourceVersion"]
            self._learn(each, read_slice(written.item))
        self._published, self._versions = wanted, versions
        if planned.delete or planned.write:
            number = sum(map(len, wanted))
            log.info(
                "devices published", devices=number, slices=[each.name for each in planned.write]
            )

    async def _write_slice(
        self, client: ClusterClient, wanted: Slice, stored: NamedObject | None
    ) -> NamedObject:
        spec = slice_spec(self._node, wanted)
        if stored is not None:
            written = await replace_object(
                client, stored, stored.item | {"spec": spec}, manager=MANAGER
            )
            self._count("updated")
            return written
        owner = await self._owner(client)
        metadata = {"name": wanted.name, "ownerReferences": [owner]}
        item = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
        created = await create_object(client, COLLECTION, item, manager=MANAGER)
        self._count("created")
        return created

    async def _owner(self, client: ClusterClient) -> dict[str, object]:
        # Read each time: a Node that was made anew has another UID, and by the old one the garbage
        # collector would delete the slice at once.
        node = await read_object(client, f"{NODES}/{segment(self._node)}")
        if node is None:
            raise ClusterError(
                f'the API server has no node "{self._node}": set --node-name to the name of this'
                " node in kubectl get nodes"
            )
        uid = node.item["metadata"].get("uid", "")
        about = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": uid}
        return about | {"controller": True}

    def _as_written(self, stored: Slice) -> Slice:
        # Compared with what is wanted, a slice is what was written, if it has what became of that.
        written, answer = self._answers.get(stored.name, ((), ()))
        if stored.devices != answer:
            return stored
        return Slice(stored.name, stored.generation, stored.count, written)

    def _learn(self, wanted: Slice, stored: Slice) -> None:
        # The API server drops fields that it doesn't know, and fills in others, such as `timeAdded`
        # of taints: without a note of that, the same would be written for ever.
        self._answers[wanted.name] = (wanted.devices, stored.devices)
        if has_taints(wanted.devices) and not has_taints(stored.devices):
            log.warning(
                "the API server drops taints of devices: unhealthy devices are left out of slices"
            )
            self._has_taints = False
            self._due.request()


def _version(item: Item) -> str:
    return item.metadata.resource_version
