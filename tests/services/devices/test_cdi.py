import itertools
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.devices.cdi import (
    DEVICE_KIND,
    KIND,
    CdiFile,
    CdiHook,
    ClaimDevice,
    check_name,
    claim_file,
    describe,
    describe_claim,
)
from services.devices.cdi_files import CdiFolder, CdiWrite
from services.devices.model import Device, DeviceNode, Inventory, PluginMode
from services.process.errors import InvalidName
from tests.services.cards import advertise, card, port


def nodes(*names: str) -> tuple[DeviceNode, ...]:
    return tuple(map(DeviceNode, names))


FIRST = Device(
    id="dfl-port.0",
    resource="fpga.intel.com/af-x",
    nodes=nodes("dfl-port.0"),
    cdi=f"{KIND}=dfl-port.0",
)
SECOND = replace(FIRST, id="5e:00.0", nodes=nodes("dfl-port.1", "dfl-fme.0"), cdi=f"{KIND}=5e:00.0")


def parsed(file: CdiFile) -> Any:
    return json.loads(file.content)


def described(name: str, *nodes: str) -> dict[str, Any]:
    listed = [
        {"path": f"/dev/{node}", "hostPath": f"/host/dev/{node}", "permissions": "rw"}
        for node in nodes
    ]
    return {"name": name, "containerEdits": {"deviceNodes": listed}}


def test_a_file_describes_each_device_with_its_nodes() -> None:
    usual = replace(SECOND, nodes=nodes("by@1/a+b"))
    assert describe([usual]).devices == ("5e:00.0",)
    file = describe([FIRST, SECOND], host_root="/host/")
    assert parsed(file) == {
        "cdiVersion": "0.5.0",
        "kind": "intel.cdi.k8s.io/fpga",
        "devices": [
            described("5e:00.0", "dfl-port.1", "dfl-fme.0"),
            described("dfl-port.0", "dfl-port.0"),
        ],
    }
    assert (file.devices, file.problems) == (("5e:00.0", "dfl-port.0"), ())


def test_a_name_never_means_more_nodes_after_the_mode_of_a_node_has_changed() -> None:
    """The kubelet starts a container again with the names that it was given before."""
    inventory = Inventory((card(0, port(), port("dfl-port.1", number=1)),))

    def granted(mode: PluginMode) -> dict[str, set[str]]:
        file = describe(advertise(inventory, mode).devices())
        return {
            each["name"]: {node["path"] for node in each["containerEdits"]["deviceNodes"]}
            for each in (parsed(file)["devices"] if file.content else ())
        }

    for before, after in itertools.product(PluginMode, PluginMode):
        old, new = granted(before), granted(after)
        for name in old.keys() & new.keys():
            assert new[name] <= old[name]
        assert bool(new) is after.has_cards


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (replace(FIRST, id="-x", cdi=f"{KIND}=-x"), "cdi-name"),
        (replace(FIRST, id="x", nodes=nodes("../sda")), "cdi-node"),
        (replace(FIRST, id="x", nodes=nodes("a/../b")), "cdi-node"),
        (SECOND, "cdi-duplicate"),
    ],
)
def test_devices_that_a_runtime_would_refuse_are_left_out_and_reported(
    device: Device, reason: str
) -> None:
    file = describe([SECOND, device, FIRST])
    assert file.devices == ("5e:00.0", "dfl-port.0")
    assert [problem.code for problem in file.problems] == [reason]
    assert file.content == describe([FIRST, SECOND]).content


@pytest.mark.parametrize("name", ["", "-x", "x-", "a=b", "a/b", "a b", "\u0660", "x\n"])
def test_names_are_valid_as_the_reference_implementation_has_it(name: str) -> None:
    check_name("a")
    check_name("A0_-.:z")
    with pytest.raises(InvalidName):
        check_name(name)


def test_a_hook_is_announced_for_each_device() -> None:
    hook = CdiHook("/opt/accelbind/hook/accelbind-hook", "/run/accelbind/hook.sock")
    (only,) = json.loads(describe([FIRST], hook=hook).content)["devices"]
    assert only["containerEdits"]["hooks"] == [
        {
            "hookName": "createRuntime",
            "path": "/opt/accelbind/hook/accelbind-hook",
            "args": ["accelbind-hook", "/run/accelbind/hook.sock", FIRST.id],
        }
    ]


@pytest.mark.parametrize("root", ["/", "/host"])
@pytest.mark.parametrize(
    "node", [DeviceNode("zigbee", target="ttyUSB0"), DeviceNode("ttyUSB0", inside="zigbee")]
)
def test_a_node_of_another_path_has_that_of_the_host(root: str, node: DeviceNode) -> None:
    """Runtimes take the host path for a node without following it."""
    device = replace(FIRST, nodes=(node,), cdi=f"{DEVICE_KIND}={FIRST.id}")
    wanted = {
        "path": "/dev/zigbee",
        "hostPath": f"{root.rstrip('/')}/dev/ttyUSB0",
        "permissions": "rw",
    }
    (found,) = parsed(describe([device], kind=DEVICE_KIND, host_root=root))["devices"]
    assert found["containerEdits"]["deviceNodes"] == [wanted]
    file = json.loads(describe_claim([ClaimDevice("u-r-a", (node,))], host_root=root))
    assert file["devices"][0]["containerEdits"]["deviceNodes"] == [wanted]


