"""The decision what each request of a claim wants of its devices, as a function.

Who decides about the function of a region, in this order:

    the class, {"afu", "program": "Never"}   it must be there already            Kind.NEVER
    the class, {"develop": true}             the workload programs the region    Kind.DEVELOP
    the claim, {"mapping": NAME}             what NAME stands for: programmed, or there already
    the pod of an extended resource          its FPGA_REGION_<n> and FPGA_AFU_<n>, programmed

A mapping may repeat what a class says; a claim that contradicts its class is refused.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import msgspec

from plugin.dra.claims import AllocatedClaim, Config, Requested, Share
from services.containers.holders import PodRef
from services.containers.permission import (
    Enforce,
    is_enforced,
    require_mapped_functions,
    require_mapped_resource,
)
from services.containers.wanted import (
    RequestMapping,
    StartingPod,
    WantedFunctions,
    read_wanted,
    single_wanted,
)
from services.devices.allocation import require_distinct_paths
from services.devices.dra import CONTENT, PROGRAM_DIGITS, Attributes, DraDevice
from services.devices.held import HELD
from services.devices.model import Device, PluginMode, Value
from services.mappings.index import NamespaceMappings
from services.mappings.model import Mapping as Named
from services.mappings.model import Mode
from services.mappings.suggestions import nearest
from services.names import DOMAIN, function_name, region_name
from services.process.errors import (
    DeviceBusy,
    ExternalFailure,
    NotAllowed,
    NotMapped,
)
from services.process.text import listing, plain, quote


class Kind(StrEnum):
    """The work that a request needs."""

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


class Part(NamedTuple):
    """A device of a request, and the part that it has of it."""

    device: str
    """Its name in the slice, with its address."""
    id: str
    """On the node; a driver that is loaded again may number it otherwise: `dfl-fme.0`."""
    claims: tuple[str, ...]
    """What it claims of the hardware (`Device.claims`)."""
    attributes: Mapping[str, Value]
    """When this was decided; none if an older version has written it."""
    share: Share
    """The whole device, if an older version has written it."""
    resource: str
    """Its own."""


class Want(msgspec.Struct, frozen=True):
    """A request's function and its devices. Stored on the disk: files of other versions are read.

    `devices`, `ids`, `claims`, `attributes` and `shares` have the same order: see `parts`.
    """

    request: str
    kind: Kind
    devices: tuple[str, ...]
    ids: tuple[str, ...]
    claims: tuple[tuple[str, ...], ...]
    own: str
    """The resource that is really theirs, whatever the pod calls it."""
    resource: str
    """As the pod calls it: a container finds its variable by that."""
    who: str = ""
    functions: tuple[str, ...] = ()
    interface_id: str = ""
    reference: str = ""
    """The request with the chosen alternative: `name/alternative`."""
    attributes: tuple[dict[str, Value], ...] = ()
    shares: tuple[Share, ...] = ()

    def parts(self) -> Iterator[Part]:
        """Each of its devices."""
        number = len(self.devices)
        attributes, shares = self.attributes or ({},) * number, self.shares or (Share(),) * number
        for each in zip(self.devices, self.ids, self.claims, attributes, shares, strict=True):
            yield Part(*each, self.own)

    @property
    def wanted(self) -> WantedFunctions:
        """The functions for its regions."""
        return WantedFunctions(self.who, self.functions, self.interface_id)


def held(wants: Iterable[Want]) -> Iterator[Part]:
    """The devices that a claim has, as a whole or in part; others it only watches."""
    return (part for want in wants if want.kind is not Kind.ADMIN for part in want.parts())


class MappingsNeeded(Exception):
    """A decision needs the namespace's mappings; few do."""


def located(wants: Iterable[Want], devices: Mapping[str, DraDevice]) -> tuple[Want, ...]:
    """Earlier decisions, with the ids that the devices have now.

    Raises:
        ExternalFailure: A device is gone.
    """
    pairs = ((want, require_present(want.devices, devices, want.who).values()) for want in wants)
    return tuple(
        msgspec.structs.replace(want, ids=_ids(those), claims=_claims(those))
        for want, those in pairs
    )


def _ids(devices: Iterable[Device]) -> tuple[str, ...]:
    return tuple(device.id for device in devices)


def _claims(devices: Iterable[Device]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(sorted(device.claims)) for device in devices)


def require_present(
    names: Iterable[str], devices: Mapping[str, DraDevice], who: str
) -> dict[str, Device]:
    """The devices with these names.

    Raises:
        ExternalFailure: One is gone.
    """
    present = {}
    for name in names:
        if name not in devices:
            raise ExternalFailure(f"{who} was allocated {plain(name)}, which this node hasn't now")
        present[name] = devices[name].device
    return present


