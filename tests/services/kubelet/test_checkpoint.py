import contextlib
import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.kubelet import checkpoint
from services.kubelet.checkpoint import KubeletFiles, pod_folders, read_checkpoint
from services.kubelet.values import CheckpointEntry
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError, KubeletError

# In the shape of a 1.36 kubelet's, shortened.
REAL = {
    "Data": {
        "PodDeviceEntries": [
            {
                "PodUID": "9b7c8f2e-0f0e-4a53-9d0b-3f1f6d1b7a11",
                "ContainerName": "init",
                "ResourceName": "fpga.intel.com/region-ce4",
                "DeviceIDs": {"0": ["dfl-fme.0"], "1": ["dfl-fme.1", "dfl-fme.2"]},
                "AllocResp": (
                    "GiYKDy9kZXYvZGZsLXBvcnQuMBIPL2Rldi9kZmwtcG9ydC4wGgJydyIYChNjb20uaW50ZWwuZnBnYS5t"
                    "b2RlEgF4"
                ),
            },
            {
                "PodUID": "9b7c8f2e-0f0e-4a53-9d0b-3f1f6d1b7a11",
                "ContainerName": "app",
                "ResourceName": "fpga.intel.com/af-ce4",
                "DeviceIDs": {"-1": ["dfl-port.0"]},
                "AllocResp": "",
            },
        ],
        "RegisteredDevices": {"fpga.intel.com/region-ce4": ["dfl-fme.0"]},
    },
    "Checksum": 2413524142,
}
UID = "9b7c8f2e-0f0e-4a53-9d0b-3f1f6d1b7a11"


def read(folder: Path, text: bytes) -> tuple[CheckpointEntry, ...]:
    (folder / "checkpoint").write_bytes(text)
    return read_checkpoint(folder / "checkpoint")


def test_every_containers_devices_are_read(tmp_path: Path) -> None:
    region = frozenset({"dfl-fme.0", "dfl-fme.1", "dfl-fme.2"})
    assert read(tmp_path, json.dumps(REAL).encode()) == (
        CheckpointEntry(UID, "init", "fpga.intel.com/region-ce4", region, ("/dev/dfl-port.0",)),
        CheckpointEntry(UID, "app", "fpga.intel.com/af-ce4", frozenset({"dfl-port.0"})),
    )


@pytest.mark.parametrize(
    ("response", "nodes"),
    [
        (None, ()),
        ("", ()),
        ("KiEKH2ludGVsLmNkaS5rOHMuaW8vZnBnYT1kZmwtZm1lLjA=", ()),
        ("GhMKCC9kZXYvb25lEgcvaG9zdC94", ("/host/x",)),
        ("GhMKCC9kZXYvb25l", None),
        ("GhYK", None),
        ("not base64", None),
        ("\xff", None),
    ],
)
def test_the_device_nodes_that_a_container_was_given_are_read(
    tmp_path: Path, response: str | None, nodes: tuple[str, ...] | None
) -> None:
    """As the kubelet keeps the answer to `Allocate`; what nobody can read is not without nodes."""
    entry = {"PodUID": "u", "ContainerName": "c", "AllocResp": response}
    text = json.dumps({"Data": {"PodDeviceEntries": [entry]}}).encode()
    assert [each.nodes for each in read(tmp_path, text)] == [nodes]


@pytest.mark.parametrize(
    "text",
    [
        b"{}",
        b'{"Data":{"PodDeviceEntries":[{"DeviceIDs":{"0":[5]}}]}}',
        b'{"Data":{"x":' + b"[" * 10**6,
        json.dumps(REAL).encode()[:-10],
        b"\x00\xff",
    ],
)
def test_a_file_that_is_no_checkpoint_is_reported(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(KubeletError, match="checkpoint is not a checkpoint of the kubelet"):
        read(tmp_path, text)


@given(st.binary(max_size=40), st.integers(0, 10**6), st.integers(0, 60))
def test_damage_is_an_error_or_entries_and_never_a_crash(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, where: int, cut: int
) -> None:
    text = json.dumps(REAL).encode()
    where %= len(text)
    with contextlib.suppress(KubeletError):
        read(tmp_path_factory.getbasetemp(), text[:where] + junk + text[where + cut :])


def test_the_file_is_read_if_it_is_a_regular_one(tmp_path: Path) -> None:
    (tmp_path / "real").write_text(json.dumps(REAL))
    assert len(read_checkpoint(tmp_path / "real")) == 2
    (tmp_path / "link").symlink_to("real")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, text in (
        ("gone", "No such file"),
        ("link", "Too many levels of symbolic links"),
        ("pipe", "it is not a regular file"),
        ("folder", "it is not a regular file"),
    ):
        with pytest.raises(KubeletError, match=f"{name} can't be read: {text}"):
            read_checkpoint(tmp_path / name)


def test_the_folders_of_pods_are_listed(tmp_path: Path) -> None:
    (tmp_path / "ns_p_u").mkdir()
    (tmp_path / "file").touch()
    assert sorted(pod_folders(tmp_path)) == ["file", "ns_p_u"]
    with pytest.raises(KubeletError, match=r"gone: No such file .* --pod-logs-dir"):
        pod_folders(tmp_path / "gone")


def test_too_large_checkpoints_and_too_many_folders_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "MAX_CHECKPOINT", 100)
    monkeypatch.setattr(checkpoint, "MAX_FOLDERS", 3)
    for number in range(4):
        (tmp_path / str(number)).write_bytes(b" " * 101)
    with pytest.raises(KubeletError, match="more than 100 bytes"):
        read_checkpoint(tmp_path / "0")
    with pytest.raises(KubeletError, match="more than 3 folders"):
        pod_folders(tmp_path)


async def test_files_that_hang_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    monkeypatch.setattr(checkpoint, "read_checkpoint", lambda _path: release.wait(30))
    with pytest.raises(HardwareError, match=r"reading .*checkpoint hangs"):
        await KubeletFiles(tmp_path, tmp_path, BlockingCalls(), seconds=0.05).entries()
    release.set()
