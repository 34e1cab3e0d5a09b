"""Who is starting, and may it? What `PreStartContainer` has to know, as functions of values.

The kubelet names only device ids when a container starts. From them to a decision:

1. `candidates`: its checkpoint's entries of this resource with exactly these ids. There may be
   several: an app container reuses the devices of a plain init container, and while either starts
   the ids are the same.
2. `find_place`: a pod's UID gives its namespace and name through its log folder.
3. `read_wish`: that pod as the API server has it, if it is still the same one on this node, says
   which functions the container wants of the region: `FPGA_REGION_<n>` with `FPGA_AFU_<n>`. The
   pod's spec alone counts, not the image's env nor a ConfigMap's: only the spec was admitted.
4. `agree`: candidates that want the same are as good as one.
5. `verify`: the functions wanted against those that every port of the devices carries.

Whatever can't be told is refused: a wrong function never starts. Every refusal is a `NotAllowed`
whose text goes into the pod's events, so it names the pod, the device and what to do.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from services.devices.model import Device
from services.kubelet.values import Entry
from services.pods.functions import read_functions
from services.pods.pod import EnvVar
from services.process.errors import NotAllowed
from services.process.text import listing, plain, quote

_FUNCTION = re.compile(r"[0-9a-f]{8,40}")
_FOLDER_PARTS = 3  # <namespace>_<name>_<uid>; none of the three can hold a `_`
_SHOWN = 8  # devices and functions listed in a message before "and more"


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """A container that may be the one that is starting."""

    pod_uid: str
    container: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the cluster a pod is."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{plain(self.namespace)}/{plain(self.name, 120)}"


@dataclass(frozen=True, slots=True)
class Wish:
    """The functions that a container wants of the regions it was given.

    Args:
        who: The container and its pod, for messages.
        functions: AFU ids in the order of their variables, one a region.
        pod: Its pod, where known.
    """

    who: str
    functions: tuple[str, ...]
    pod: Place | None = field(default=None, compare=False)


def allocations(entries: Iterable[Entry], resource: str, ids: Iterable[str]) -> tuple[Entry, ...]:
    """The checkpoint's entries of exactly these devices of a resource.

    Args:
        entries: All of the checkpoint's.
        resource: Full resource name.
        ids: The device ids that the kubelet named.

    Raises:
        NotAllowed: There is none.
    """
    wanted = frozenset(ids)
    found = tuple(
        entry for entry in entries if entry.resource == resource and entry.device_ids == wanted
    )
    if not found or not wanted:
        held = _list(sorted(wanted)) if wanted else "no device"
        raise NotAllowed(
            f"the kubelet's checkpoint has no container that holds {held} of {resource}, so nobody"
            " can tell what is starting; the kubelet will try again"
        )
    return found


def candidates(
    entries: Iterable[Entry], resource: str, ids: Iterable[str]
) -> tuple[Candidate, ...]:
    """The containers that hold exactly these devices of a resource; raises as `allocations`."""
    found = allocations(entries, resource, ids)
    return tuple(sorted({Candidate(entry.pod_uid, entry.container) for entry in found}))


def find_place(folders: Iterable[str], uid: str) -> Place:
    """The pod that a UID belongs to.

    Args:
        folders: Names of the pods' log folders on this node: `<namespace>_<name>_<uid>`.
        uid: The pod's UID.

    Raises:
        NotAllowed: No folder has this UID, or more than one.
    """
    found = []
    for folder in folders:
        parts = folder.split("_")
        if len(parts) == _FOLDER_PARTS and parts[2] == uid and parts[0] and parts[1]:
            found.append(Place(*parts))
    if len(found) == 1:
        return found[0]
    count = len(found) or "no"
    raise NotAllowed(
        f"{count} log folders of pods on this node belong to the UID {quote(uid)}, so nobody can"
        " tell which pod is starting; is the host's /var/log/pods mounted at --pod-logs-dir?"
    )


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


def read_wish(
    body: bytes | None, place: Place, container: str, *, node: str, interface_id: str
) -> Wish:
    """What a container wants of the regions with an interface id, by its pod's spec.

    Args:
        body: The pod as the API server sent it; None where it has no such pod.
        place: The pod that is meant.
        container: Name of the container or init container.
        node: This node's name.
        interface_id: Canonical interface id of the regions it was given.

    Raises:
        NotAllowed: It is another pod, or elsewhere, or its spec doesn't plainly say.
    """
    pod = _confirmed(body, place, node)
    who = called(container, place)
    every = [*(pod.spec.init_containers or ()), *(pod.spec.containers or ())]
    found = [each for each in every if each.name == container]
    if len(found) != 1:
        raise NotAllowed(f"the API server's pod {place} has no container {quote(container)}")
    functions = _functions(found[0].env or (), who, interface_id)
    if not functions:
        raise NotAllowed(
            f"{who} was given a region with interface id {interface_id} and names no function for"
            " it: ask for a function by its logical name, then the webhook adds FPGA_REGION_1 and"
            " FPGA_AFU_1"
        )
    return Wish(who, functions, place)


def check_place(body: bytes | None, place: Place, *, node: str) -> None:
    """Check that the API server has a pod as its log folder says.

    Args:
        body: The pod as the API server sent it; None where it has no such pod.
        place: The pod that is meant.
        node: This node's name.

    Raises:
        NotAllowed: It has no such pod, or another one, or has it on another node.
    """
    _confirmed(body, place, node)


def _confirmed(body: bytes | None, place: Place, node: str) -> _Pod:
    pod = _decode(body, place)
    if pod.metadata.uid != place.uid:
        raise NotAllowed(
            f"pod {place} has been replaced: the API server has it with UID"
            f" {quote(pod.metadata.uid)}, and {quote(place.uid)} is starting"
        )
    if pod.spec.node_name != node:
        raise NotAllowed(
            f"the API server has pod {place} on node {quote(pod.spec.node_name)}, and this is"
            f" {quote(node)}; if that is one node, set --node-name to the name in the cluster"
        )
    return pod


def _decode(body: bytes | None, place: Place) -> _Pod:
    if body is None:
        raise NotAllowed(f"the API server has no pod {place}: it was deleted, so it won't start")
    try:
        return _POD.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise NotAllowed(f"the API server's pod {place} can't be read: {error}") from error


def _functions(env: Iterable[EnvVar], who: str, interface_id: str) -> tuple[str, ...]:
    written = read_functions(env, other_forms=True)
    if written.problems:
        raise NotAllowed(f"{who}: {written.problems[0]}")
    for number, (_, afu) in written.by_number.items():
        if not _FUNCTION.fullmatch(afu):
            raise NotAllowed(f"{who} sets FPGA_AFU_{number} to {quote(afu, 48)}, which is no id")
    functions = sorted(written.by_number.items())
    return tuple(afu for _, (region, afu) in functions if region == interface_id)


def called(container: str, place: Place) -> str:
    """How people call a container: `container "c" of pod ns/p`."""
    return f"container {quote(container)} of pod {place}"


def agree(wishes: Sequence[Wish]) -> Wish:
    """The one wish of all candidates.

    Args:
        wishes: One a candidate, at least one.

    Raises:
        NotAllowed: They want different functions.
    """
    first, *others = wishes
    for other in others:
        if Counter(other.functions) != Counter(first.functions):
            raise NotAllowed(
                f"{first.who} ({_wanted(first)}) and {other.who} ({_wanted(other)}) share their"
                " devices but want different functions, and nobody can tell which of them is"
                " starting: let them want the same, or have devices of their own"
            )
    return first


def verify(
    wish: Wish,
    ids: Sequence[str],
    devices: Mapping[str, Device],
    *,
    node: str,
    interface_id: str,
    unknown: Collection[str] = (),
) -> None:
    """Lets a container start only on the functions it wants.

    Each function wanted needs a region of its own that carries it. A region beyond those must carry
    one of them too. The container gets every port of its regions, so every port must carry a
    function that it wants. A port that carries another one, or nothing that can be told, doesn't.

    Args:
        wish: What the container wants.
        ids: The devices it was given.
        devices: The resource's devices by id as they are at this moment, without memory.
        node: This node's name, for messages.
        interface_id: Canonical interface id that the devices must have.
        unknown: Nodes of the ports whose content is unknown, whatever they show.

    Raises:
        NotAllowed: They carry something else, or nobody can tell what.
    """
    given = list(dict.fromkeys(ids))
    carried = {each: _carried(devices.get(each), interface_id, unknown) for each in given}
    wanted = set(wish.functions)
    fits = all(functions and wanted.issuperset(functions) for functions in carried.values())
    if fits and "" not in wanted and _placeable(wish.functions, list(carried.values())):
        return
    now = [_state(each, devices.get(each), carried[each], wanted, unknown) for each in given]
    raise NotAllowed(
        f"on node {plain(node, 120)} {_list(now)}, but {wish.who} wants {_wanted(wish)}; this"
        " plugin verifies functions and doesn't program them: program the region with accelbind"
        " fpga program, or ask for a function that it carries"
    )


def _carried(device: Device | None, interface_id: str, unknown: Collection[str]) -> tuple[str, ...]:
    """The function in each port of a region; empty strings for those that can't be told."""
    if device is None or device.interface_id != interface_id:
        return ()
    hidden = {number for number, node in enumerate(device.nodes) if node.name in unknown}
    return tuple("" if number in hidden else afu for number, afu in enumerate(device.afu_ids))


