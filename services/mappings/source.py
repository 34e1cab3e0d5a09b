"""Mappings from the API server: followed in one index that is replaced whole, or listed once.

A reflector for each kind fills one `Store`. The latest index is used however long the API server is
away.
"""

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final, NoReturn

import msgspec
import structlog

from services.kube.client import NOT_FOUND, BadStatus, ClusterClient, segment
from services.kube.lists import list_objects
from services.kube.reflector import Item, Reflector, Store
from services.kube.watches import WatchTiming
from services.mappings.index import EMPTY_INDEX, MappingIndex, build_namespace
from services.mappings.kinds import TABLE, MappingKind
from services.mappings.model import MappingEntry, Rejected, parse, read_entry
from services.process.errors import InvalidMapping
from services.process.json import UNREADABLE
from services.process.outage import Outage
from services.process.waits import Due

INTERVAL: Final = 0.01
"""Seconds from one index to the next, at least."""
MAX_SHARE: Final = 0.05
"""The share of the event loop's time that building indexes may take."""

NO_DEFINITIONS: Final = (
    "the API server knows no kind of mapping: install the custom resource definitions"
)
"""No name can be used; a cluster may do without some of the kinds, but not without all."""

log = structlog.get_logger(component="mappings")


class ApiServerSource:
    """The latest mappings of a cluster; an index follows another after `interval` seconds.

    Raises:
        ClusterError: No API server is configured, or the credentials can't be used.
    """

    def __init__(
        self,
        client: ClusterClient,
        *,
        timing: WatchTiming,
        interval: float = INTERVAL,
    ) -> None:
        self.index: MappingIndex = EMPTY_INDEX
        """The mappings in use; replaced as a whole, never changed."""
        self.loaded = False
        """Whether all kinds have been listed."""
        self.stores: dict[str, Store[MappingEntry]] = {}
        self._client = client
        self._interval = interval
        self._clock = timing.clock
        self._unusable = Outage(log, "mapping can't be used", "all mappings can be used")
        self._changed = Due()
        self._reflectors: dict[str, Reflector[MappingEntry]] = {}
        for name, kind in TABLE.items():
            store = self.stores[name] = Store(partial(read_item, name), self._changed.request)
            self._reflectors[name] = Reflector(
                kind.path,
                self._client,
                store,
                timing,
                outage="mappings are not being updated, the known ones stay in use",
                recovery="mappings are being updated again",
            )

    @property
    def rejected(self) -> int:
        """How many names have an object that can't be used."""
        return self.index.rejected

    @property
    def age(self) -> float:
        """Seconds since all kinds were last known to be up to date."""
        return self._clock() - min(each.last_seen for each in self._reflectors.values())

    @property
    def error(self) -> str:
        """Why the mappings aren't being updated now; empty if they are."""
        if self.loaded and all(each.missing for each in self._reflectors.values()):
            return NO_DEFINITIONS
        return next((each.error for each in self._reflectors.values() if each.error), "")

    @property
    def watch_failures(self) -> Mapping[str, int]:
        """How many lists and watches of each kind have failed."""
        return {kind: each.failures for kind, each in self._reflectors.items()}

    @property
    def watching(self) -> bool:
        """Whether all kinds that the API server knows are being watched right now."""
        return all(each.watching or each.missing for each in self._reflectors.values())

    async def follow(self) -> NoReturn:
        """Keep the index up to date until cancelled, whatever errors occur."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for reflector in self._reflectors.values():
                    tasks.create_task(reflector.watch_forever())
                await self._changed.run_forever(self._publish, spacing=self._interval)
        finally:
            await self._client.aclose()

    async def _publish(self) -> None:
        """Build an index after changes, at a bounded rate."""
        begun = time.thread_time()  # not the time of other processes
        # Without one kind, names would be served that clash with those of another.
        if all(store.listed for store in self.stores.values()):
            self._swap(indexed(self.index, self.stores.values()))
        await asyncio.sleep((time.thread_time() - begun) / MAX_SHARE)

    def _swap(self, index: MappingIndex) -> None:
        self.index = index
        if not self.loaded:
            self.loaded = True
            log.info(
                "mappings loaded",
                mappings=len(index),
                namespaces=len(index.namespaces),
                problems=index.rejected,
            )
            if self.error == NO_DEFINITIONS:
                log.warning("no name can be used", reason=NO_DEFINITIONS)
        first = next(index.reasons, "")
        reason = first and f"{index.rejected} of them, first: {first}"
        self._unusable.update(reason, mappings=index.rejected)


def indexed(before: MappingIndex, stores: Collection[Store[MappingEntry]]) -> MappingIndex:
    """Return an index of all objects; namespaces that have not changed are taken from `before`."""
    changed = set[str]().union(*(store.changed for store in stores))
    if not changed:
        return before
    for store in stores:
        store.changed.clear()
    return before.with_namespaces(
        build_namespace(
            name, [entry for each in stores for entry in each.objects.get(name, {}).values()]
        )
        for name in changed
    )


def read_item(kind: str, item: Item) -> MappingEntry:
    """Read an object of a kind, or why it can't be used."""
    namespace, name = item.metadata.namespace, item.metadata.name
    annotations = _decoded(item.metadata.annotations)
    metadata = {"namespace": namespace, "name": name, "annotations": annotations}
    obj = {"apiVersion": TABLE[kind].api_version, "kind": kind, "metadata": metadata}
    try:
        return parse(obj | {"spec": _decoded(item.spec)})
    except InvalidMapping as error:
        return Rejected(kind, namespace, name, str(error))


def _decoded(raw: msgspec.Raw) -> object:
    try:
        return _ANY.decode(raw)
    except UNREADABLE:
        return None


_ANY: Final = msgspec.json.Decoder()


async def list_entries(
    client: ClusterClient,
    namespace: str | None,
    kinds: Iterable[MappingKind] = tuple(TABLE.values()),
) -> list[MappingEntry]:
    """List the mappings of a namespace or, with None, of the cluster.

    Raises:
        ClusterError: The API server doesn't answer, doesn't allow it, or lacks all definitions.
    """
    entries: list[MappingEntry] = []
    missing: BadStatus | None = None
    served = False
    within = f"/namespaces/{segment(namespace)}" if namespace else ""
    for kind in kinds:
        path = f"/apis/{kind.api_version}{within}/{kind.plural}"
        try:
            entries += await list_objects(client, path, partial(_read_listed, kind))
            served = True
        except BadStatus as error:
            if error.status != NOT_FOUND:
                raise
            missing = error
    if missing is not None and not served:
        raise BadStatus(
            f"{missing}: are the custom resource definitions of {kind.group} installed?",
            NOT_FOUND,
        ) from missing
    return entries


def _read_listed(kind: MappingKind, item: dict[str, Any]) -> MappingEntry | None:
    # The items of a list don't say what they are.
    return read_entry(item | {"kind": kind.name, "apiVersion": kind.api_version})
