"""`accelbind doctor` on nodes that a DRA driver serves, and on those that have just changed."""

import json
from pathlib import Path
from typing import Any

from plugin.dra.book import FOLDER, ClaimBook
from plugin.dra.claims import ClaimRef
from services.devices.dra import DRIVER
from services.kubelet.sockets import (
    checkpoint_file,
    dra_checkpoint_file,
    dra_registration,
    dra_socket,
)
from tests.accelbind.doctor.test_node import expect, listening

REGION = "fpga.intel.com/region-ce48969398f05f33946d560708be108a"
UID = "0a1b2c3d-0000-4000-8000-000000000001"


def dra(folder: Path, state: str, *words: str) -> None:
    expect(folder, "dra", state, *words)


def kubelet(folder: Path) -> Path:
    return folder / "k"


def checkpoint(folder: Path, *pods: str, resource: str = REGION) -> None:
    """The kubelet's checkpoint: a resource that is registered, and pods that have a device."""
    held = [
        {"PodUID": pod, "ContainerName": "c", "ResourceName": resource, "DeviceIDs": {"-1": ["a"]}}
        for pod in pods
    ]
    data: dict[str, Any] = {"PodDeviceEntries": held, "RegisteredDevices": {resource: []}}
    path = checkpoint_file(kubelet(folder))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"Data": data}))


def test_a_node_without_a_driver_is_skipped(short_dir: Path) -> None:
    dra(short_dir, "skipped", "no DRA driver")


def test_a_driver_that_serves_needs_no_plugin(short_dir: Path) -> None:
    folder = kubelet(short_dir)
    (folder / "device-plugins").mkdir(parents=True)
    with listening(dra_socket(folder, DRIVER)), listening(dra_registration(folder, DRIVER)):
        dra(short_dir, "ok", "0 claims")


def test_a_claim_that_the_kubelet_has_forgotten_can_be_released(short_dir: Path) -> None:
    folder = kubelet(short_dir)
    book = ClaimBook(short_dir / "state" / FOLDER)
    book.reserve(ClaimRef(namespace="team-a", name="claim", uid=UID), ())
    with listening(dra_socket(folder, DRIVER)), listening(dra_registration(folder, DRIVER)):
        dra(short_dir, "warning", "team-a/claim", f"accelbind dra release {UID}")
        entries = [{"ClaimUID": UID, "DriverState": {DRIVER: {}}}]
        content = {"Data": json.dumps({"ClaimInfoStateList": entries}), "Checksum": 1}
        dra_checkpoint_file(folder).write_text(json.dumps(content))
        dra(short_dir, "ok", "1 claim on this node")
        dra_checkpoint_file(folder).write_text("{}")
        dra(short_dir, "failed", "is not a checkpoint of the kubelet")


def test_devices_that_pods_still_have_from_the_plugin_are_counted(short_dir: Path) -> None:
    folder = kubelet(short_dir)
    checkpoint(short_dir)
    with listening(dra_socket(folder, DRIVER)), listening(dra_registration(folder, DRIVER)):
        dra(short_dir, "ok", "0 claims")
        checkpoint(short_dir, "a", "b")
        dra(short_dir, "warning", "1 device of this node is not published")


def test_resources_of_others_are_none_of_ours(short_dir: Path) -> None:
    folder = kubelet(short_dir)
    checkpoint(short_dir, "a", resource="nvidia.com/gpu")
    with listening(dra_socket(folder, DRIVER)), listening(dra_registration(folder, DRIVER)):
        dra(short_dir, "ok", "0 claims")