def _placeable(wanted: Sequence[str], carried: Sequence[Collection[str]]) -> bool:
    """Whether each function wanted can have a region of its own: a bipartite matching."""
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
    """What a region carries; of several ports, what each one does that carries nothing wanted."""
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
        return f"{name} carries nothing that can be told{why}"
    strange = [number for number, afu in enumerate(carried) if not afu or afu not in wanted]
    if len(carried) == 1 or not strange:
        return f"{name} carries {listing([f'AFU {afu}' for afu in sorted({*carried})])}"
    ports = [_port_state(device, number, carried[number]) for number in strange[:_SHOWN]]
    untold = why if any(not carried[number] for number in strange) else ""
    shown = listing(ports, more=max(0, len(strange) - _SHOWN))
    return f"{name} has {shown}{untold}, and the container would get every port of it"


def _port_state(device: Device, number: int, afu: str) -> str:
    """What a port carries, by the name of its node."""
    if number >= len(device.nodes):
        return "a port that can't be read"
    content = f"AFU {afu}" if afu else "nothing that can be told"
    return f"port {plain(device.nodes[number].name)} with {content}"


def _wanted(wish: Wish) -> str:
    counted = Counter(wish.functions)
    return _list(
        [
            f"AFU {plain(afu, 48)}" if count == 1 else f"{count} times AFU {plain(afu, 48)}"
            for afu, count in counted.items()
        ]
    )


def _list(words: Sequence[str]) -> str:
    return listing(words[:_SHOWN], more=max(0, len(words) - _SHOWN))
