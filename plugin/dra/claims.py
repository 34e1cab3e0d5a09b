"""Reads an allocated ResourceClaim: which of our devices it has, and how they are configured.

Results and configurations are in `status.allocation.devices`. Configurations of ours are these:

    source      parameters
    FromClass   {"afu": ID, "program": "Never"}   the function must be there already
    FromClass   {"develop": true}                 the workload programs the region itself
    FromClaim   {"mapping": NAME}                 the function that NAME stands for in the namespace
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from services.containers.holders import PodRef
from services.devices.dra import DRIVER, SHARES
from services.names import AFU_LENGTHS, check_id
from services.pods.requests import parse_count
from services.process.errors import InvalidName, InvalidQuantity, NotAllowed
from services.process.json import UNREADABLE
from services.process.text import plain, quote

FROM_CLASS: Final = "FromClass"
FROM_CLAIM: Final = "FromClaim"

EXTENDED: Final = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of claims that the scheduler makes for extended resources of a pod."""

POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"
"""The annotation of claims that are made from a template: what the pod calls it."""

_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


class Share(msgspec.Struct, frozen=True):
    """The part of a device that a claim has; without an id it is the whole device."""

    id: str = ""
    amount: int = 0


class ClaimRef(msgspec.Struct, frozen=True):
    """A claim in the cluster."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"claim {plain(self.namespace)}/{plain(self.name)}"


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of a request, by its class and its claim; empty where neither has any."""

    afu: str = ""
    develop: bool = False
    mapping: str = ""


@dataclass(frozen=True, slots=True)
class Requested:
    """The devices of ours that a request was allocated."""

    name: str
    """Without the chosen alternative."""
    reference: str
    """With the chosen alternative, if it has any: `name/alternative`."""
    devices: tuple[str, ...]
    shares: tuple[Share, ...]
    """What it was allocated of each of them."""
    admin: bool
    """Whether it watches devices that others have."""
    config: Config


@dataclass(frozen=True, slots=True)
class AllocatedClaim:
    """A claim, as far as the driver reads it."""

    ref: ClaimRef
    requests: tuple[Requested, ...]
    owner: PodRef | None
    """The pod for whose extended resources the scheduler made the claim."""
    pods: tuple[PodRef, ...]
    """The pods that it is for."""
    pod_claim: str = ""
    """The name in its pod of one that was made from a template; empty for any other."""

    @property
    def pod(self) -> PodRef | None:
        """The pod to which Events are written."""
        return self.pods[0] if self.pods else None


class _Owner(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None


class _Result(msgspec.Struct, rename="camel"):
    request: str = ""
    """Of one with alternatives (`firstAvailable`) also the chosen one: `base/chosen`."""
    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str = msgspec.field(default="", name="shareID")
    consumed_capacity: dict[str, str] | None = None
    admin_access: bool | None = None


class _Opaque(msgspec.Struct):
    driver: str = ""
    parameters: msgspec.Raw = msgspec.Raw(b"null")


class _Config(msgspec.Struct):
    source: str = ""
    requests: list[str] | None = None
    """Those for which it is; none for all."""
    opaque: _Opaque | None = None


class _Devices(msgspec.Struct):
    results: list[_Result] | None = None
    config: list[_Config] | None = None


class _Allocation(msgspec.Struct):
    devices: _Devices = msgspec.field(default_factory=_Devices)


class _Consumer(msgspec.Struct):
    resource: str = ""
    name: str = ""
    uid: str = ""


class _Status(msgspec.Struct, rename="camel"):
    allocation: _Allocation | None = None
    reserved_for: list[_Consumer] | None = None


class _Claim(msgspec.Struct):
    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)


_DECODER: Final = msgspec.json.Decoder(_Claim)


def read_claim(body: bytes | None, ref: ClaimRef, *, pool: str) -> AllocatedClaim:
    """Read the API server's claim, which must be the one that is prepared, with devices of a pool.

    Raises:
        NotAllowed: It is another one, or what it says can't be had.
    """
    if body is None:
        raise NotAllowed(f"the API server has no {ref}: it was deleted")
    claim = _decode(body, ref)
    if claim.metadata.uid != ref.uid:
        raise NotAllowed(
            f"{ref} has been replaced: the API server has it with UID {quote(claim.metadata.uid)},"
            f" and {quote(ref.uid)} is prepared"
        )
    if claim.status.allocation is None:
        raise NotAllowed(f"{ref} is not allocated")
    devices = claim.status.allocation.devices
    results = [each for each in devices.results or () if each.driver == DRIVER]
    _check(results, ref, pool)
    requests = []
    for name in dict.fromkeys(_base(each.request) for each in results):  # as the kubelet knows it
        of_request = [each for each in results if _base(each.request) == name]
        requests.append(
            Requested(
                name,
                of_request[0].request,
                tuple(each.device for each in of_request),
                tuple(_share(each, ref) for each in of_request),
                any(each.admin_access for each in of_request),
                _config(of_request, devices.config or (), ref),
            )
        )
    owner = _owner(claim.metadata, ref)
    consumers = tuple(_consumers(claim.status, ref))
    pods = dict.fromkeys((owner, *consumers) if owner else consumers)
    return AllocatedClaim(ref, tuple(requests), owner, tuple(pods), _pod_claim(claim.metadata))


