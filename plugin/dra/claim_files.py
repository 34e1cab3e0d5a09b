"""The CDI files of claims: what containers get with the devices of their claims.

There is a file for each claim, and a CDI device in it for each device of a request.
"""

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from plugin.dra.book import is_uid
from plugin.dra.wants import Kind, Want, require_present
from services.devices.allocation import allocate, resource_variable
from services.devices.cdi import NOTE, ClaimDevice, claim_file, describe_claim
from services.devices.cdi_files import CdiFolder
from services.devices.dra import DraDevice
from services.devices.hardware.sysfs import Sysfs
from services.devices.held import is_number, whole_id
from services.devices.model import Device, DeviceNode
from services.devices.nodes import VFIO
from services.node.node_check import require_numbers
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError, NotAllowed
from services.process.files import open_regular
from services.process.json import UNREADABLE
from services.process.text import listing

WRITE_SECONDS: Final = 5.0

_MAX_BYTES: Final = 1 << 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GivenDevice:
    """Nodes and variables that a container gets with a device of a request."""

    request: str
    device: str
    edits: ClaimDevice


@dataclass(frozen=True, slots=True)
class ClaimFile:
    """The file of a claim."""

    given: tuple[GivenDevice, ...]
    content: bytes


class CdiClaimFiles:
    """The files of claims in a folder."""

    def __init__(
        self,
        folder: Path,
        *,
        host_root: str,
        calls: BlockingCalls,
        state: NodeState,
        root: Path,
    ) -> None:
        self._folder = folder
        self._host_root = host_root
        self._calls = calls
        self._state = state
        self._root = root

    def describe(self, uid: str, wants: Sequence[Want], note: str) -> ClaimFile:
        """The file of a claim, with the nodes that its devices have now, and a note.

        Raises:
            ExternalFailure: A device is gone.
            NotAllowed: Another device has a device's node now.
        """
        given = given_to(uid, wants, self._state.by_name)
        require_numbers(self._root, (node for each in given for node in each.edits.nodes))
        edits = [each.edits for each in given]
        return ClaimFile(given, describe_claim(edits, host_root=self._host_root, note=note))

    def require_own(self, content: bytes, wants: Sequence[Want]) -> None:
        """Raise `NotAllowed` if a file of a claim names a node that another device has now."""
        nodes = _nodes_in(content) or ()
        foreign = {each.name for each in nodes} & foreign_nodes(wants, self._state.by_name)
        numbers = {each for want in wants for claims in want.claims for each in claims}
        if any(map(is_number, numbers)):
            files = Sysfs(self._root)
            places = {each.place(self._host_root) for each in nodes}
            actual = {name: files.node_number(name) for name in places}
            foreign |= {
                name
                for name, each in actual.items()
                if each and each != VFIO and f"{each[0]}:{each[1]}" not in numbers
            }
        if foreign:
            raise NotAllowed(f"another device has {listing(sorted(foreign))} now")

    async def write(self, uid: str, content: bytes) -> str:
        """Make sure of the file of a claim; return why it had to be written, if so.

        Raises:
            HardwareError: It can't be written.
        """
        folder = CdiFolder(self._folder, claim_file(uid))
        done = await self._call(lambda: folder.write(content))
        if done.error:
            raise HardwareError(done.error)
        return done.found

    async def remove(self, uid: str) -> None:
        """Remove the file of a claim; it need not be there."""
        await self.write(uid, b"")

    async def faulty(self, contents: Mapping[str, bytes]) -> frozenset[str]:
        """The claims, of those with these contents, whose files are not as they should be.

        Raises:
            HardwareError: The folder hangs.
        """
        files = {uid: CdiFolder(self._folder, claim_file(uid)) for uid in contents}
        return await self._call(
            lambda: frozenset(uid for uid in files if files[uid].fault(contents[uid]))
        )

    async def read(self, uid: str) -> bytes:
        """The file of a claim; empty if there is none that a runtime could use.

        Raises:
            HardwareError: The folder hangs.
        """
        content = await self._call(lambda: _read(self.path(uid)))
        return b"" if _nodes_in(content) is None else content

    async def notes(self, known: Collection[str]) -> dict[str, str]:
        """The notes in files of other claims than these, by UID.

        Raises:
            HardwareError: The folder hangs.
        """
        return await self._call(lambda: _notes(self._folder, known))

    def path(self, uid: str) -> Path:
        """The file of a claim."""
        return self._folder / claim_file(uid)

    async def _call(self, call: Callable[[], T]) -> T:
        return await self._calls.run(
            "cdi claims",  # one after the other: what was begun for a claim doesn't end after this
            call,
            timeout=WRITE_SECONDS,
            what=f"reading and writing CDI files below {self._folder}",
        )


