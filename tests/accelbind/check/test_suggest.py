"""`accelbind check device-types --suggest`: drafts that can be used, from a tree of sysfs."""

from pathlib import Path

import pytest
import yaml

from services.devices.hardware.sysfs import Sysfs
from services.devices.types.node_source import NodeSource
from services.devices.types.parsing import parse
from simulator.devices import DeviceTree
from tests.accelbind.running import Done, run
from tests.services.devices.types.making import Types

HAILO, USB, VFIO = "0000:01:00.0", "3-1.2", "0000:02:00.0"


@pytest.fixture
def tree(tmp_path: Path) -> DeviceTree:
    tree = DeviceTree(tmp_path / "root")
    hailo = tree.pci(HAILO, "1e60:2864", board_location="0", irq=7, long="x" * 99)
    tree.bind(hailo, "hailo")
    entry = tree.entry(hailo, "hailo_chardev", "hailo0", "235:0")
    tree.file(f"{entry}/fw_version", "4.17.0")
    tree.file(f"{entry}/board_id", "7")
    vfio = tree.pci(VFIO, "8086:bccf")
    tree.bind(vfio, "mlx5_vfio_pci")
    tree.entry(vfio, "vfio-dev", "vfio0", "511:0", "vfio/devices/vfio0")
    tree.entry(tree.pci("0000:07:00.0", "1d0f:e4c1"), "misc", "nitro_enclaves", "10:99")
    tree.usb(USB, "1a6e:089a", "bus/usb/003/002", "189:257", serial="s")
    tree.entry("", "misc", "fuse", "10:229")
    sound = tree.entry(f"{tree.usb('3-2', '1235:8211', 'x', '189:260')}/3-2:1.0", "sound", "card1")
    tree.entry(sound, "sound", "controlC1", "116:1", "snd/controlC1")
    tree.entry(sound, "sound", "pcmC1D0p", "116:2", "snd/pcmC1D0p")
    queue = f"{tree.pci('0000:6a:01.0', '8086:0b25')}/dsa0/wq0.0"
    tree.node(queue, "dsa/wq0.0", "237:0")
    tree.file(f"{queue}/state", "enabled")
    tree.bind(queue.rpartition("/")[0], "idxd", "dsa")
    tree.link(f"{queue}/subsystem", "sys/bus/dsa")
    network = tree.pci("0000:05:00.1", "8086:1521")
    tree.entry(network, "net", "eno2")
    tree.entry(network, "ptp", "ptp1", "248:1")
    tree.file(
        f"{tree.entry(tree.pci('0000:06:00.0', '1c00:3253'), 'tty', 'ttyS0', '4:64')}/type", 4
    )
    return tree


def suggest(tree: DeviceTree, device: str) -> Done:
    return run("check", "device-types", "--suggest", device, "--root", tree.root)


@pytest.mark.parametrize(
    ("device", "match", "nodes", "attributes"),
    [
        (
            "/dev/hailo0",
            {"pci": {"vendor": ["1e60"], "device": ["2864"]}, "class": {"name": "hailo_chardev"}},
            [{"own": True}],
            [
                {"name": "boardId", "file": "board_id", "type": "int"},
                {"name": "fwVersion", "file": "fw_version"},
            ],
        ),
        (
            "01:00.0",
            {"pci": {"vendor": ["1e60"], "device": ["2864"]}},
            [{"class": "hailo_chardev"}],
            [{"name": "boardLocation", "file": "board_location", "type": "int"}],
        ),
        (VFIO, {"pci": {"vendor": ["8086"], "device": ["bccf"]}}, [{"vfio": True}], []),
        (USB, {"usb": {"vendor": ["1a6e"], "product": ["089a"]}}, [{"own": True}], []),
        ("/dev/fuse", {"class": {"name": "misc", "entry": ["fuse"]}}, [{"own": True}], []),
        (
            "/dev/snd/pcmC1D0p",
            {
                "usb": {"vendor": ["1235"], "product": ["8211"]},
                "class": {"name": "sound", "entry": ["pcmC*D*p"]},
            },
            [{"own": True}],
            [],
        ),
        (
            "/dev/dsa/wq0.0",
            {
                "path": ["/dev/dsa/wq*.*"],
                "where": [
                    {"attribute": "vendorID", "equals": "8086"},
                    {"attribute": "deviceID", "equals": "0b25"},
                ],
            },
            [{"own": True}],
            [{"name": "state", "file": "state"}],
        ),
        ("07:00.0", {"pci": {"vendor": ["1d0f"], "device": ["e4c1"]}}, [{"class": "misc"}], []),
        ("05:00.1", {"pci": {"vendor": ["8086"], "device": ["1521"]}}, [{"class": "ptp"}], []),
        ("3-2:1.0", {"usb": {"vendor": ["1235"], "product": ["8211"]}}, [{"class": "sound"}], []),
        (
            "/dev/ttyS0",
            {
                "pci": {"vendor": ["1c00"], "device": ["3253"]},
                "class": {"name": "tty"},
            },
            [{"own": True}],
            [{"name": "ofType", "file": "type", "type": "int"}],
        ),
    ],
)
def test_a_draft_names_the_device_its_nodes_and_what_sysfs_shows(
    tree: DeviceTree, device: str, match: object, nodes: object, attributes: list[object]
) -> None:
    code, out, err = suggest(tree, device)
    assert (code, err) == (0, "")
    draft = yaml.safe_load(out)
    assert draft["spec"]["match"] == [match]
    assert draft["spec"]["nodes"] == nodes
    assert ("idxd" in out) is (device == "/dev/dsa/wq0.0")
    assert ("[{vfio: true}]\n" in out) is (device == VFIO)
    assert draft["spec"].get("attributes", []) == attributes
    parse(draft)
    if device != VFIO and "path" not in draft["spec"]["match"][0]:  # groups and nodes aren't here
        types = Types(tree.root.parent / "types", tree.root)
        types.write("draft.yaml", out)
        (found,) = types.scan().devices
        assert (found.nodes != (), found.reasons) == (True, ())


