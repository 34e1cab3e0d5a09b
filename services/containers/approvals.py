"""What containers were allowed to have, so that they can start again without the API server.

A container that was approved once may start again with the same devices and the same functions
while its pod exists (same UID) and the API server can't be reached. Nothing else follows from an
approval, and while the API server answers, its answer counts.

One resource name stands for a region in two modes. In mode region a container may have functions,
in mode regiondevel it may program. An approval of one mode does not count in the other one.

Approvals are a value; `encode` and `decode` are for the file that outlives the plugin's process.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from services.containers.identity import ContainerIdentity
from services.containers.wanted import WantedFunctions
from services.devices.model import PluginMode
from services.process.errors import AskerError

MAX_APPROVALS: Final = 4096
"""A node has 110 pods by default; the oldest approvals go first."""

MAX_BYTES: Final = 8 * 1024 * 1024
"""Of a file of approvals."""


class StartApproval(msgspec.Struct, frozen=True, rename="camel"):
    """What a container may have of a resource.

    Attributes:
        pod_uid: UID of its pod.
        container: Its name.
        resource: Full resource name.
        devices: The devices' ids, sorted.
        who: The container and its pod, for messages.
        functions: What it wants in regions; empty where it brings its own.
    """

    pod_uid: str
    container: str
    resource: str
    devices: tuple[str, ...]
    who: str
    functions: tuple[str, ...] = ()

    @property
    def wanted(self) -> WantedFunctions:
        """What it wanted when it was approved."""
        return WantedFunctions(self.who, self.functions)

    def is_for(self, mode: PluginMode) -> bool:
        """Whether it counts in a mode: it has functions in mode region, and only there."""
        return bool(self.functions) == (mode is PluginMode.REGION)


_Key: TypeAlias = tuple[str, str, str]


class Approvals:
    """The approvals of one moment; `with_` and `without_pods` give others."""

    __slots__ = ("_by_key",)

    def __init__(self, by_key: Mapping[_Key, StartApproval] = MappingProxyType({})) -> None:
        """Copy approvals by pod, container and resource."""
        self._by_key = dict(by_key)

    def __iter__(self) -> Iterator[StartApproval]:
        return iter(self._by_key.values())

    def __len__(self) -> int:
        return len(self._by_key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Approvals) and self._by_key == other._by_key

    __hash__ = None  # type: ignore[assignment] # compares by value, and nobody looks it up

    def find(
        self, container: ContainerIdentity, resource: str, devices: Collection[str]
    ) -> StartApproval | None:
        """Return the approval of a container for exactly these devices, None if there is none."""
        found = self._by_key.get((container.pod_uid, container.container, resource))
        return found if found is not None and found.devices == tuple(sorted(devices)) else None

    def with_(self, approvals: Iterable[StartApproval]) -> "Approvals":
        """Return these and others, which replace those of the same container and resource."""
        every = dict(self._by_key)
        for each in approvals:
            key = (each.pod_uid, each.container, each.resource)
            every.pop(key, None)  # so that the newest is last
            every[key] = each
        for key in list(every)[: max(0, len(every) - MAX_APPROVALS)]:
            del every[key]
        return Approvals(every)

    @property
    def pods(self) -> frozenset[str]:
        """UIDs of the pods that they are about."""
        return frozenset(key[0] for key in self._by_key)

    def without_pods(self, uids: Collection[str]) -> "Approvals":
        """Return those of other pods than these."""
        return Approvals({key: each for key, each in self._by_key.items() if key[0] not in uids})

    def encode(self) -> bytes:
        """Return all of them as JSON."""
        return msgspec.json.encode(list(self._by_key.values()))


class BrokenApprovals(AskerError):
    """Bytes that are not approvals."""


def decode(data: bytes) -> Approvals:
    """Read what `encode` returned.

    Raises:
        BrokenApprovals: It is something else.
    """
    try:
        found = msgspec.json.decode(data, type=list[StartApproval])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BrokenApprovals(f"no approvals can be read: {error}") from error
    return Approvals().with_(found)