def has_devices(body: bytes | None, ref: ClaimRef, devices: Collection[str], *, pool: str) -> bool:
    """Whether the API server's claim is this one, and still has any of these devices of a pool.

    Raises:
        NotAllowed: That is unknown, since the API server's claim can't be read.
    """
    if body is None:
        return False
    claim = _decode(body, ref)
    allocation = claim.status.allocation
    results = (allocation and allocation.devices.results) or ()
    return claim.metadata.uid == ref.uid and any(
        (each.driver, each.pool) == (DRIVER, pool) and each.device in devices for each in results
    )


def _decode(body: bytes, ref: ClaimRef) -> _Claim:
    try:
        return _DECODER.decode(body)
    except UNREADABLE as error:
        raise NotAllowed(f"the API server's {ref} can't be read: {plain(str(error))}") from error


def _check(results: Iterable[_Result], ref: ClaimRef, pool: str) -> None:
    known = set()
    for each in results:
        if each.pool != pool:
            raise NotAllowed(
                f"{ref} was allocated {quote(each.device)} of pool {quote(each.pool)}, and this is"
                f" node {quote(pool)}"
            )
        if (each.device, _base(each.request)) in known:
            raise NotAllowed(f"{ref} was allocated {quote(each.device)} twice")
        known.add((each.device, _base(each.request)))
    if not known:
        raise NotAllowed(f"{ref} has no device of driver {DRIVER}")


def _share(result: _Result, ref: ClaimRef) -> Share:
    if not result.share_id:
        return Share()
    amounts = result.consumed_capacity or {}
    try:
        return Share(result.share_id, parse_count(amounts.get(SHARES, "1")))
    except InvalidQuantity as error:
        raise NotAllowed(
            f"{ref} was allocated a share of {quote(result.device)}: {error}"
        ) from error


def _base(request: str) -> str:
    return request.partition("/")[0]


def _pod_claim(metadata: _Metadata) -> str:
    # Users may write the annotation too, and it becomes a part of a path. The claims that are made
    # of a template belong to their pod.
    name = (metadata.annotations or {}).get(POD_CLAIM, "")
    is_of_pod = any(each.kind == "Pod" for each in metadata.owner_references or ())
    return name if is_of_pod and _LABEL.fullmatch(name) else ""


def _owner(metadata: _Metadata, ref: ClaimRef) -> PodRef | None:
    # Users make claims that belong to pods too: an environment counts only for the scheduler's.
    if (metadata.annotations or {}).get(EXTENDED) != "true":
        return None
    pods = [
        each
        for each in metadata.owner_references or ()
        if (each.api_version, each.kind) == ("v1", "Pod")
    ]
    if len(pods) != 1 or not pods[0].controller:
        raise NotAllowed(f"{ref} is for extended resources, and belongs to no pod")
    return PodRef(ref.namespace, pods[0].name, pods[0].uid)


def _consumers(status: _Status, ref: ClaimRef) -> Iterator[PodRef]:
    for each in status.reserved_for or ():
        if each.resource == "pods":
            yield PodRef(ref.namespace, each.name, each.uid)


# Configurations ----------------------------------------------------------------------------------


def _config(results: Iterable[_Result], configs: Iterable[_Config], ref: ClaimRef) -> Config:
    # A configuration may name a request with its alternative or without.
    names = {name for each in results for name in (each.request, _base(each.request))}
    merged: dict[str, Any] = {}
    for config in configs:
        if config.opaque is None or config.opaque.driver != DRIVER:
            continue
        if config.requests and names.isdisjoint(config.requests):
            continue
        where = f"{ref}: the configuration of driver {DRIVER} {_SOURCES.get(config.source, '')}"
        values = _parameters(bytes(config.opaque.parameters), config.source, where)
        for key, value in values.items():
            if merged.setdefault(key, value) != value:
                raise NotAllowed(f"{where} sets {quote(key)} for one request to different values")
    return Config(**merged)


_SOURCES: Final = {FROM_CLASS: "in its DeviceClass", FROM_CLAIM: "in the claim"}


def _parameters(text: bytes, source: str, where: str) -> dict[str, Any]:
    """The values of one configuration of ours."""
    # Strictly: users write claims, and one that may hold anything else would get something else
    # than it says.
    match _read_json(text, where):
        case {"afu": str(afu), "program": "Never", **rest} if source == FROM_CLASS and not rest:
            try:
                return {"afu": check_id(afu, what='"afu"', lengths=AFU_LENGTHS)}
            except InvalidName as error:
                raise NotAllowed(f"{where}: {error}") from error
        case {"develop": True, **rest} if source == FROM_CLASS and not rest:
            return {"develop": True}
        case {"mapping": str(name), **rest} if source == FROM_CLAIM and name and not rest:
            return {"mapping": name}
    allowed = {
        FROM_CLASS: '{"afu": ID, "program": "Never"} and {"develop": true}',
        FROM_CLAIM: '{"mapping": NAME}; functions and "develop" are for a DeviceClass',
    }.get(source, "none")
    raise NotAllowed(f"{where} is {plain(text.decode(errors='replace'))}; allowed: {allowed}")


def _read_json(text: bytes, where: str) -> object:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        answers = dict(pairs)
        if len(answers) < len(pairs):  # another reader may use the other value
            raise NotAllowed(f"{where} has a key twice")
        return answers

    try:
        return json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise NotAllowed(f"{where} can't be read: {plain(str(error))}") from error
