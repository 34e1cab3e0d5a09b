"""The DRA driver's decisions for the claims of a pod, for `accelbind explain`."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from accelbind.dra.classes import AF_CLASS, TYPE_CLASS, FpgaClass, opaque
from accelbind.dra.objects import TEMPLATE, ClaimObjects, list_claim_objects
from accelbind.explain.answer import Answer, ExplainedClaim
from accelbind.output import warn
from plugin.dra.claims import FROM_CLAIM, FROM_CLASS, ClaimRef, read_claim
from plugin.dra.wants import Kind, Want, decide
from services.containers.permission import Enforce
from services.devices.dra import API_VERSION, DRIVER, DraDevice
from services.devices.model import Device
from services.kube.client import ClusterClient
from services.mappings.accelerator import CLAIM_TEMPLATE
from services.mappings.index import MappingIndex, NamespaceMappings
from services.mappings.model import Mode
from services.process.errors import ClusterError, InvalidManifest, NotAllowed, NotMapped
from services.process.objects import group_of, is_kind
from services.process.text import plain

CLAIM: Final = "ResourceClaim"

_TEXTS: Final = {
    Kind.PLAIN: "the container gets the device",
    Kind.NEVER: "the device has AFU {}",
    Kind.PROGRAM: "AFU {} is programmed, unless the region has it",
    Kind.DEVELOP: "the container programs the region itself",
    Kind.ADMIN: "the container watches the device, and gets no device node",
}


class _Alternative(msgspec.Struct, rename="camel"):
    name: str = ""
    device_class_name: str = ""
    admin_access: bool | None = None


class _Request(msgspec.Struct, rename="camel"):
    name: str
    exactly: _Alternative | None = None
    first_available: list[_Alternative] | None = None

    def alternatives(self) -> Iterator[tuple[str, _Alternative]]:
        """The requests that satisfy it, by their names in a claim's results."""
        if self.exactly is not None:
            yield self.name, self.exactly
        for each in self.first_available or ():
            yield f"{self.name}/{each.name}", each


class _Devices(msgspec.Struct):
    requests: list[_Request] | None = None
    config: list[dict[str, Any]] | None = None


class _Spec(msgspec.Struct):
    devices: _Devices | None = None
    spec: "_Spec | None" = None
    """The spec of the claims of a template."""


class _Metadata(msgspec.Struct):
    name: str
    namespace: str | None = None


class FoundClaim(msgspec.Struct):
    """A claim or a template of a manifest."""

    kind: str
    metadata: _Metadata
    spec: _Spec


class _Entry(msgspec.Struct, rename="camel"):
    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    resource_claims: list[_Entry] | None = None


def find_claims(document: object) -> Iterator[FoundClaim]:
    """Yield the claim or template that a document is.

    Raises:
        InvalidManifest: It can't be read.
    """
    for kind in (CLAIM, TEMPLATE):
        if is_kind(document, kind, group_of(API_VERSION)):
            try:
                yield msgspec.convert(document, FoundClaim)
            except msgspec.ValidationError as error:
                raise InvalidManifest(f"{kind}: {error}") from error


def explain_claims(
    answer: Answer,
    mappings: NamespaceMappings,
    found: Iterable[FoundClaim],
    objects: ClaimObjects | None,
) -> Iterator[ExplainedClaim]:
    """Yield what the driver would do for each claim of a pod that is for our devices.

    The pod's names may stand for claims. `objects` are those of the cluster, if they are known.

    Raises:
        InvalidManifest: The pod's claims can't be read.
    """
    namespace = answer.namespace
    known = {
        (each.kind, each.metadata.name, each.metadata.namespace or namespace): each.spec
        for each in found
    }
    for entry in _entries(answer):
        kind, name = CLAIM, entry.resource_claim_name
        if not name:
            kind, name = TEMPLATE, entry.resource_claim_template_name or ""
        claim = known.get((kind, name, namespace))
        problem = (
            objects.problem(namespace, CLAIM_TEMPLATE + name)
            if objects and kind == TEMPLATE
            else ""
        )
        if problem:
            yield ExplainedClaim(entry.name, "", "", problem)
        elif claim is None:
            text = f"{kind} {plain(name)} is in no manifest: add one with -f to see what it gives"
            yield ExplainedClaim(entry.name, "", "", text)
        else:
            ref = ClaimRef(namespace, name, "")
            devices = (claim.spec or claim).devices or _Devices()
            # Alternatives of one class come to the same.
            yield from dict.fromkeys(_requests(entry.name, ref, devices, mappings))


