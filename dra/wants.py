"""What each request of a claim wants of its devices: the decision, as a function.

Who decides about the function of a region, in this order:

    the class, {"afu", "program": "Never"}   it must be there already            Kind.NEVER
    the class, {"develop": true}             the workload programs the region    Kind.DEVELOP
    the claim, {"mapping": NAME}             what NAME stands for: programmed, or there already
    the pod of an extended resource          its FPGA_REGION_<n> and FPGA_AFU_<n>, programmed

A mapping may repeat what a class says; a claim that contradicts its class is refused. Devices of
device types have no function. With `--enforce-mappings` the claim's namespace must map what it
gets, as for the plugin in modes af, regiondevel and region. The webhook sees only what pods request
in its domain, so with `auto` other claims of functions of mode af are checked too.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from dra.claims import AllocatedClaim, ClaimRef, Requested
from services.containers.identity import PodRef, display_name
from services.containers.permission import (
    Enforce,
    is_enforced,
    require_mapped_functions,
    require_mapped_resource,
)
from services.containers.wanted import (
    StartingPod,
    WantedFunctions,
    read_wanted,
    single_wanted,
)
from services.devices.dra import DraDevice
from services.devices.model import Device, PluginMode
from services.mappings.index import NamespaceMappings
from services.mappings.model import Mapping as Named
from services.mappings.model import Mode
from services.mappings.suggestions import known_names, nearest
from services.names import DOMAIN, function_name, region_name
from services.process.errors import (
    DeviceBusy,
    ExternalFailure,
    InvalidName,
    NotAllowed,
    NotMapped,
)
from services.process.text import listing, plain, quote


class Kind(StrEnum):
    """What is done for a request."""

    PLAIN = "plain"
    """A device of a device type: nothing."""
    NEVER = "never"
    """The function must be in its regions already."""
    PROGRAM = "program"
    """The functions are programmed into its regions, where they aren't there."""
    DEVELOP = "develop"
    """The workload programs the region: it gets the engine's node too."""
    ADMIN = "admin"
    """It watches devices that others may have: no nodes."""


class Want(msgspec.Struct, frozen=True):
    """What a request wants, and its devices."""

    request: str
    kind: Kind
    devices: tuple[str, ...]
    """Their names in the slice."""
    ids: tuple[str, ...]
    """Their ids on the node, in the same order: `dfl-fme.0`."""
    claims: tuple[tuple[str, ...], ...]
    """What each of them claims of the hardware (`Device.claims`)."""
    own: str
    """The resource that is really theirs, whatever the pod calls it."""
    resource: str
    """Full resource name, for which a container finds its variable."""
    who: str = ""
    """Who wants it, for messages."""
    functions: tuple[str, ...] = ()
    interface_id: str = ""

    @property
    def wanted(self) -> WantedFunctions:
        """The functions that are to be in its regions."""
        return WantedFunctions(self.who, self.functions, self.interface_id)


class _RequestMapping(msgspec.Struct, rename="camel"):
    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class _ExtendedStatus(msgspec.Struct, rename="camel"):
    resource_claim_name: str = ""
    request_mappings: list[_RequestMapping] | None = None


class _PodStatus(msgspec.Struct, rename="camel"):
    extended_resource_claim_status: _ExtendedStatus | None = None


class _Pod(msgspec.Struct):
    status: _PodStatus


_User: TypeAlias = tuple[str, str, str]
"""Request, container and full resource name."""


class MappingsNeeded(Exception):
    """What the namespace maps must be known for a decision."""


class OwnerPod(msgspec.Struct, frozen=True):
    """The pod of an extended-resource claim."""

    pod: StartingPod
    ref: PodRef
    users: tuple[_User, ...]


_POD: Final = msgspec.json.Decoder(_Pod)


def read_owner(body: bytes, pod: StartingPod, ref: PodRef, claim: ClaimRef) -> OwnerPod:
    """Which container of a pod, which was confirmed, uses which request of a claim.

    Raises:
        NotAllowed: The pod doesn't name the claim.
    """
    try:
        status = _POD.decode(body).status.extended_resource_claim_status or _ExtendedStatus()
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise NotAllowed(f"the status of {claim}'s pod can't be read: {error}") from error
    if status.resource_claim_name != claim.name:
        raise NotAllowed(
            f"{claim} is for extended resources, and its pod names"
            f" {quote(status.resource_claim_name)} as their claim"
        )
    users = [
        (each.request_name, each.container_name, each.resource_name)
        for each in status.request_mappings or ()
    ]
    return OwnerPod(pod, ref, tuple(users))


