"""Nodes that have been in use: what accelbind has programmed, which devices containers have."""

import json
from pathlib import Path

from plugin.dra import book
from plugin.dra.claims import ClaimRef
from plugin.dra.wants import Kind, Want
from services.devices.hardware.scan import scan
from services.devices.model import PluginMode
from services.kubelet.sockets import checkpoint_file
from services.node.last_mode import FILE
from services.programming.host_state import HostState
from services.programming.port import DeviceFiles, PortPlace

CLAIM = "0a1b"
"""The UID of a claim."""


def record_ports(root: Path, state: Path) -> None:
    """Record of each port what it shows, as if it had been programmed in this boot."""
    records = HostState(state).records
    for card in scan(root).cards:
        for port in card.ports:
            place = PortPlace(card, port, None)
            records.empty(place.record_key)
            inode = DeviceFiles(root, place).inode
            records.write(place.record_key, inode, port.afu_id, port.afu_id)


def write_last_mode(plugins: Path, mode: PluginMode = PluginMode.REGION) -> None:
    """Leave the file of a plugin that has served a mode, so that records count."""
    (plugins / FILE).parent.mkdir(parents=True, exist_ok=True)
    (plugins / FILE).write_text(f"{mode}\n")


def write_checkpoint(kubelet_dir: Path, *held: tuple[str, str]) -> Path:
    """Write the checkpoint of a kubelet whose container `c` of pod `u` has devices, by resource."""
    entries = [
        {
            "PodUID": "u",
            "ContainerName": "c",
            "ResourceName": f"fpga.intel.com/{resource}",
            "DeviceIDs": {"-1": [device]},
        }
        for resource, device in held
    ]
    path = checkpoint_file(kubelet_dir)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"Data": {"PodDeviceEntries": entries}}))
    return path


def with_claim(state_dir: Path) -> book.ClaimBook:
    """The book in which claim team-a/mine has the region of the first DFL card."""
    made = book.ClaimBook(state_dir / book.FOLDER)
    region, names = "fpga.intel.com/region-x", (("fpga-0000-01-00-0",), ("dfl-fme.0",))
    want = Want("fpga", Kind.PROGRAM, *names, ((),), region, region)
    made.reserve(ClaimRef("team-a", "mine", CLAIM), (want,))
    return made
