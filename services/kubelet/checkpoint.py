"""The kubelet's files about devices, and the log folders that tell which pod has a UID.

None is a documented interface, so they are read like untrusted input: bounded and validated.
"""

import base64
import os
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from google.protobuf.message import DecodeError

from services.kubelet import deviceplugin_pb2 as pb
from services.kubelet.sockets import checkpoint_file
from services.kubelet.values import CheckpointEntry, CountedByKubelet
from services.process.blocking import BlockingCalls
from services.process.errors import KubeletError
from services.process.files import open_regular
from services.process.json import UNREADABLE

T = TypeVar("T")

MAX_CHECKPOINT: Final = 32 * 1024 * 1024
"""Bytes; a busy node's file has a few hundred KiB, mostly copies of `Allocate` answers."""

MAX_FOLDERS: Final = 20_000
"""Log folders that are read; kubelets run at most a few hundred pods."""


class _Entry(msgspec.Struct, gc=False):
    pod_uid: str = msgspec.field(name="PodUID", default="")
    container: str = msgspec.field(name="ContainerName", default="")
    resource: str = msgspec.field(name="ResourceName", default="")
    # By NUMA node, `-1` where unknown.
    device_ids: dict[str, list[str] | None] | None = msgspec.field(name="DeviceIDs", default=None)
    # The plugin's answer to `Allocate`: a protobuf message in base64.
    response: str | None = msgspec.field(name="AllocResp", default=None)


class _Data(msgspec.Struct):
    registered: dict[str, list[str] | None] | None = msgspec.field(
        name="RegisteredDevices", default=None
    )
    entries: list[_Entry] | None = msgspec.field(name="PodDeviceEntries", default=None)


class _Checkpoint(msgspec.Struct):
    data: _Data = msgspec.field(name="Data")


_DECODER = msgspec.json.Decoder(_Checkpoint)


class KubeletFiles:
    """The checkpoint and the log folders of pods, read in a thread, as either may hang."""

    def __init__(
        self, kubelet_dir: Path, pod_logs_dir: Path, calls: BlockingCalls, *, seconds: float = 10.0
    ) -> None:
        self.checkpoint = checkpoint_file(kubelet_dir)
        self._pod_logs_dir = pod_logs_dir
        self._calls = calls
        self._seconds = seconds

    async def entries(self) -> tuple[CheckpointEntry, ...]:
        """As `read_checkpoint`, or a `HardwareError` if it hangs."""
        return await self._read(partial(read_checkpoint, self.checkpoint), self.checkpoint)

    async def counted(self) -> CountedByKubelet:
        """As `read_counted`, or a `HardwareError` if it hangs."""
        return await self._read(partial(read_counted, self.checkpoint), self.checkpoint)

    async def folders(self) -> list[str]:
        """As `pod_folders`, or a `HardwareError` if it hangs."""
        return await self._read(partial(pod_folders, self._pod_logs_dir), self._pod_logs_dir)

    async def _read(self, read: Callable[[], T], path: Path) -> T:
        what = f"reading {path}"
        return await self._calls.run("kubelet files", read, timeout=self._seconds, what=what)


def read_checkpoint(path: Path) -> tuple[CheckpointEntry, ...]:
    """Read the devices that each container on this node holds, init containers included.

    Raises:
        KubeletError: The file is missing, can't be read, or isn't a checkpoint.
    """
    return tuple(
        CheckpointEntry(entry.pod_uid, entry.container, entry.resource, _ids(entry), _nodes(entry))
        for entry in _decode(path).data.entries or ()
        if entry.pod_uid and entry.container
    )


def _decode(path: Path) -> _Checkpoint:
    text = _read(path)
    try:
        return _DECODER.decode(text)
    except UNREADABLE as error:
        raise KubeletError(f"{path} is not a checkpoint of the kubelet: {error}") from error


def read_counted(path: Path) -> CountedByKubelet:
    """Read for which resources the kubelet knows a device plugin, also one that has ended.

    Raises:
        KubeletError: As `read_checkpoint`.
    """
    data = _decode(path).data
    held = frozenset(each.resource for each in data.entries or ())
    return CountedByKubelet(frozenset(data.registered or ()), held)


def prepared_claims(path: Path, driver: str) -> dict[str, frozenset[str]]:
    """Read the claims that the kubelet will give back to a DRA driver: their pods, by UIDs.

    Raises:
        KubeletError: As `read_checkpoint`.
    """
    text = _read(path)
    try:
        outer = msgspec.json.decode(text, type=_DraCheckpoint)
        entries = msgspec.json.decode(outer.data, type=_DraData).entries or ()
    except UNREADABLE as error:
        raise KubeletError(f"{path} is not a checkpoint of the kubelet: {error}") from error
    return {
        entry.uid: frozenset(entry.pods or ())
        for entry in entries
        if driver in (entry.drivers or ())
    }


class _DraEntry(msgspec.Struct, gc=False):
    uid: str = msgspec.field(name="ClaimUID", default="")
    pods: dict[str, msgspec.Raw] | None = msgspec.field(name="PodUIDs", default=None)
    drivers: dict[str, msgspec.Raw] | None = msgspec.field(name="DriverState", default=None)


class _DraData(msgspec.Struct):
    entries: list[_DraEntry] | None = msgspec.field(name="ClaimInfoStateList", default=None)


class _DraCheckpoint(msgspec.Struct):
    data: str = msgspec.field(name="Data")  # JSON in JSON


def _ids(entry: _Entry) -> frozenset[str]:
    by_node = entry.device_ids or {}
    return frozenset(each for ids in by_node.values() for each in ids or ())


def _nodes(entry: _Entry) -> tuple[str, ...] | None:
    try:
        message = base64.b64decode(entry.response or "", validate=True)
        response = pb.ContainerAllocateResponse.FromString(message)
    except (ValueError, DecodeError):
        return None  # not "none": such a container may have any node
    return tuple(each.host_path for each in response.devices)


def _read(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            text = file.read(MAX_CHECKPOINT + 1)
    except OSError as error:
        raise KubeletError(f"{path} can't be read: {error.strerror or error}") from error
    if len(text) > MAX_CHECKPOINT:
        raise KubeletError(f"{path} has more than {MAX_CHECKPOINT} bytes")
    return text


def pod_folders(path: Path) -> list[str]:
    """Return the names of the pods' log folders, `<namespace>_<name>_<uid>`.

    Raises:
        KubeletError: It can't be listed, or has too many folders.
    """
    try:
        with os.scandir(path) as folders:
            names = [folder.name for folder in islice(folders, MAX_FOLDERS + 1)]
    except OSError as error:
        raise KubeletError(
            f"the pods' log folders can't be listed: {path}: {error.strerror}; mount the host's"
            " /var/log/pods and name it with --pod-logs-dir"
        ) from error
    if len(names) > MAX_FOLDERS:
        raise KubeletError(f"{path} has more than {MAX_FOLDERS} folders")
    return names