def located(wants: Iterable[Want], devices: Mapping[str, DraDevice]) -> tuple[Want, ...]:
    """What was decided before, with the ids that the devices have now.

    A driver that is loaded again may number its regions otherwise; names have addresses.

    Raises:
        ExternalFailure: A device is gone.
    """
    found = ((want, [*_found(want.devices, devices, want.who)]) for want in wants)
    return tuple(
        msgspec.structs.replace(want, ids=_ids(those), claims=_claims(those))
        for want, those in found
    )


def _ids(devices: Iterable[Device]) -> tuple[str, ...]:
    return tuple(device.id for device in devices)


def _claims(devices: Iterable[Device]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(sorted(device.claims)) for device in devices)


def _found(names: Iterable[str], devices: Mapping[str, DraDevice], who: str) -> Iterator[Device]:
    for name in names:
        if name not in devices:
            raise ExternalFailure(f"{who} was allocated {plain(name)}, which this node hasn't now")
        yield devices[name].device


def require_unchanged(wants: Iterable[Want], claim: AllocatedClaim) -> None:
    """Refuse a claim that was given other devices since: its containers may have the old ones.

    Raises:
        DeviceBusy: It was.
    """
    before = {(want.request, device) for want in wants for device in want.devices}
    now = {(each.name, device) for each in claim.requests for device in each.devices}
    if before != now:
        old = sorted({device for _, device in before})
        raise DeviceBusy(
            f"{claim.ref} was allocated other devices meanwhile, and still has {listing(old)} on"
            " this node: delete its pods; if no container uses the claim any more:"
            f" accelbind dra release {claim.ref.uid}"
        )


def decide(
    claim: AllocatedClaim,
    devices: Mapping[str, DraDevice],
    *,
    owner: OwnerPod | None,
    mappings: NamespaceMappings | None,
    enforce: Enforce,
) -> tuple[Want, ...]:
    """What each request of a claim wants.

    Args:
        claim: The claim.
        devices: The node's devices by name.
        owner: The pod for whose extended resources it was made, if so.
        mappings: What its namespace maps; None if it has not been read.
        enforce: When the namespace must map what the claim gets.

    Raises:
        NotAllowed: It wants what it may not have, or nobody says what it wants.
        ExternalFailure: A device is gone.
        MappingsNeeded: The mappings must be read.
    """
    return tuple(
        _Decision(claim, each, devices, owner=owner, mappings=mappings, enforce=enforce).want()
        for each in claim.requests
    )


