"""The files of claims: what containers get with the devices of their claims.

There is a CDI file for each claim, and a CDI device in it for each device of a request. The first
device of a request comes with its metadata, which is in a file of its own.
"""

import contextlib
import json
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from plugin.dra.book import ClaimEntry, is_uid
from plugin.dra.claims import ClaimRef
from plugin.dra.slices import typed_attributes
from plugin.dra.wants import Kind, Want, require_free, require_present
from plugin.settings import PluginSettings
from services.devices.allocation import allocate
from services.devices.cdi import ClaimDevice, claim_file, describe_claim, read_claim_file
from services.devices.cdi_files import CdiFolder
from services.devices.dra import DRIVER, DraDevice
from services.devices.hardware.sysfs import Sysfs
from services.devices.held import is_number, whole_id
from services.devices.model import Device, DeviceNode
from services.devices.nodes import VFIO, exclusive_nodes
from services.names import resource_variable
from services.node.node_check import require_numbers
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError, NotAllowed
from services.process.files import open_regular
from services.process.text import listing

WRITE_SECONDS: Final = 5.0

METADATA: Final = "metadata"
"""The folder of the files of metadata, below `--state-dir`. It is in memory, as CDI files are."""

IN_CONTAINER: Final = "/var/run/kubernetes.io/dra-device-attributes"
"""The folder in which containers find them."""

VERSIONS: Final = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")
"""Of the format (KEP-5304, `k8s.io/dynamic-resource-allocation/api/metadata`). A file has the same
object once for each, the newest first; a reader uses the first one that it knows."""

_MAX_BYTES: Final = 1 << 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GivenDevice:
    """Nodes and variables that a container gets with a device of a request."""

    request: str
    device: str
    share: str
    """The id of the share of the device; empty if it is the whole one."""
    edits: ClaimDevice


class CdiClaimFiles:
    """The CDI files of claims in a folder, and what they name in another one of the same path."""

    def __init__(self, settings: PluginSettings, state: NodeState, calls: BlockingCalls) -> None:
        self._folder = settings.claims_dir
        self._metadata = settings.state_dir / METADATA
        self._pool = settings.node_name
        self._host_root = str(settings.host_root)
        self._root = settings.root
        self._state = state
        self._calls = calls

    def describe(self, entry: ClaimEntry) -> tuple[tuple[GivenDevice, ...], ClaimEntry]:
        """The devices of a claim with the nodes that they have now, and its entry with its file.

        The CDI file has the entry as a note.

        Raises:
            ExternalFailure: A device is gone.
            DeviceBusy: Others have a device's node.
            NotAllowed: Another device has a device's node now.
        """
        uid, mounts = entry.claim.uid, self._mounts(entry)
        devices = self._state.ledger.by_name
        given = given_to(uid, entry.wants, devices, mounts)
        require_free(entry.wants, devices)
        require_numbers(self._root, (node for each in given for node in each.edits.nodes))
        edits = [each.edits for each in given]
        nodes = {node.host_path(self._host_root) for each in edits for node in each.nodes}
        # What an earlier file named counts on, since containers may run.
        entry = msgspec.structs.replace(entry, nodes=tuple(sorted(entry.given_nodes() - nodes)))
        file = describe_claim(edits, host_root=self._host_root, note=entry.note).decode()
        return given, msgspec.structs.replace(entry, file=file)

    def _mounts(self, entry: ClaimEntry) -> dict[str, tuple[str, str]]:
        """The files of metadata by request: their paths on the host and in the container."""
        if entry.pod_claim is None:
            return {}
        return {
            want.request: (
                str(self._metadata / entry.claim.uid / f"{want.request}.json"),
                path_in_container(entry.claim, entry.pod_claim, want.request),
            )
            for want in entry.wants
        }

    def _contents(self, entry: ClaimEntry) -> dict[Path, bytes]:
        """All files of a claim; the CDI file comes last, since it names the others."""
        mounts = self._mounts(entry)
        files = {
            Path(mounts[want.request][0]): describe_request(
                entry.claim, entry.pod_claim, want, self._pool
            )
            for want in entry.wants
            if entry.pod_claim is not None
        }
        return files | {self.path(entry.claim.uid): (entry.file or "").encode()}

    def require_own(self, file: str, wants: Sequence[Want]) -> None:
        """Raise `NotAllowed` if the file of a claim names a node that another device has now."""
        named = read_claim_file(file)
        places = {each.place(self._host_root) for each in named.nodes} if named else set[str]()
        foreign = places & foreign_nodes(wants, self._state.ledger.by_name)
        numbers = {each for want in wants for claims in want.claims for each in claims}
        if any(map(is_number, numbers)):
            files = Sysfs(self._root)
            actual = {name: files.node_number(name) for name in places}
            foreign |= {
                name
                for name, each in actual.items()
                if each and each != VFIO and f"{each[0]}:{each[1]}" not in numbers
            }
        if foreign:
            raise NotAllowed(f"another device has {listing(sorted(foreign))} now")

    async def write(self, entry: ClaimEntry) -> dict[Path, str]:
        """Make sure of the files of a claim; without a CDI file in its entry there is none.

        Returns:
            The files that had to be written, and why.

        Raises:
            HardwareError: One can't be written.
        """
        files = self._contents(entry).items()
        found = await self._call(lambda: {path: _keep(path, each) for path, each in files})
        return {path: why for path, why in found.items() if why}

    async def remove(self, uid: str) -> None:
        """Remove the files of a claim; none need be there.

        Raises:
            HardwareError: One is left.
        """
        await self._call(lambda: remove_files(self._folder, self._metadata, uid))

    async def faulty(self, entries: Iterable[ClaimEntry]) -> frozenset[str]:
        """The claims, of those with these entries, whose files are not as they should be.

        Raises:
            HardwareError: A folder hangs.
        """
        files = {each.claim.uid: self._contents(each).items() for each in entries}
        return await self._call(
            lambda: frozenset(
                uid
                for uid, of_claim in files.items()
                if any(_on_disk(path).fault(each) for path, each in of_claim)
            )
        )

    async def read(self, uid: str) -> str:
        """The file of a claim; empty if there is none that a runtime could use.

        Raises:
            HardwareError: The folder hangs.
        """
        content = await self._call(lambda: _read(self.path(uid)))
        return content.decode(errors="replace") if read_claim_file(content) else ""

    async def others(self, known: Collection[str]) -> dict[str, str]:
        """The files of other claims than these, by UID.

        Raises:
            HardwareError: The folder hangs.
        """
        return await self._call(lambda: _others(self._folder, known))

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