class _Node(msgspec.Struct, rename="camel"):
    path: str
    host_path: str = ""

    @property
    def name(self) -> str:
        """Its path below `/dev` in the container."""
        return self.path.removeprefix("/dev/")

    def place(self, host_root: str) -> str:
        """Its path below the host's `/dev`; in files of another root, that in the container."""
        dev = f"{host_root.rstrip('/')}/dev/"
        is_below = self.host_path.startswith(dev)
        return self.host_path.removeprefix(dev) if is_below else self.name


class _Edits(msgspec.Struct, rename="camel"):
    device_nodes: tuple[_Node, ...] = ()


class _Entry(msgspec.Struct, rename="camel"):
    container_edits: _Edits


class _File(msgspec.Struct):
    devices: tuple[_Entry, ...] = ()
    annotations: dict[str, str] = {}


def _notes(folder: Path, known: Collection[str]) -> dict[str, str]:
    notes = {}
    with contextlib.suppress(OSError):
        for path in sorted(folder.glob(claim_file("*"))):
            uid = path.name[len(claim_file("*").partition("*")[0]) : -len(path.suffix)]
            if uid not in known and is_uid(uid):
                with contextlib.suppress(*UNREADABLE):
                    file = msgspec.json.decode(_read(path), type=_File)
                    notes[uid] = file.annotations.get(NOTE, "")
    return notes


def _read(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read(_MAX_BYTES)
    except OSError:
        return b""


def _nodes_in(content: bytes) -> tuple[_Node, ...] | None:
    """The nodes in a file; None if it is none."""
    try:
        found = msgspec.json.decode(content, type=_File)
    except UNREADABLE:
        return None
    return tuple(node for each in found.devices for node in each.container_edits.device_nodes)


def foreign_nodes(wants: Sequence[Want], devices: Mapping[str, DraDevice]) -> frozenset[str]:
    """The nodes of a node's devices other than those of a claim."""
    names = {name for want in wants for name in want.devices}
    own = {whole_id(each) for want in wants for each in want.ids}
    return frozenset(
        node.name
        for name, each in devices.items()
        # The name of a device type may have changed; an FPGA's name is its place.
        if name not in names and not (each.device.type and whole_id(each.device.id) in own)
        for node in each.device.nodes
        if node.number != VFIO
    )


def given_to(
    uid: str, wants: Sequence[Want], devices: Mapping[str, DraDevice]
) -> tuple[GivenDevice, ...]:
    """Nodes and variables that containers get with each device of a claim."""
    given = []
    for want in wants:
        present = require_present(want.devices, devices, want.who)
        chosen = {name: _device(want, each) for name, each in present.items()}
        by_id = {each.id: each for each in chosen.values()}
        # A container sees only one variable of a name: each device of a request has those of all.
        envs = dict(allocate(by_id, [*by_id]).envs)
        # If several requests have one resource, it is up to the runtime whose variable a container
        # sees. So each is also there with the request's name: ACCELBIND_VE_FIRST.
        if [each.resource for each in wants].count(want.resource) > 1:
            suffix = f"_{want.request.upper().replace('-', '_')}"
            envs |= {name + suffix: value for name, value in envs.items()}
        for name, device in chosen.items():
            # With the claim's UID: runtimes remember what a name means.
            edits = ClaimDevice(f"{uid}-{want.request}-{name}", device.nodes, tuple(envs.items()))
            given.append(GivenDevice(want.request, name, edits))
    return tuple(given)


def _device(want: Want, device: Device) -> Device:
    if want.kind is Kind.ADMIN:  # such a request may be for devices of several resources
        return replace(device, nodes=())
    if not device.type:  # a region's variable is named after what the claim has it for
        variable = resource_variable(want.resource), ",".join(device.pci_addresses)
        device = replace(device, envs=(variable,))
    if want.kind is Kind.DEVELOP:
        return replace(device, nodes=(*device.nodes, DeviceNode(device.id)))
    return device