def require_healthy(wants: Iterable[Want], devices: Mapping[str, DraDevice]) -> None:
    """Raise `ExternalFailure` if a device of a claim is unhealthy, unless it only watches it."""
    for want in wants:
        for name in want.devices if want.kind is not Kind.ADMIN else ():
            if reasons := devices[name].device.reasons:
                raise ExternalFailure(
                    f"{want.who} has {plain(name)}, which is unhealthy: {reasons[0].text}"
                )


def withheld(names: Iterable[str], devices: Mapping[str, DraDevice]) -> dict[str, str]:
    """Why devices are not free though no other has their names: containers have their nodes."""
    reasons = (
        (name, each) for name in names if name in devices for each in devices[name].device.reasons
    )
    return {name: each.text for name, each in reasons if each.code == HELD}


def require_free(wants: Iterable[Want], devices: Mapping[str, DraDevice]) -> None:
    """Raise `DeviceBusy` if containers of others have a node of a device of a claim."""
    busy = withheld((part.device for part in held(wants)), devices)
    if busy:
        raise DeviceBusy(listing([f"{plain(name)}: {why}" for name, why in sorted(busy.items())]))


def require_unchanged(wants: Iterable[Want], claim: AllocatedClaim) -> None:
    """Raise `DeviceBusy` for a claim that was allocated other devices since."""
    # Its containers may have the old ones, which nobody would give back.
    before = {(want.request, each.device, each.share) for want in wants for each in want.parts()}
    now = {
        (each.name, device, part)
        for each in claim.requests
        for device, part in zip(each.devices, each.shares, strict=True)
    }
    if before != now:
        old = sorted({device for _, device, _ in before})
        raise DeviceBusy(
            f"{claim.ref} was allocated other devices meanwhile, and still has {listing(old)} on"
            " this node: delete its pods; if no container uses the claim any more:"
            f" accelbind dra release {claim.ref.uid}"
        )


def decide(
    claim: AllocatedClaim,
    devices: Mapping[str, DraDevice],
    *,
    owner: StartingPod | None,
    mappings: NamespaceMappings | None,
    enforce: Enforce,
) -> tuple[Want, ...]:
    """Decide what each request of a claim wants.

    `devices` are the node's, by name; `owner` is the pod for whose extended resources the claim was
    made, if so; `mappings` are its namespace's, None if they have not been read.

    Raises:
        NotAllowed: It wants what it may not have, or nobody says what it wants.
        ExternalFailure: A device is gone.
        MappingsNeeded: The mappings must be read.
    """
    users = owner.requests_of(claim.ref.name) if owner else ()
    wants, given = [], list[Device]()
    for each in claim.requests:
        who = f"request {quote(each.name)} of {claim.ref}"
        candidates = [*require_present(each.devices, devices, who).values()]
        shown = [devices[name].attributes for name in each.devices]
        own = [user for user in users if user.request_name == each.name]
        decision = _Decision(claim, owner, mappings, enforce, each, who, candidates, shown, own)
        wants.append(decision.want())
        given += [] if each.admin else candidates
    require_distinct_paths(str(claim.ref), given)  # a container may have all requests of a claim
    return tuple(wants)