def remove_files(folder: Path, metadata: Path, uid: str) -> None:
    """Remove the CDI file of a claim and what it names; none need be there. Blocks.

    Raises:
        HardwareError: One is left.
    """
    _keep(folder / claim_file(uid), b"")
    own = metadata / uid
    try:
        shutil.rmtree(own)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise HardwareError(f"{own} can't be removed: {error.strerror}") from error


def _on_disk(path: Path) -> CdiFolder:
    return CdiFolder(path.parent, path.name)


def _keep(path: Path, content: bytes) -> str:
    """Make sure of a file, or that there is none; return why it had to be written, if so."""
    done = _on_disk(path).write(content)
    if done.error:
        raise HardwareError(done.error)
    return done.found


def _others(folder: Path, known: Collection[str]) -> dict[str, str]:
    others = {}
    with contextlib.suppress(OSError):
        for path in sorted(folder.glob(claim_file("*"))):
            uid = path.name[len(claim_file("*").partition("*")[0]) : -len(path.suffix)]
            if uid not in known and is_uid(uid):
                others[uid] = _read(path).decode(errors="replace")
    return others


def _read(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read(_MAX_BYTES)
    except OSError:
        return b""


def foreign_nodes(wants: Sequence[Want], devices: Mapping[str, DraDevice]) -> frozenset[str]:
    """The nodes of a node's devices other than those of a claim."""
    names = {name for want in wants for name in want.devices}
    own = {whole_id(each) for want in wants for each in want.ids}
    return frozenset(
        place
        for name, each in devices.items()
        # The name of a device type may have changed; an FPGA's name is its place.
        if name not in names and not (each.device.type and whole_id(each.device.id) in own)
        for node in exclusive_nodes(each.device)
        for place in (node.name, node.place)
    )


def given_to(
    uid: str,
    wants: Sequence[Want],
    devices: Mapping[str, DraDevice],
    files: Mapping[str, tuple[str, str]],
) -> tuple[GivenDevice, ...]:
    """Nodes and variables that containers get with each device of a claim.

    With the first device of a request, they get its file: the paths on the host and in them.
    """
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
        mounts = (files[want.request],) if want.request in files else ()
        for part in want.parts():
            # With the claim's UID: runtimes remember what a name means.
            name, nodes = f"{uid}-{want.request}-{part.device}", chosen[part.device].nodes
            edits = ClaimDevice(name, nodes, tuple(envs.items()), mounts)
            given.append(GivenDevice(want.request, part.device, part.share.id, edits))
            mounts = ()
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


def path_in_container(claim: ClaimRef, pod_claim: str, request: str) -> str:
    """The path of the file of a request; `pod_claim` as in `AllocatedClaim`."""
    place = f"resourceclaimtemplates/{pod_claim}" if pod_claim else f"resourceclaims/{claim.name}"
    return f"{IN_CONTAINER}/{place}/{request}/{DRIVER}-metadata.json"


def describe_request(claim: ClaimRef, pod_claim: str, want: Want, pool: str) -> bytes:
    """The file of a request, whose devices are in a pool."""
    # It doesn't change as long as the claim is prepared, so its generation is the first.
    metadata = {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid, "generation": 1}
    devices = [
        {"driver": DRIVER, "pool": pool, "name": each.device}
        | {"attributes": typed_attributes(each.attributes)}
        for each in want.parts()
    ]
    content: dict[str, Any] = {"metadata": metadata}
    if pod_claim:
        content["podClaimName"] = pod_claim
    content["requests"] = [{"name": want.reference, "devices": devices}]
    objects = ({"kind": "DeviceMetadata", "apiVersion": each} | content for each in VERSIONS)
    return "".join(f"{json.dumps(each)}\n" for each in objects).encode()
