"""`accelbind doctor` on synthetic nodes: what is well, and each thing that isn't."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from accelbind.devices.source import served_folder
from accelbind.doctor.command import NODE
from accelbind.doctor.model import Check, Line, Result, failed, ok, run_check
from accelbind.doctor.node import Node, check_devices
from services.devices.dra import DRIVER
from services.devices.model import PluginMode
from services.kubelet.sockets import checkpoint_file, dra_socket
from services.process.errors import KubeletError
from simulator.card_faults import Fault
from simulator.cards import CardSpec, Rack
from simulator.devices import DeviceTree
from simulator.kubelet.standin import KubeletStandIn
from tests.accelbind.doctor.answers import told
from tests.accelbind.running import plain_port
from tests.accelbind.running import run as command
from tests.plugin.support import Pods, running, settings
from tests.services.devices.types.making import document
from tests.support import eventually_async


def looked(
    folder: Path, mode: PluginMode = PluginMode.AF, only: str = "", **values: Any
) -> dict[str, Result]:
    """What comes of the checks of a node, by id."""
    node = Node(settings(folder, mode=mode, **({"metrics_port": 1} | values)))
    chosen = {name: check for name, check in NODE.items() if name.startswith(only)}
    return {name: run_check(name, check, node) for name, check in chosen.items()}


def expect(folder: Path, check: str, state: str, *words: str, **values: Any) -> Result:
    """Have a check of a node find a state and say these words; every red line says what to do."""
    result = looked(folder, only=f"node.{check}", **values)[f"node.{check}"]
    text = told(result)
    assert (result.state, [word for word in words if word not in text]) == (state, []), text
    assert [line for line in result.lines if line.state == "failed" and not line.todo] == []
    return result


@contextmanager
def listening(path: Path) -> Iterator[None]:
    """Somebody who listens on a unix socket and says nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(path))
        server.listen(1)
        yield


def test_a_plugin_that_is_too_busy_to_accept_serves_all_the_same(short_dir: Path) -> None:
    path = dra_socket(short_dir, DRIVER)
    assert served_folder(short_dir) is None
    with listening(path), ExitStack() as waiting:
        for _ in range(4):  # more than it lets wait
            client = waiting.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            client.connect_ex(str(path))
        assert served_folder(short_dir) == path.parent


@pytest.mark.parametrize("mode", [PluginMode.AF, PluginMode.UNITS])
async def test_a_node_that_is_well_has_no_red_line(short_dir: Path, mode: PluginMode) -> None:
    rack = Rack(short_dir / "root")
    rack.add_card(CardSpec())
    rack.add_card(CardSpec(driver="opae"))
    values: dict[str, Any] = {"cdi_dir": short_dir / "cdi", "units": 2}
    async with (
        KubeletStandIn(short_dir / "k", node_name="n1") as kubelet,
        running(settings(short_dir, mode=mode, **values), Pods()),
    ):
        await kubelet.until(lambda: [*kubelet.allocatable.values()] == [2])
        ports = short_dir / "ports"
        await eventually_async(ports.exists)
        values |= {"metrics_host": "127.0.0.1"}
        values |= {"metrics_port": json.loads(ports.read_text())["metrics"]}
        results = await asyncio.to_thread(looked, short_dir, mode, **values)
    wrong = [each for each in results.values() if each.state not in ("ok", "skipped")]
    assert wrong == []
    checks = ["devices", "plugin"]
    assert {str(results[f"node.{name}"].state) for name in checks} == {"ok"}


# Cards -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault.PORT_ERRORS, "clear-errors"),
        (Fault.AFU_ALL_F, "fpga program"),
        (Fault.FME_MISSING, "assign"),
        (Fault.ENTRY_DANGLING, "dmesg"),
        (Fault.PORT_NODE_MISSING, "udevadm"),
    ],
)
def test_a_fault_of_a_card_hides_no_other_card(short_dir: Path, fault: Fault, words: str) -> None:
    rack = Rack(short_dir / "root")
    rack.add_card(CardSpec(driver="opae", faults=(fault,)))
    rack.add_card(CardSpec())
    result = expect(short_dir, "devices", "failed", words, "1 healthy device")
    assert sum(line.state == "failed" for line in result.lines) == 1


def test_a_node_without_driver_says_which_to_load(short_dir: Path) -> None:
    for folder in ("sys/bus/pci/devices", "sys/class", "dev"):
        (short_dir / "root" / folder).mkdir(parents=True)
    expect(short_dir, "devices", "failed", "modprobe dfl-pci")
    expect(short_dir / "elsewhere", "devices", "failed", "--root")
    expect(short_dir, "devices", "warning", "40 healthy devices", mode=PluginMode.UNITS)