def _entries(answer: Answer) -> list[_Entry]:
    """The claims of a pod as it would be, or as it was written if it is refused."""
    pod = answer.pod or answer.found.manifest
    try:
        spec = msgspec.convert(pod.get("spec") or {}, _PodSpec)
    except msgspec.ValidationError as error:
        raise InvalidManifest(f"{answer.found.label}: spec: {error}") from error
    return spec.resource_claims or []


async def read_of_cluster(
    client: ClusterClient, answers: Iterable[Answer], found: Iterable[FoundClaim]
) -> tuple[list[FoundClaim], ClaimObjects | None]:
    """Templates of the cluster, and what claims of pods need whose names stand for claims.

    Neither if no name does or, with a warning, if they can't be read. `found` are the claims and
    templates of manifests.
    """
    namespaces = sorted({each.namespace for each in answers if each.rewrites and _entries(each)})
    own = [
        msgspec.to_builtins(each)
        | {"metadata": {"name": each.metadata.name, "namespace": each.metadata.namespace or one}}
        for each in found
        if each.kind == TEMPLATE
        for one in namespaces
    ]
    if not namespaces:
        return [], None
    try:
        templates, objects = await list_claim_objects(client, namespaces, own)
    except ClusterError as error:
        warn(f"what claims get is not checked: {error}")
        return [], None
    about = {"apiVersion": API_VERSION, "kind": TEMPLATE}
    return [claim for each in templates for claim in find_claims(about | each)], objects


def develop_hints(answer: Answer, index: MappingIndex) -> Iterator[str]:
    """Yield a hint for each region for development whose resource has another class in DRA."""
    programmed = {
        interface
        for namespace in index.namespaces
        for interface, _ in index.namespace(namespace).functions
    }
    used = (each.mapping for each in answer.rewrites if each.mapping)
    for mapping in dict.fromkeys(used):
        of = FpgaClass.of(mapping)
        if of and of.mode is Mode.REGIONDEVEL and of.interface_id in programmed:
            yield (
                f"on nodes of the DRA driver, {of.resource} is for functions that are programmed;"
                f" use a claim there: accelbind dra template {plain(mapping.name)}"
            )


def _requests(
    name: str, ref: ClaimRef, devices: _Devices, mappings: NamespaceMappings
) -> Iterator[ExplainedClaim]:
    own = [each | {"source": FROM_CLAIM} for each in devices.config or ()]
    for request in devices.requests or ():
        for result, wanted in request.alternatives():
            about = (name, request.name, wanted.device_class_name)
            try:
                want = _want(ref, result, wanted, own, mappings)
            except NotAllowed as error:
                yield ExplainedClaim(*about, str(error), is_refused=True)
            else:
                if want is not None:
                    yield ExplainedClaim(*about, _TEXTS[want.kind].format(*want.functions))


def _want(
    ref: ClaimRef,
    request: str,
    wanted: _Alternative,
    own: list[dict[str, Any]],
    mappings: NamespaceMappings,
) -> Want | None:
    """The function that a request wants in a device of its class; None if the class isn't ours."""
    # Classes are those that `accelbind dra classes` prints: their names say what is in them.
    name = wanted.device_class_name
    of = _class_of(name, mappings)
    if of is None and AF_CLASS.fullmatch(name):
        raise NotMapped(
            f"its function is not mapped in namespace {plain(mappings.namespace)}: ask an"
            " administrator for a mapping of mode af"
        )
    if of is None and not name.endswith(TYPE_CLASS):
        return None
    kind = "" if of else name.removesuffix(TYPE_CLASS)
    # The driver itself decides, about a device that fits the class.
    made = Device("device", "", interface_id=of.interface_id if of else "", type=kind)
    result = {"request": request, "driver": DRIVER, "device": made.id}
    config = [{"source": FROM_CLASS} | opaque(of.parameters)] if of and of.parameters else []
    allocation = {
        "results": [result | {"adminAccess": wanted.admin_access}],
        "config": [*config, *own],
    }
    body = {"metadata": {}, "status": {"allocation": {"devices": allocation}}}
    claim = read_claim(json.dumps(body).encode(), ref, pool="")
    devices = {made.id: DraDevice(made.id, made, {})}
    (want,) = decide(claim, devices, owner=None, mappings=mappings, enforce=Enforce.AUTO)
    return want


def _class_of(name: str, mappings: NamespaceMappings) -> FpgaClass | None:
    # A class of mode af is named by a hash: only mappings of the namespace tell its function.
    for of in map(FpgaClass.of, mappings.by_name.values()):
        if of is not None and of.name == name:
            return of
    return FpgaClass.of_region(name)