def test_a_node_that_sysfs_does_not_know_is_named_by_its_path(
    tree: DeviceTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.file("dev/nvidia0", "")
    assert suggest(tree, "/dev/nvidia0").returncode == 2
    monkeypatch.setattr(Sysfs, "node_number", lambda *_: (195, 0))
    draft = yaml.safe_load(suggest(tree, "/dev/nvidia0").stdout)
    assert draft["spec"]["match"] == [{"path": ["/dev/nvidia0"]}]
    assert parse(draft).name == "nvidia0"


@pytest.mark.parametrize(
    ("device", "entry", "line"),
    [
        ("/dev/npu0pe0", ["npu*pe*"], "  each: node    # device: a pod gets npu0pe0 and npu0pe1"),
        ("/dev/npu0_mgmt", ["npu*_mgmt"], ""),
    ],
)
def test_a_draft_for_one_node_of_a_card_has_none_of_another_kind(
    tree: DeviceTree, device: str, entry: list[str], line: str
) -> None:
    npu = tree.pci("0000:04:00.0", "1ed2:0001")
    for number, name in enumerate(("npu0_mgmt", "npu0pe0", "npu0pe1")):
        tree.entry(npu, "npu", name, f"240:{number}")
    _, out, _ = suggest(tree, device)
    draft = yaml.safe_load(out)
    assert draft["spec"]["match"][0]["class"] == {"name": "npu", "entry": entry}
    assert (line in out, "each" in draft["spec"]) == (True, bool(line))
    types = Types(tree.root.parent / "types", tree.root)
    types.write("draft.yaml", out)
    devices = types.scan().devices
    assert [len(each.nodes) for each in devices] == ([1, 1] if line else [1])


def test_a_draft_for_a_disk_controller_says_that_its_nodes_are_not_handed_out(
    tree: DeviceTree,
) -> None:
    tree.entry(tree.pci("0000:05:00.0", "144d:a808"), "nvme", "nvme0", "238:0")
    _, out, _ = suggest(tree, "0000:05:00.0")
    assert "# nodes of nvme are never handed out: they are disks, tapes" in out
    assert "; bound to vfio-pci, it is handed out as a whole\n" in out


def test_a_draft_for_a_device_with_nodes_on_a_bus_names_one(tree: DeviceTree) -> None:
    _, out, _ = suggest(tree, "6a:01.0")
    assert "# for its own nodes, ask for a draft of /dev/dsa/wq0.0\n" in out


def test_a_draft_for_a_device_with_several_nodes_lists_them(tree: DeviceTree) -> None:
    folder = tree.usb("1-6", "046d:085e", "bus/usb/001/011", "189:10")
    for number in range(2):
        tree.entry(f"{folder}/1-6:1.0", "video4linux", f"video{number}", f"81:{number}")
    tree.entry(f"{folder}/1-6:1.2", "usbmisc", "hiddev0", "180:96", "usb/hiddev0")
    _, out, _ = suggest(tree, "1-6")
    assert "  each: device    # node: video0 and video1 are separate devices\n" in out
    assert parse(yaml.safe_load(out)).spec.nodes == (NodeSource(class_="video4linux"),)


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("/dev/none", "is no device in sysfs (sys/dev/char does not have it)"),
        ("0000:09:00.0", "is no device in sysfs (sys/bus/pci or sys/bus/usb does"),
        ("/dev/mem", "are never handed out: they reach the memory"),
        ("/dev/st0", "are never handed out: they are disks, tapes"),
        ("/dev/hidraw0", "are handed out with --allow-nodes=hidraw only"),
        ("/dev/rfkill", "--allow-nodes=rfkill allows it"),
    ],
)
def test_what_is_no_device_or_never_handed_out_has_no_draft(
    tree: DeviceTree, device: str, words: str
) -> None:
    hid = tree.usb("1-5", "051d:0002", "bus/usb/001/010", "189:9")
    tree.entry(f"{hid}/1-5:1.0", "hidraw", "hidraw0", "243:0")
    tree.entry("", "misc", "rfkill", "10:242")
    done = suggest(tree, device)
    assert (done.returncode, words in done.stderr) == (2, True)
    assert run("check", "device-types").returncode == 2
    assert run("check", "device-types", "x", "--suggest", "y").returncode == 2
