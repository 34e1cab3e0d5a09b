"""`accelbind doctor` on synthetic nodes: what is well, and each thing that isn't."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from accelbind.devices.source import served_folder
from accelbind.doctor.command import NODE
from accelbind.doctor.model import Check, Line, Result, failed, ok, run_check
from accelbind.doctor.node import Node, check_devices
from services.devices.dra import DRIVER
from services.devices.model import PluginMode
from services.kubelet.sockets import dra_socket
from services.process.errors import KubeletError
from simulator.card_faults import Fault
from simulator.cards import CardSpec, Rack
from simulator.kubelet.standin import KubeletStandIn
from tests.accelbind.doctor.answers import told
from tests.accelbind.running import plain_port
from tests.accelbind.running import run as command
from tests.plugin.support import Pods, running, settings
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
