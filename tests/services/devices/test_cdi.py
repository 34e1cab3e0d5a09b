import itertools
import json
from dataclasses import replace
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


def test_devices_of_types_are_in_a_file_of_their_own() -> None:
    node = DeviceNode("accel/accel0", "r")
    device = replace(FIRST, id="0000-b1-00-0", nodes=(node,), cdi=f"{DEVICE_KIND}=0000-b1-00-0")
    assert describe([FIRST, device]).devices == (FIRST.id,)
    file = describe([FIRST, device], kind=DEVICE_KIND, host_root="/host")
    wanted = described("0000-b1-00-0", "accel/accel0")
    wanted["containerEdits"]["deviceNodes"][0]["permissions"] = "r"
    assert parsed(file)["devices"] == [wanted]
    assert parsed(file)["kind"] == "accelbind.dev/device"


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