def test_the_file_of_a_claim_has_nodes_and_variables() -> None:
    both = ClaimDevice("u-r-a", (DeviceNode("dfl-port.0"),), (("A", "b"),))
    nodes = ClaimDevice("u-r-b", (DeviceNode("x", "r"),))
    nothing = ClaimDevice("u-r-c")
    file = json.loads(describe_claim([both, nodes, nothing], host_root="/host"))
    assert (file["cdiVersion"], file["kind"]) == ("0.5.0", "accelbind.dev/claim")
    port = {"path": "/dev/dfl-port.0", "hostPath": "/host/dev/dfl-port.0", "permissions": "rw"}
    assert file["devices"] == [
        {"name": "u-r-a", "containerEdits": {"deviceNodes": [port], "env": ["A=b"]}},
        {
            "name": "u-r-b",
            "containerEdits": {
                "deviceNodes": [{"path": "/dev/x", "hostPath": "/host/dev/x", "permissions": "r"}]
            },
        },
    ]
    noted = json.loads(describe_claim([both], host_root="/host", note="it"))
    assert noted["devices"] == file["devices"][:1]
    assert noted["cdiVersion"] == "0.6.0"  # that of `annotations`
    assert noted["annotations"] == {"accelbind.dev/claim-entry": "it"}
    assert [each.cdi for each in (both, nothing)] == ["accelbind.dev/claim=u-r-a", ""]
    assert describe_claim([nothing]) == b""
    assert claim_file("u") == "accelbind-claim-u.json"


@pytest.mark.parametrize("device", [ClaimDevice("u/r"), ClaimDevice("u", (DeviceNode("../x"),))])
def test_a_claim_that_no_runtime_would_take_is_an_error(device: ClaimDevice) -> None:
    with pytest.raises(InvalidName):
        describe_claim([device])


# The files in their folder


NAME = "accelbind-fpga.json"
OLD = b'{"old": 1}\n'
NEW = b'{"new": 22}\n'


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_correct_file_is_not_written_again(tmp_path: Path) -> None:
    folder = CdiFolder(tmp_path, NAME)
    folder.write(NEW)
    inode = (tmp_path / NAME).stat().st_ino
    (tmp_path / f".{NAME}.new").write_bytes(b"of a plugin that was killed")
    assert folder.write(NEW) == CdiWrite()
    assert (tmp_path / NAME).stat().st_ino == inode
    assert names(tmp_path) == [NAME]


def wrong_mode(path: Path) -> None:
    path.write_bytes(NEW)
    path.chmod(0o600)


def link_elsewhere(path: Path) -> None:
    elsewhere = path.with_name("elsewhere")
    elsewhere.write_bytes(OLD)
    path.symlink_to(elsewhere)


@pytest.mark.parametrize(
    "found", [NEW[:-1], NEW + b"x", wrong_mode, link_elsewhere, os.mkfifo, os.mkdir]
)
def test_a_wrong_file_is_replaced(tmp_path: Path, found: bytes | Callable[[Path], None]) -> None:
    if isinstance(found, bytes):
        (tmp_path / NAME).write_bytes(found)
        (tmp_path / NAME).chmod(0o644)
    else:
        found(tmp_path / NAME)
    assert CdiFolder(tmp_path, NAME).write(NEW) == CdiWrite(changed=True)
    assert (tmp_path / NAME).read_bytes() == NEW
    assert not (tmp_path / NAME).is_symlink()
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o644


def test_what_is_in_the_way_is_reported_and_an_empty_folder_removed(
    tmp_path: Path,
) -> None:
    (tmp_path / "cdi" / NAME / "somebody's").mkdir(parents=True)
    (tmp_path / "file").touch()
    for folder, content, verb in (
        ("cdi", NEW, "written: Directory not empty"),
        ("cdi", b"", "removed: Directory not empty"),
        ("file", NEW, "written: File exists"),
    ):
        done = CdiFolder(tmp_path / folder, NAME).write(content)
        assert (done.changed, done.lost) == (False, True)
        assert f"{NAME} can't be {verb}" in done.error
    for folder in ("none", "file"):
        assert CdiFolder(tmp_path / folder, NAME).write(b"") == CdiWrite(), "it isn't there"
    assert not (tmp_path / "none").exists()
    (tmp_path / "empty" / NAME).mkdir(parents=True)
    assert CdiFolder(tmp_path / "empty", NAME).write(b"") == CdiWrite(changed=True)
    assert names(tmp_path / "empty") == []
