"""`accelbind doctor` on nodes that serve device types, and what VFIO needs of them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from accelbind.doctor.command import NODE
from accelbind.doctor.model import run_check
from accelbind.doctor.node import Node
from services.devices.model import PluginMode
from services.kubelet.sockets import checkpoint_file
from simulator.devices import DeviceTree
from tests.accelbind.doctor.answers import told
from tests.plugin.support import settings
from tests.services.devices.types.making import document

LIMITS = "Limit                     Soft Limit           Hard Limit           Units\n"
VFIO: dict[str, Any] = {
    "match": [{"pci": {"vendor": ["10de"], "device": ["1eb8"]}}],
    "nodes": [{"vfio": True}],
}


@pytest.fixture
def tree(tmp_path: Path) -> DeviceTree:
    """A node that is well, with a function behind an IOMMU that is not bound."""
    made = DeviceTree(tmp_path / "root")
    made.group(made.pci("0000:3b:00.0", "10de:1eb8"), 12)
    made.file("sys/kernel/iommu_groups/12/type", "DMA")
    made.file("proc/1/comm", "systemd")
    made.file("proc/7/comm", "containerd")
    made.file("proc/7/limits", f"{LIMITS}Max locked memory         unlimited    unlimited    bytes")
    made.file(
        "etc/containerd/config.toml", "  device_ownership_from_security_context = true # non-root"
    )
    checkpoint = checkpoint_file(tmp_path / "k")
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_text('{"Data": {}}')
    (tmp_path / "types").mkdir()
    return made


def found(folder: Path, check: str, *specs: dict[str, Any]) -> tuple[str, str]:
    """State and text of a check of a node with types of these specs."""
    for number, spec in enumerate(specs):
        text = yaml.safe_dump(document(spec, f"t{number}"))
        (folder / f"types/t{number}.yaml").write_text(text)
    types = {"device_types": folder / "types"} if specs else {}
    node = Node(settings(folder, mode=PluginMode.NONE, metrics_port=1, **types), [*types])
    result = run_check(check, NODE[check], node)
    return str(result.state), told(result)


def test_a_node_without_device_types_is_not_checked_for_vfio(tmp_path: Path) -> None:
    assert found(tmp_path, "node.vfio")[0] == "skipped"


def test_functions_that_are_not_bound_and_files_that_are_bent_are_named(
    tree: DeviceTree, tmp_path: Path
) -> None:
    state, text = found(tmp_path, "node.devices", VFIO, {"match": []})
    assert state == "failed"
    assert "0000-3b-00-0 of type t0: 0000:3b:00.0 is not bound to vfio-pci" in text
    assert "driverctl set-override" in text
    assert "t1.yaml, line 6: spec.match" in text
    bound: dict[str, Any] = {"match": [{"pci": {"vendor": ["10de"], "driver": ["vfio-pci"]}}]}
    state, text = found(tmp_path, "node.devices", VFIO | bound, VFIO | bound)
    assert state == "warning", "near misses may be meant"
    assert "it is bound to no driver, not to vfio-pci" in text
    tree.bind("sys/devices/pci0000:3b/0000:3b:00.0", "vfio-pci")
    tree.entry("", "vfio", "12", "242:12", "vfio/12")
    tree.entry("", "misc", "vfio", "10:196", "vfio/vfio")
    (tmp_path / "types/t1.yaml").unlink()
    state, text = found(tmp_path, "node.devices", VFIO)
    assert (state, "1 healthy device" in text) == ("warning", True), "no kubelet is here"


@pytest.mark.usefixtures("tree")
def test_a_node_that_has_what_vfio_needs(tmp_path: Path) -> None:
    assert found(tmp_path, "node.vfio", VFIO)[0] == "ok"
    others = {"match": [{"pci": {"vendor": ["8086"]}}]}
    assert found(tmp_path, "node.vfio", VFIO | others)[0] == "skipped", "nodes differ"
    assert found(tmp_path, "node.vfio", {"match": [{"path": ["/dev/fuse"]}]})[0] == "skipped"


def test_groups_without_nodes_are_named_and_checked_for_vfio(
    tree: DeviceTree, tmp_path: Path
) -> None:
    tree.bind("sys/devices/pci0000:3b/0000:3b:00.0", "vfio-pci")
    state, text = found(tmp_path, "node.devices", VFIO)
    assert (state, 'no device node of it: "/dev/vfio/12"' in text) == ("failed", True), text
    assert 'no device node of it: "/dev/vfio/vfio"' in text
    assert found(tmp_path, "node.vfio", VFIO)[0] == "ok"


def test_violated_rules_and_types_that_match_nothing_have_advice_of_their_own(
    tree: DeviceTree, tmp_path: Path
) -> None:
    entry = tree.entry("", "misc", "fuse", "10:229")
    tree.file(f"{entry}/temperature", "99")
    hot = {
        "match": [{"class": {"name": "misc", "entry": ["fuse"]}}],
        "attributes": [{"name": "temperature", "file": "temperature", "type": "int"}],
        "health": [{"attribute": "temperature", "max": 70, "reason": "too-hot"}],
    }
    none = {"match": [{"class": {"name": "npu"}}]}
    _, text = found(tmp_path, "node.devices", hot, none)
    assert "a rule under health of its device type has this reason" in text
    assert "device type t1 matches nothing" in text
    assert "correct its match" in text
    assert "accelbind fpga info" not in text


@pytest.mark.parametrize(
    ("path", "text", "state", "words"),
    [
        ("proc/7/limits", "Max locked memory  65536  65536  bytes", "warning", "65536 bytes"),
        ("etc/containerd", None, "unseen", "is unknown"),
        ("etc/containerd/config.toml", "#device_ownership = true", "warning", "is not on"),
    ],
)
def test_missing_parts_of_vfio_are_reported(
    tree: DeviceTree, path: str, text: str | None, state: str, words: str
) -> None:
    folder = tree.root.parent
    if text is None:
        (tree.root / path).rename(folder / "away")
    else:
        tree.file(path, text)
    actual, said = found(folder, "node.vfio", VFIO)
    assert (actual, words in said) == (state, True), said
