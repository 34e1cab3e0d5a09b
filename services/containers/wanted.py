"""What a container wants of the regions that it was given, and whether they carry it.

The pod's spec says what a container wants: `FPGA_REGION_<n>` with `FPGA_AFU_<n>`. Only the spec
counts, not the environment of the image or of a ConfigMap, since only the spec was admitted. The
API server's pod must have the UID and the node of the one that starts.

`verify` compares that with what the regions carry, where the plugin does not program them. If the
content of a port is unknown, the start is refused: a wrong function never starts.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from services.containers.identity import PodRef, display_name
from services.devices.model import Device
from services.pods.functions import read_functions
from services.pods.pod import EnvVar
from services.process.errors import NotAllowed
from services.process.text import listing, plain, quote

_FUNCTION = re.compile(r"[0-9a-f]{8,40}")
_SHOWN = 8  # devices and functions listed in a message before "and more"


@dataclass(frozen=True, slots=True)
class WantedFunctions:
    """The functions that a container wants in the regions that it was given.

    Args:
        who: The container and its pod, for messages.
        functions: AFU ids in the order of their variables, one per region.
        pod: Its pod, if known.
    """

    who: str
    functions: tuple[str, ...]
    pod: PodRef | None = field(default=None, compare=False)


class _Container(msgspec.Struct):
    name: str = ""
    env: list[EnvVar] | None = None


class _Metadata(msgspec.Struct):
    uid: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec


_POD = msgspec.json.Decoder(_Pod)


def read_wanted(
    body: bytes | None, pod: PodRef, container: str, *, node: str, interface_id: str
) -> WantedFunctions:
    """The functions that a container wants in regions with an interface id, from its pod's spec.

    Args:
        body: The pod as the API server sent it; None if it has no such pod.
        pod: The pod that is expected.
        container: Name of the container or init container.
        node: This node's name.
        interface_id: Canonical interface id of the regions that it was given.

    Raises:
        NotAllowed: It is another pod, or on another node, or its spec names no function.
    """
    spec = _confirmed(body, pod, node).spec
    who = display_name(container, pod)
    every = [*(spec.init_containers or ()), *(spec.containers or ())]
    found = [each for each in every if each.name == container]
    if len(found) != 1:
        raise NotAllowed(f"the API server's pod {pod} has no container {quote(container)}")
    functions = _functions(found[0].env or (), who, interface_id)
    if not functions:
        raise NotAllowed(
            f"{who} was given a region with interface id {interface_id} and names no function for"
            " it: ask for a function by its logical name, then the webhook adds FPGA_REGION_1 and"
            " FPGA_AFU_1"
        )
    return WantedFunctions(who, functions, pod)


def check_pod(body: bytes | None, pod: PodRef, *, node: str) -> None:
    """Check that the API server has the pod that was found on this node.

    Args:
        body: The pod as the API server sent it; None if it has no such pod.
        pod: The pod that is expected.
        node: This node's name.

    Raises:
        NotAllowed: It has no such pod, or another one, or has it on another node.
    """
    _confirmed(body, pod, node)


def _confirmed(body: bytes | None, expected: PodRef, node: str) -> _Pod:
    pod = _decode(body, expected)
    if pod.metadata.uid != expected.uid:
        raise NotAllowed(
            f"pod {expected} has been replaced: the API server has it with UID"
            f" {quote(pod.metadata.uid)}, and {quote(expected.uid)} is starting"
        )
    if pod.spec.node_name != node:
        raise NotAllowed(
            f"the API server has pod {expected} on node {quote(pod.spec.node_name)}, and this is"
            f" {quote(node)}; if that is one node, set --node-name to the name in the cluster"
        )
    return pod


def _decode(body: bytes | None, expected: PodRef) -> _Pod:
    if body is None:
        raise NotAllowed(f"the API server has no pod {expected}: it was deleted and will not start")
    try:
        return _POD.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise NotAllowed(f"the API server's pod {expected} can't be read: {error}") from error


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
    """What all candidates want.

    Args:
        wanted: One per candidate, at least one.

    Raises:
        NotAllowed: They want different functions.
    """
    first, *others = wanted
    for other in others:
        if Counter(other.functions) != Counter(first.functions):
            raise NotAllowed(
                f"{first.who} ({_shown(first)}) and {other.who} ({_shown(other)}) share their"
                " devices but want different functions, and it is unknown which of them is"
                " starting: let them want the same functions, or give each its own devices"
            )
    return first


def verify(
    wanted: WantedFunctions,
    ids: Sequence[str],
    devices: Mapping[str, Device],
    *,
    node: str,
    interface_id: str,
    unknown: Collection[str] = (),
) -> None:
    """Check that a container's regions carry the functions that it wants, and no others.

    Each function needs a region of its own that carries it, and a region beyond those must carry
    one of them too. The container gets every port of its regions, so every port must carry a
    wanted function.

    Args:
        wanted: What the container wants.
        ids: The devices that it was given.
        devices: The resource's devices by id as they are now, without memory.
        node: This node's name, for messages.
        interface_id: Canonical interface id that the devices must have.
        unknown: Nodes of the ports whose content is unknown, whatever they show.

    Raises:
        NotAllowed: They carry something else, or something unknown.
    """
    given = list(dict.fromkeys(ids))
    carried = {each: _carried(devices.get(each), interface_id, unknown) for each in given}
    names = set(wanted.functions)
    fits = all(functions and names.issuperset(functions) for functions in carried.values())
    if fits and "" not in names and _placeable(wanted.functions, list(carried.values())):
        return
    now = [_state(each, devices.get(each), carried[each], names, unknown) for each in given]
    raise NotAllowed(
        f"on node {plain(node, 120)} {_list(now)}, but {wanted.who} wants {_shown(wanted)}; this"
        " plugin verifies functions and doesn't program them: program the region with accelbind"
        " fpga program, or ask for a function that it carries"
    )


def _carried(device: Device | None, interface_id: str, unknown: Collection[str]) -> tuple[str, ...]:
    """The function in each port of a region; empty for a port of unknown content."""
    if device is None or device.interface_id != interface_id:
        return ()
    hidden = {number for number, node in enumerate(device.nodes) if node.name in unknown}
    return tuple("" if number in hidden else afu for number, afu in enumerate(device.afu_ids))


def _placeable(wanted: Sequence[str], carried: Sequence[Collection[str]]) -> bool:
    """Whether each wanted function can have its own region: a bipartite matching."""
    if len(wanted) > len(carried):
        return False
    taken: dict[int, int] = {}

    def place(function: int, tried: set[int]) -> bool:
        for region, functions in enumerate(carried):
            if wanted[function] in functions and region not in tried:
                tried.add(region)
                if region not in taken or place(taken[region], tried):
                    taken[region] = function
                    return True
        return False

    return all(place(function, set()) for function in range(len(wanted)))


def _state(
    key: str,
    device: Device | None,
    carried: Sequence[str],
    wanted: Collection[str],
    unknown: Collection[str],
) -> str:
    """What a region carries; of several ports, those that carry nothing wanted."""
    name = f"region {plain(key)}"
    if device is None:
        return f"{name} is not there any more"
    reasons = [
        f"the content of {plain(each.name)} is unknown until it is programmed: accelbind fpga"
        f" program {plain(each.name)} FILE"
        for each in device.nodes
        if each.name in unknown
    ]
    reasons += [plain(problem.message, 160) for problem in device.reasons]
    why = f" ({'; '.join(reasons)})" if reasons else ""
    if not any(carried):
        return f"{name} carries an unknown function{why}"
    strange = [number for number, afu in enumerate(carried) if not afu or afu not in wanted]
    if len(carried) == 1 or not strange:
        return f"{name} carries {listing([f'AFU {afu}' for afu in sorted({*carried})])}"
    ports = [_port_state(device, number, carried[number]) for number in strange[:_SHOWN]]
    unread = why if any(not carried[number] for number in strange) else ""
    shown = listing(ports, more=max(0, len(strange) - _SHOWN))
    return f"{name} has {shown}{unread}, and the container would get every port of it"


def _port_state(device: Device, number: int, afu: str) -> str:
    """What a port carries, by the name of its node."""
    if number >= len(device.nodes):
        return "a port that can't be read"
    content = f"AFU {afu}" if afu else "an unknown function"
    return f"port {plain(device.nodes[number].name)} with {content}"


def _shown(wanted: WantedFunctions) -> str:
    counted = Counter(wanted.functions)
    return _list(
        [
            f"AFU {plain(afu, 48)}" if count == 1 else f"{count} times AFU {plain(afu, 48)}"
            for afu, count in counted.items()
        ]
    )


def _list(words: Sequence[str]) -> str:
    return listing(words[:_SHOWN], more=max(0, len(words) - _SHOWN))