@dataclass(slots=True)
class _Decision:
    claim: AllocatedClaim
    owner: StartingPod | None
    given: NamespaceMappings | None
    enforce: Enforce
    request: Requested
    who: str
    devices: Sequence[Device]
    attributes: Sequence[Attributes]
    users: Sequence[RequestMapping]
    """By the containers of the owner."""

    @property
    def _mappings(self) -> NamespaceMappings:
        if self.given is None:
            raise MappingsNeeded
        return self.given

    def want(self) -> Want:
        types = {device.type for device in self.devices}
        if self.request.admin:
            return self._made(Kind.ADMIN, self.devices[0].resource)
        if "" not in types:
            if self.request.config != Config():
                raise NotAllowed(f"{self.who}: a configuration is for FPGAs, and it has none")
            return self._made(Kind.PLAIN, self.devices[0].resource)
        interfaces = {device.interface_id for device in self.devices}
        if len(types) > 1 or len(interfaces) > 1 or not all(interfaces):
            raise NotAllowed(
                f"{self.who} was allocated devices of different kinds or regions, or of a region"
                f" that can't be read: let its class select by interfaceID"
            )
        return self._of_regions(interfaces.pop())

    def _of_regions(self, interface: str) -> Want:
        named = self._mapping() if self.request.config.mapping else None
        if named is not None and named.resolution.interface_id != interface:
            raise NotAllowed(
                f"{self.who}: {named.label} is for interface {named.resolution.interface_id}, and"
                f" the allocated region has {interface}: let its class select by interfaceID"
            )
        if self.request.config.develop:
            return self._develop(interface, named)
        if self.request.config.afu:
            return self._never(interface, self.request.config.afu, named)
        if named is not None:
            return self._named(interface, named)
        if self.owner and self.claim.owner and self.users:
            return self._of_pod(interface, self.owner, self.claim.owner)
        raise NotAllowed(
            f"{self.who} names no function for its region: name a mapping in the claim's"
            ' configuration, {"mapping": NAME}, or request an extended resource'
        )

    def _mapping(self) -> Named:
        name, known = self.request.config.mapping, self._mappings
        if name in known.by_name:
            return known.by_name[name]
        text = f"{self.who}: {quote(name)} is not mapped in namespace {plain(known.namespace)}"
        if name in known.rejected:
            raise NotMapped(f"{text}: {known.rejected[name]}")
        if near := nearest(name, known.by_name):
            text += f"; did you mean {plain(near)}?"
        raise NotMapped(text)

    def _develop(self, interface: str, named: Named | None) -> Want:
        if self.request.config.afu or (named and named.resolution.mode is not Mode.REGIONDEVEL):
            raise NotAllowed(f"{self.who}: its class is for development, and it names a function")
        resource = _region_resource(interface)
        if is_enforced(self.enforce, PluginMode.REGIONDEVEL):
            require_mapped_resource(self.who, resource, self._mappings, PluginMode.REGIONDEVEL)
        return self._made(Kind.DEVELOP, resource, interface=interface)

    def _never(self, interface: str, afu: str, named: Named | None) -> Want:
        if named is not None and (named.resolution.mode, named.resolution.afu_id) != (Mode.AF, afu):
            raise NotAllowed(
                f"{self.who}: its class is for AFU {afu} without programming, and {named.label}"
                " stands for something else"
            )
        resource = f"{DOMAIN}/{function_name(interface, afu)}"
        # The webhook has checked what pods request in its domain, and sees no claims: so with
        # `auto`, those that it has not seen are checked too.
        requested = [user.resource_name for user in self.users]
        is_seen = requested and all(each.startswith(f"{DOMAIN}/") for each in requested)
        is_auto = self.enforce is Enforce.AUTO
        if is_enforced(self.enforce, PluginMode.AF) or (is_auto and not is_seen):
            require_mapped_resource(self.who, resource, self._mappings, PluginMode.AF)
        return self._made(Kind.NEVER, resource, (afu,), interface)

    def _named(self, interface: str, named: Named) -> Want:
        afu = named.resolution.afu_id
        if afu is None:
            raise NotAllowed(
                f"{self.who}: {named.label} is a region for development, which needs a DeviceClass"
                ' with {"develop": true}'
            )
        if named.resolution.mode is Mode.AF:
            return self._never(interface, afu, named)
        functions = (afu,) * len(self.devices)
        return self._made(Kind.PROGRAM, _region_resource(interface), functions, interface)

    def _of_pod(self, interface: str, owner: StartingPod, ref: PodRef) -> Want:
        # Init containers share requests with those after them.
        names = [user.container_name for user in self.users]
        wanted = single_wanted(
            [read_wanted(owner, ref, name, interface_id=interface) for name in names]
        )
        if is_enforced(self.enforce, PluginMode.REGION):
            require_mapped_functions(wanted, self._mappings)
        self.who = wanted.who  # messages are for the author of the pod, who has written no claim
        resource = _region_resource(interface)
        return self._made(Kind.PROGRAM, resource, wanted.functions, interface)

    def _made(
        self, kind: Kind, resource: str, functions: tuple[str, ...] = (), interface: str = ""
    ) -> Want:
        content = _content(functions) if interface else {}
        return Want(
            self.request.name,
            kind,
            self.request.devices,
            _ids(self.devices),
            _claims(self.devices),
            resource,
            self.users[0].resource_name if self.users else resource,
            self.who,
            functions,
            interface,
            self.request.reference,
            tuple({**each, **content} for each in self.attributes),
            self.request.shares,
        )


def _content(functions: Collection[str]) -> dict[str, str]:
    """The attributes of regions that say what is in them, once they are ready for a claim."""
    # Which region gets which of several functions is decided later.
    function = next(iter(functions)) if len(set(functions)) == 1 else ""
    is_program = len(function) == PROGRAM_DIGITS
    return dict(zip(CONTENT, ("", function) if is_program else (function, ""), strict=True))


def _region_resource(interface: str) -> str:
    return f"{DOMAIN}/{region_name(interface)}"
