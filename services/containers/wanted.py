"""The functions that a container wants in its regions, as its pod's spec names them.

The spec names them as `FPGA_REGION_<n>` with `FPGA_AFU_<n>`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from services.containers.holders import PodRef, display_name
from services.names import RegionName, decode
from services.pods.functions import read_functions
from services.pods.pod import CONFIG_HASH_ANNOTATION, EnvVar
from services.process.errors import InvalidName, NotAllowed
from services.process.json import UNREADABLE
from services.process.text import quote

_FUNCTION = re.compile(r"[0-9a-f]{8,40}")


@dataclass(frozen=True, slots=True)
class WantedFunctions:
    """The functions that a container wants in the regions that it was given."""

    who: str
    """The container and its pod, for messages."""
    functions: tuple[str, ...] = ()
    """AFU ids in the order of their variables, one per region; empty where it brings its own."""
    interface_id: str = ""
    """Canonical interface id of the regions that it was given."""
    pod: PodRef | None = field(default=None, compare=False)


class _Container(msgspec.Struct):
    name: str = ""
    env: list[EnvVar] | None = None


class _Owner(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None


class RequestMapping(msgspec.Struct, rename="camel"):
    """Which request of a claim a container has for a resource."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class _ExtendedStatus(msgspec.Struct, rename="camel"):
    resource_claim_name: str = ""
    request_mappings: list[RequestMapping] | None = None


class _Status(msgspec.Struct, rename="camel"):
    extended_resource_claim_status: _ExtendedStatus | None = None


class StartingPod(msgspec.Struct):
    """A pod on the API server, as far as it is read."""

    metadata: _Metadata
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)

    def requests_of(self, claim: str) -> tuple[RequestMapping, ...]:
        """The requests of the claim that the scheduler made for its extended resources.

        Raises:
            NotAllowed: The pod doesn't name this claim.
        """
        extended = self.status.extended_resource_claim_status or _ExtendedStatus()
        if extended.resource_claim_name != claim:
            raise NotAllowed(
                f"claim {quote(claim)} is for extended resources, and its pod names"
                f" {quote(extended.resource_claim_name)} as their claim"
            )
        return tuple(extended.request_mappings or ())


_POD = msgspec.json.Decoder(StartingPod)


def confirm_pod(body: bytes | None, expected: PodRef, *, node: str) -> StartingPod:
    """Read the API server's pod, which must be the one that was found, on this node.

    Of a static pod, that is the mirror pod.

    Raises:
        NotAllowed: There is no such pod, or it is another one.
    """
    if body is None:
        raise NotAllowed(
            f"the API server has no pod {expected}: it was deleted and will not start, or it is a"
            " static pod and its mirror pod is missing"
        )
    try:
        pod = _POD.decode(body)
    except UNREADABLE as error:
        raise NotAllowed(f"the API server's pod {expected} can't be read: {error}") from error
    uid = uid_on_node(pod, node)
    if uid != expected.uid:
        raise NotAllowed(
            f"pod {expected} has been replaced: the API server has it with UID"
            f" {quote(uid)}, and {quote(expected.uid)} is starting"
        )
    if pod.spec.node_name != node:
        raise NotAllowed(
            f"the API server has pod {expected} on node {quote(pod.spec.node_name)}, and this is"
            f" {quote(node)}; if that is one node, set --node-name to the name in the cluster"
        )
    return pod


def uid_on_node(pod: StartingPod, node: str) -> str:
    """Return the UID by which a node's kubelet knows a pod: in its checkpoint and log folder."""
    # The API server gives a mirror pod a UID of its own. That of the static pod is in its manifest
    # or is a hash of it, and stands in this annotation (`applyDefaults` in pkg/kubelet/config).
    # Anybody can annotate a pod; one that belongs to a Node is never started as an ordinary pod.
    node_owner = _Owner("v1", "Node", node)
    if node_owner in (pod.metadata.owner_references or ()):
        return (pod.metadata.annotations or {}).get(CONFIG_HASH_ANNOTATION, pod.metadata.uid)
    return pod.metadata.uid


def read_wanted(
    starting: StartingPod, pod: PodRef, container: str, *, interface_id: str
) -> WantedFunctions:
    """The functions that a container or init container wants in regions of an interface."""
    who = display_name(container, pod)
    every = [*(starting.spec.init_containers or ()), *(starting.spec.containers or ())]
    named = [each for each in every if each.name == container]
    if len(named) != 1:
        raise NotAllowed(f"the API server's pod {pod} has no container {quote(container)}")
    # Not the environment of the image or of a ConfigMap: only the spec was admitted.
    functions = _functions(named[0].env or (), who, interface_id)
    if not functions:
        raise NotAllowed(
            f"{who} was given a region with interface id {interface_id} and names no function for"
            " it: ask for a function by its logical name, then the webhook adds FPGA_REGION_1 and"
            " FPGA_AFU_1"
        )
    return WantedFunctions(who, functions, interface_id, pod)


def interface_of(resource: str) -> str:
    """The canonical interface id of a region's resource."""
    named = decode(resource)
    if not isinstance(named, RegionName):
        raise InvalidName(f"{resource} is not a region")
    return named.interface_id


def _functions(env: Iterable[EnvVar], who: str, interface_id: str) -> tuple[str, ...]:
    written = read_functions(env, other_forms=True)
    if written.problems:
        raise NotAllowed(f"{who}: {written.problems[0]}")
    for number, (_, afu) in written.by_number.items():
        if not _FUNCTION.fullmatch(afu):
            raise NotAllowed(
                f"{who} sets FPGA_AFU_{number} to {quote(afu, 48)}, which is not an id"
            )
    functions = sorted(written.by_number.items())
    return tuple(afu for _, (region, afu) in functions if region == interface_id)


def single_wanted(wanted: Sequence[WantedFunctions]) -> WantedFunctions:
    """The functions that all candidates want; an error if they want different ones."""
    first, *others = wanted
    for other in others:
        if Counter(other.functions) != Counter(first.functions):
            raise NotAllowed(
                f"{first.who} and {other.who} share their devices but want different functions,"
                " and it is unknown which of them is starting: let them want the same functions,"
                " or give each its own devices"
            )
    return first