# The plugin --------------------------------------------------------------------------------------


def test_the_plugin_reports_about_itself(short_dir: Path) -> None:
    table = {"node": "n1", "mode": "region", "devices": [], "problems": ["no permission to write"]}
    answers = {
        "/healthz": (503, b"r: no answer\n"),
        "/readyz": (503, b"not ready\nr waiting: the kubelet is away\n"),
        "/devices": (200, json.dumps(table).encode()),
    }
    with plain_port(answers) as port:
        words = ("the kubelet is away", "healthz: r: no answer")
        expect(short_dir, "plugin", "failed", *words, metrics_port=port)
        expect(short_dir, "devices", "failed", "no permission to write", metrics_port=port)


def test_devices_in_use_are_no_fault_and_given_types_are_read_from_files(short_dir: Path) -> None:
    row = {"device": "d", "reasons": [{"reason": "function-in-use", "message": "held"}]}
    table = {"node": "n1", "mode": "none", "devices": [row], "problems": []}
    for folder in ("root/sys", "root/dev", "types"):
        (short_dir / folder).mkdir(parents=True)
    with plain_port({"/devices": (200, json.dumps(table).encode())}) as port:
        options = settings(
            short_dir, mode=PluginMode.NONE, metrics_port=port, device_types=short_dir / "types"
        )
        assert [*check_devices(Node(options))] == [ok("0 healthy devices")]
        assert Node(options, ["device_types"]).table.devices == ()


def test_a_plugin_that_is_away_or_out_of_reach(short_dir: Path) -> None:
    expect(short_dir, "plugin", "failed", "no plugin answers")
    with listening(short_dir / "k/device-plugins/accelbind-0123abcd-1.sock"):
        expect(short_dir, "plugin", "unseen", "kubectl exec")  # in a pod with its own address
    expect(short_dir, "plugin", "failed", "and none serves")  # it was killed


# Checks as such ----------------------------------------------------------------------------------


def crash(_: None) -> Iterator[Line]:
    yield ok("before")
    raise ZeroDivisionError("oh")


def refusing(error: Exception) -> Check[None]:
    def check(_: None) -> list[Line]:
        raise error

    return check


DENIED = KubeletError("it can't be read")
DENIED.__cause__ = PermissionError(13, "Permission denied", "/checkpoint")


@pytest.mark.parametrize(
    ("check", "state", "words"),
    [
        (crash, "unseen", "ok: before → \nunseen: internal error: ZeroDivisionError: oh"),
        (lambda _: [failed("x", "y")], "failed", "x → y"),
        (refusing(KubeletError("no kubelet")), "failed", "no kubelet"),
        (refusing(DENIED), "unseen", "/checkpoint: no permission"),
        (refusing(OSError(5, "I/O error", "/x")), "failed", "/x: I/O error"),
        (lambda _: [], "ok", "no problems"),
    ],
)
def test_an_error_of_a_check_is_one_of_its_lines(
    check: Check[None], state: str, words: str
) -> None:
    result = run_check("id", check, None)
    assert (result.state, words in told(result)) == (state, True), told(result)


# The command -------------------------------------------------------------------------------------


def test_a_checklist_shows_what_to_do(short_dir: Path) -> None:
    Rack(short_dir / "root").add_card(CardSpec(faults=(Fault.PORT_ERRORS,)))
    flags: tuple[object, ...] = ("--root", short_dir / "root", "--kubelet-dir", short_dir / "k")
    flags = (*flags, "--metrics-port", "1", "--only", "node.vfio", "--only", "node.devices")
    done = command("doctor", *flags)
    assert (done.returncode, done.stderr) == (1, "")
    socket = short_dir / "k/pod-resources/kubelet.sock"
    why = "cannot tell which pods hold devices, since there is no checkpoint: the kubelet doesn't"
    why += f" list the active pods ({socket}): UNAVAILABLE: No such file or directory"
    assert done.stdout.splitlines() == [
        "FAILED   node.devices  Are drivers and device types loaded, and all devices healthy?",
        "         failed: region0: errors/errors of dfl-port.0 reads 0x40",
        "         → accelbind fpga clear-errors PORT once it is unused; see what the workload did",
        f"         warning: {why}",
        "         → accelbind devices shows the devices that are known",
        "-        node.vfio  Can containers use devices through VFIO?",
        "         no device here is an OFS card's, or of a device type with nodes of VFIO",
        "",
        "2 checks: 1 failed, 1 skipped",
    ]
    done = command("doctor", *flags, "--skip", "node.devices", "-o", "json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["ok"], document["counts"]["skipped"]) == (0, True, 1)
    (check,) = document["checks"]
    assert check.keys() == {"id", "title", "state", "lines"}


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