class _Decision:
    """The decision about one request."""

    def __init__(
        self,
        claim: AllocatedClaim,
        request: Requested,
        devices: Mapping[str, DraDevice],
        *,
        owner: OwnerPod | None,
        mappings: NamespaceMappings | None,
        enforce: Enforce,
    ) -> None:
        self._request = request
        self._owner = owner
        self._given = mappings
        self._enforce = enforce
        self._config = request.config
        self._who = f"request {quote(request.name)} of {claim.ref}"
        self._devices = [*_found(request.devices, devices, self._who)]
        self._users = [each for each in (owner.users if owner else ()) if each[0] == request.name]
        self._containers = tuple(dict.fromkeys(container for _, container, _ in self._users))
        self._resource = next((resource for *_, resource in self._users), "")

    @property
    def _mappings(self) -> NamespaceMappings:
        if self._given is None:
            raise MappingsNeeded
        return self._given

    def want(self) -> Want:
        """What the request wants."""
        types = {device.type for device in self._devices}
        if self._request.admin:
            return self._made(Kind.ADMIN, self._devices[0].resource)
        if "" not in types:
            if self._config.afu or self._config.develop or self._config.mapping:
                raise NotAllowed(f"{self._who}: a configuration is for FPGAs, and it has none")
            return self._made(Kind.PLAIN, self._devices[0].resource)
        interfaces = {device.interface_id for device in self._devices}
        if len(types) > 1 or len(interfaces) > 1 or not all(interfaces):
            raise NotAllowed(
                f"{self._who} was allocated devices of different kinds or regions, or of a region"
                f" that can't be read: let its class select by interfaceID"
            )
        return self._of_regions(interfaces.pop())

    def _of_regions(self, interface: str) -> Want:
        named = self._mapping() if self._config.mapping else None
        if named is not None and named.resolution.interface_id != interface:
            raise NotAllowed(
                f"{self._who}: {named.label} is for interface {named.resolution.interface_id}, and"
                f" the allocated region has {interface}: let its class select by interfaceID"
            )
        if self._config.develop:
            return self._develop(interface, named)
        if self._config.afu:
            return self._never(interface, self._config.afu, named)
        if named is not None:
            return self._named(interface, named)
        if self._owner is not None and self._containers:
            return self._of_pod(interface, self._owner)
        raise NotAllowed(
            f"{self._who} names no function for its region: name a mapping in the claim's"
            ' configuration, {"mapping": NAME}, or request an extended resource'
        )

    def _mapping(self) -> Named:
        name, known = self._config.mapping, self._mappings
        if name in known.by_name:
            return known.by_name[name]
        text = f"{self._who}: {quote(name)} is not mapped in namespace {plain(known.namespace)}"
        if name in known.rejected:
            raise NotMapped(f"{text}: {known.rejected[name]}")
        if near := nearest(name, known.by_name):
            text += f"; did you mean {plain(near)}?"
        elif known.by_name:
            text += f"; it maps {known_names(known.by_name)}"
        raise NotMapped(text)

    def _develop(self, interface: str, named: Named | None) -> Want:
        if self._config.afu or (named and named.resolution.mode is not Mode.REGIONDEVEL):
            raise NotAllowed(f"{self._who}: its class is for development, and it names a function")
        resource = _region_resource(interface)
        if is_enforced(self._enforce, PluginMode.REGIONDEVEL):
            require_mapped_resource(self._who, resource, self._mappings, PluginMode.REGIONDEVEL)
        return self._made(Kind.DEVELOP, resource, interface=interface)

    def _never(self, interface: str, afu: str, named: Named | None) -> Want:
        if named is not None and (named.resolution.mode, named.resolution.afu_id) != (Mode.AF, afu):
            raise NotAllowed(
                f"{self._who}: its class is for AFU {afu} without programming, and {named.label}"
                " stands for something else"
            )
        resource = _af_resource(interface, afu)
        # The webhook has checked what pods request in its domain, and sees no claims.
        requested = [resource for *_, resource in self._users]
        is_seen = requested and all(each.startswith(f"{DOMAIN}/") for each in requested)
        is_auto = self._enforce is Enforce.AUTO
        if is_enforced(self._enforce, PluginMode.AF) or (is_auto and not is_seen):
            require_mapped_resource(self._who, resource, self._mappings, PluginMode.AF)
        return self._made(Kind.NEVER, resource, (afu,), interface)

    def _named(self, interface: str, named: Named) -> Want:
        afu = named.resolution.afu_id
        if afu is None:
            raise NotAllowed(
                f"{self._who}: {named.label} is a region for development, which needs a DeviceClass"
                ' with {"develop": true}'
            )
        if named.resolution.mode is Mode.AF:
            return self._made(Kind.NEVER, _af_resource(interface, afu), (afu,), interface)
        functions = (afu,) * len(self._devices)
        return self._made(Kind.PROGRAM, _region_resource(interface), functions, interface)

    def _of_pod(self, interface: str, owner: OwnerPod) -> Want:
        """What the containers of the pod want; those that share a request must want the same."""
        ref = owner.ref
        wanted = single_wanted(
            [read_wanted(owner.pod, ref, each, interface_id=interface) for each in self._containers]
        )
        if is_enforced(self._enforce, PluginMode.REGION):
            require_mapped_functions(wanted, self._mappings)
        self._who = display_name(self._containers[0], ref)
        resource = _region_resource(interface)
        return self._made(Kind.PROGRAM, resource, wanted.functions, interface)

    def _made(
        self, kind: Kind, resource: str, functions: tuple[str, ...] = (), interface: str = ""
    ) -> Want:
        return Want(
            self._request.name,
            kind,
            self._request.devices,
            _ids(self._devices),
            _claims(self._devices),
            resource,
            self._resource or resource,
            self._who,
            functions,
            interface,
        )


def _region_resource(interface: str) -> str:
    return f"{DOMAIN}/{region_name(interface)}"


def _af_resource(interface: str, afu: str) -> str:
    """The name of a function's resource; that of its region if it has none."""
    try:
        return f"{DOMAIN}/{function_name(interface, afu)}"
    except InvalidName:
        return _region_resource(interface)
