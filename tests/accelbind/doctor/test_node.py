"""`accelbind doctor` on synthetic nodes: what is well, and each thing that isn't."""

import asyncio
import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from accelbind.cli import main
from accelbind.doctor.catalogue import NODE, checks_of
from accelbind.doctor.model import (
    Check,
    CheckStatus,
    Line,
    Result,
    Subject,
    failed,
    ok,
    run_checks,
)
from accelbind.doctor.node import Node
from plugin.settings import Programming
from services.bitstreams.storage import BitstreamStorage
from services.devices.cdi import describe
from services.devices.hardware.scan import scan
from services.devices.model import PluginMode
from services.devices.resources import advertise
from services.process.errors import KubeletError
from simulator.bitstreams import make_gbs
from simulator.card_faults import Fault
from simulator.cards import A10_INTERFACE, NLB0, CardSpec, Rack
from simulator.hanging import Hang
from simulator.kubelet.standin import KubeletStandIn
from tests.accelbind.running import plain_port, run_process
from tests.accelbind.running import run as command
from tests.plugin.support import Pods, running, settings
from tests.plugin.unprivileged import as_nobody, open_to_all
from tests.support import (
    REPOSITORY,
    accelbind_command,
    clean_environment,
    eventually_async,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def looked(folder: Path, mode: PluginMode = PluginMode.AF, **values: Any) -> dict[str, Result]:
    """What comes of all checks of a node, by id."""
    values = {"metrics_port": 1} | values
    options = settings(folder, mode, **values)
    checks = checks_of(NODE, Node(options, mode))
    return {result.id: result for result in run_checks(checks, 30)}


def told(result: Result) -> str:
    return "\n".join(f"{line.state}: {line.what} → {line.todo}" for line in result.lines)


def expect(folder: Path, check: str, state: str, *words: str, **values: Any) -> dict[str, Result]:
    """Has a check of a node find a state and say these words; every red line says what to do."""
    results = looked(folder, **values)
    text = told(results[check])
    assert (results[check].state, [word for word in words if word not in text]) == (state, []), text
    lines = [line for result in results.values() for line in result.lines]
    assert [line for line in lines if line.state is CheckStatus.FAILED and not line.todo] == []
    return results


@contextmanager
def listening(path: Path) -> Iterator[None]:
    """Somebody who listens on a unix socket and says nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(path))
        server.listen()
        yield


# A node that is well -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [PluginMode.AF, PluginMode.REGION, PluginMode.UNITS])
async def test_a_node_that_is_well_has_no_red_line(short_dir: Path, mode: PluginMode) -> None:
    rack = Rack(short_dir / "root")
    rack.add_card(CardSpec())
    rack.add_card(CardSpec(driver="opae"))
    (short_dir / "k/pod-logs").mkdir(parents=True)
    source = short_dir / "new.gbs"
    source.write_bytes(make_gbs(A10_INTERFACE, NLB0, b"raw"))
    BitstreamStorage(short_dir / "bitstreams").install(source)
    options = settings(short_dir, mode, cdi_dir=short_dir / "cdi", units=2)
    async with KubeletStandIn(short_dir / "k", node_name="n1") as kubelet, running(options, Pods()):
        await kubelet.until(lambda: [*kubelet.allocatable.values()] == [2])
        ports = short_dir / "ports"
        await eventually_async(ports.exists)
        port = json.loads(ports.read_text())["metrics"]
        flags: list[str | Path] = ["--root", short_dir / "root", "--kubelet-dir", short_dir / "k"]
        flags += ["--pod-logs-dir", short_dir / "k/pod-logs", "--cdi-dir", short_dir / "cdi"]
        flags += ["--metrics-host", "127.0.0.1", "--metrics-port", str(port), "--node"]
        flags += ["--bitstreams", short_dir / "bitstreams", "--state-dir", short_dir / "state"]
        flags += ["-o", "json"]
        done = await asyncio.to_thread(run_process, "doctor", *flags)
    assert done.stderr == ""
    document = json.loads(done.stdout)
    wrong = [each for each in document["checks"] if each["state"] not in {"ok", "skipped"}]
    assert wrong == []
    assert (done.returncode, document["ok"], document["counts"]["failed"]) == (0, True, 0)
    states = {each["id"]: each["state"] for each in document["checks"]}
    must_be_seen = {"kubelet", "plugin-sockets", "plugin", "devices", "permissions", "access"}
    if mode is not PluginMode.UNITS:
        must_be_seen |= {"driver", "cards", "device-nodes", "cdi", "bitstreams"}
    if mode is PluginMode.REGION:
        must_be_seen |= {"state-dir"}
    assert {states[f"node.{name}"] for name in must_be_seen} == {"ok"}
    assert all(
        set(each) == {"id", "title", "state", "seconds", "lines"} for each in document["checks"]
    )


# Cards -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "check", "words"),
    [
        (Fault.PORT_ERRORS, "node.cards", "clear-errors"),
        (Fault.AFU_ALL_F, "node.cards", "fpga program"),
        (Fault.AFU_MISSING, "node.cards", "fpga program"),
        (Fault.INTERFACE_EMPTY, "node.cards", "static image"),
        (Fault.FME_MISSING, "node.cards", "assign"),
        (Fault.AP2_EVENT, "node.cards", "fpga info"),
        (Fault.ENTRY_DANGLING, "node.cards", "dmesg"),
        (Fault.PORT_NODE_MISSING, "node.device-nodes", "udevadm"),
        (Fault.PORT_NODE_FOLDER, "node.device-nodes", "udevadm"),
        (Fault.FME_NODE_MISSING, "node.device-nodes", "udevadm"),
    ],
)
def test_what_is_wrong_with_a_card_is_a_red_line(
    short_dir: Path, fault: Fault, check: str, words: str
) -> None:
    rack = Rack(short_dir / "root")
    rack.add_card(CardSpec(driver="opae", faults=(fault,)))
    rack.add_card(CardSpec())
    results = expect(short_dir, check, "failed", words)
    other = "node.cards" if check == "node.device-nodes" else "node.device-nodes"
    assert (results[other].state, results["node.driver"].state) == ("ok", "ok"), "told once"


def test_a_card_that_hangs_is_a_red_line_and_hides_no_other(short_dir: Path) -> None:
    rack = Rack(short_dir / "root")
    hung = rack.add_card(CardSpec())
    rack.add_card(CardSpec())
    rack.hang(hung, Hang.AFU_READ)
    try:
        results = looked(short_dir)
    finally:
        rack.release(hung, Hang.AFU_READ)
    assert "check dmesg, then reset or reseat the card" in told(results["node.cards"])
    assert "ok: region2" in told(results["node.cards"])
    assert "2 cards" in told(results["node.driver"])


def test_a_node_without_driver_says_which_to_load(short_dir: Path) -> None:
    for folder in ("sys/bus/pci/devices", "sys/class", "dev"):
        (short_dir / "root" / folder).mkdir(parents=True)
    results = expect(short_dir, "node.driver", "failed", "modprobe dfl-pci")
    assert results["node.cards"].state is CheckStatus.SKIPPED
    expect(short_dir / "elsewhere", "node.driver", "failed", "--root")


def test_mode_units_needs_no_card(short_dir: Path) -> None:
    results = looked(short_dir, PluginMode.UNITS)
    skipped = ("node.driver", "node.cards", "node.device-nodes")
    assert {results[each].state for each in skipped} == {CheckStatus.SKIPPED}


# The kubelet -------------------------------------------------------------------------------------


def test_no_kubelet_is_said_with_where_it_was_looked_for(short_dir: Path) -> None:
    where = f"{short_dir}/k/device-plugins is not a directory"
    expect(short_dir, "node.kubelet", "failed", where)
    (short_dir / "k/device-plugins").mkdir(parents=True)
    results = expect(short_dir, "node.kubelet", "failed", "kubelet.sock does not exist")
    assert {
        name: results[f"node.{name}"].state.value for name in ("pod-resources", "checkpoint")
    } == {
        "pod-resources": "failed",
        "checkpoint": "skipped",
    }
    assert results["node.plugin-sockets"].state is CheckStatus.WARNING


def test_a_socket_that_a_kubelet_left_behind_is_known(short_dir: Path) -> None:
    path = short_dir / "k/device-plugins/kubelet.sock"
    with listening(path):
        expect(short_dir, "node.kubelet", "ok")
    expect(short_dir, "node.kubelet", "failed", "nothing listens on it")
    path.unlink()
    path.write_text("")
    expect(short_dir, "node.kubelet", "failed", "it is not a socket")


def test_plugins_that_serve_beside_ours_are_found(short_dir: Path) -> None:
    folder, check = short_dir / "k/device-plugins", "node.plugin-sockets"
    with (
        listening(folder / "accelbind-0123abcd-1.sock"),
        listening(folder / "accelbind-0123abcd-2.sock"),
    ):
        expect(short_dir, check, "ok", "2 sockets of one plugin")
        with listening(folder / "accelbind-ffffffff-1.sock"):
            expect(short_dir, check, "failed", "2 accelbind plugins")
        with listening(folder / "fpga.intel.com-region-ce48969398f05f33946d560708be108a.sock"):
            expect(short_dir, check, "failed", "another FPGA plugin", "docs/migration.md")
        expect(short_dir, check, "ok")  # it ended


@pytest.mark.parametrize(
    ("text", "state", "words"),
    [
        ('{"Data": {"PodDeviceEntries": null}}', "ok", "0 allocations"),
        ('{"Data": {"PodDeviceEntries": [', "failed", "is not a checkpoint"),
        ("[]", "failed", "is not a checkpoint"),
    ],
)
def test_a_checkpoint_is_read(short_dir: Path, text: str, state: str, words: str) -> None:
    path = short_dir / "k/device-plugins/kubelet_internal_checkpoint"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    expect(short_dir, "node.checkpoint", state, words)


def test_log_folders_need_not_exist_but_must_be_readable(short_dir: Path) -> None:
    logs, check = short_dir / "logs", "node.pod-logs"
    expect(short_dir, check, "ok", "pods are found by their devices", pod_logs_dir=logs)
    logs.touch()
    expect(short_dir, check, "warning", pod_logs_dir=logs)
    logs.unlink()
    (logs / "ns_pod_uid").mkdir(parents=True)
    expect(short_dir, check, "ok", "1 pod in", pod_logs_dir=logs)


# Files -------------------------------------------------------------------------------------------


def written_cdi(folder: Path, *, devices: bool = True) -> Path:
    """Our CDI file about the node of a folder."""
    root = folder / "root"
    tree = advertise(scan(root), PluginMode.AF) if devices else None
    text = describe(tree.devices() if tree else (), host_root=str(root)).content
    path = folder / "cdi/accelbind-fpga.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text)
    return path


def test_cdi_files_that_runtimes_would_refuse_are_red(short_dir: Path) -> None:
    Rack(short_dir / "root").add_card(CardSpec())
    cdi = short_dir / "cdi"

    def found(state: str, *words: str, **values: Any) -> None:
        expect(short_dir, "node.cdi", state, *words, cdi_dir=cdi, **values)

    found("skipped")
    found("failed", "accelbind-fpga.json", cdi=True)
    path = written_cdi(short_dir)
    found("ok", "1 device in 1 file", cdi=True)
    other = cdi / "intel.cdi.k8s.io-fpga-dfl-port.0.yaml"
    other.write_text("kind: intel.cdi.k8s.io/fpga\ndevices:\n- name: dfl-port.0\n")
    found("failed", "both define")
    other.write_text("kind: example.com/gpu\ndevices: 3\n")
    found("ok", "1 device in 1 file")  # of another kind
    other.write_text("kind: intel.cdi.k8s.io/fpga\ndevices: 3\n")
    found("failed", "is not a CDI file: Expected `array`")
    other.unlink()
    path.write_text('{"kind": ')
    found("failed")
    path.unlink()
    os.mkfifo(path)
    found("failed", "is not a file")


def test_bitstreams_are_read_and_missed(short_dir: Path) -> None:
    Rack(short_dir / "root").add_card(CardSpec())
    check, values = "node.bitstreams", {"mode": PluginMode.REGION}
    expect(short_dir, check, "skipped")
    expect(short_dir, check, "failed", "bitstream install", **values)
    none = {"programming": Programming.NONE}
    expect(short_dir, check, "skipped", **values, **none)
    (short_dir / "bitstreams").mkdir()
    expect(short_dir, check, "warning", A10_INTERFACE, **values)
    source = short_dir / "new.gbs"
    source.write_bytes(make_gbs(A10_INTERFACE, NLB0, b"raw"))
    place, _ = BitstreamStorage(short_dir / "bitstreams").install(source)
    expect(short_dir, check, "ok", "1 usable bitstream", **values)
    place.write_bytes(place.read_bytes()[:100])
    expect(short_dir, check, "failed", str(place), **values)


@pytest.mark.parametrize(
    ("make", "state", "words"),
    [
        (lambda _: None, "ok", "does not exist yet"),
        (lambda path: path.mkdir(mode=0o700), "ok", "only user"),
        (lambda path: (path.mkdir(), path.chmod(0o777)), "failed", "chmod 755"),
        (lambda path: path.write_text(""), "failed", "not a directory"),
        (lambda path: path.symlink_to("elsewhere"), "failed", "not a directory"),
    ],
)
def test_the_folder_of_locks_is_for_nobody_else(
    short_dir: Path, make: Callable[[Path], object], state: str, words: str
) -> None:
    make(short_dir / "state")
    expect(short_dir, "node.state-dir", state, words, mode=PluginMode.REGION)
    expect(short_dir, "node.state-dir", "skipped")


def test_the_hook_must_be_there_and_a_program(short_dir: Path) -> None:
    values: dict[str, Any] = {"programming": Programming.OCI_HOOK, "cdi_dir": short_dir / "cdi"}
    path = short_dir / "root/opt/accelbind/hook/accelbind-hook"
    expect(short_dir, "node.hook", "unseen", **values)  # as in a pod, which needs no such folder
    path.parent.mkdir(parents=True)
    expect(short_dir, "node.hook", "failed", "does not exist", **values)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o644)
    expect(short_dir, "node.hook", "failed", "can't be executed", **values)
    path.chmod(0o755)
    expect(short_dir, "node.hook", "ok", **values)
    expect(short_dir, "node.hook", "skipped")


# The plugin --------------------------------------------------------------------------------------

TABLE = {
    "node": "n1",
    "mode": "region",
    "devices": [
        {"device": "a", "resource": "r", "health": "Healthy"},
        {
            "device": "b",
            "resource": "r",
            "health": "Unhealthy",
            "reasons": [{"reason": "port-errors", "message": "it burns"}],
            "holders": [{"namespace": "ns", "pod": "train", "container": "c"}],
        },
    ],
}


def test_what_the_plugin_says_of_itself_counts(short_dir: Path) -> None:
    lacking = 'accelbind_permission_missing{path="/dev/x",permission="read and write"} 1.0\n'
    answers = {
        "/healthz": (503, b"r: no answer\n"),
        "/readyz": (503, b"not ready\nr waiting: the kubelet is away\n"),
        "/devices": (200, json.dumps(TABLE).encode()),
        "/metrics": (200, lacking.encode()),
    }
    with plain_port(answers) as port:
        words = ("the kubelet is away", "healthz: r: no answer")
        results = expect(short_dir, "node.plugin", "failed", *words, metrics_port=port)
        options = settings(short_dir, metrics_port=port)
        assert Node(options).mode is PluginMode.REGION
        assert Node(options, PluginMode.BDF).mode is PluginMode.BDF
    for name, found in (
        ("devices", "b of r (held by ns/train): it burns"),
        ("permissions", "/dev/x: the plugin has no permission to read and write"),
    ):
        assert results[f"node.{name}"].state is CheckStatus.FAILED
        assert found in told(results[f"node.{name}"])


def test_a_plugin_that_is_away_or_out_of_reach(short_dir: Path) -> None:
    results = expect(short_dir, "node.plugin", "failed")
    assert results["node.devices"].state is CheckStatus.UNSEEN
    with listening(short_dir / "k/device-plugins/accelbind-0123abcd-1.sock"):
        expect(short_dir, "node.plugin", "unseen", "kubectl exec")  # in a pod with its own address
    with plain_port({"/metrics": (200, b"{{{ 7 of 9")}) as port:
        results = expect(short_dir, "node.plugin", "failed", metrics_port=port)
        assert Node(settings(short_dir, metrics_port=port)).mode is PluginMode.AF
    assert results["node.permissions"].state is CheckStatus.UNSEEN


# Checks as such ----------------------------------------------------------------------------------


def crash() -> Iterator[Line]:
    yield ok("before")
    raise ZeroDivisionError("oh")


def refuse(error: Exception) -> Callable[[], list[Line]]:
    def look() -> list[Line]:
        raise error

    return look


def test_no_check_hides_another() -> None:
    for_ever = threading.Event()

    def hang() -> Iterator[Line]:
        yield ok("first")
        for_ever.wait()
        yield ok("after")

    denied = KubeletError("it can't be read")
    denied.__cause__ = PermissionError(13, "Permission denied", "/checkpoint")
    checks = [
        Check("a", "", hang),
        Check("b", "", crash),
        Check("c", "", lambda: [failed("x", "y")]),
        Check("d", "", refuse(KubeletError("no kubelet"))),
        Check("e", "", refuse(PermissionError(13, "Permission denied", "/secret"))),
        Check("f", "", refuse(OSError(5, "Input/output error", "/sys/x"))),
        Check("g", "", list),
        Check("h", "", lambda: [ok("x")] * 10_000),
        Check("i", "", hang, grows=True),
        Check("j", "", refuse(denied)),
    ]
    results = {result.id: result for result in run_checks(checks, 0.5)}
    for_ever.set()
    assert {key: result.state.value for key, result in results.items()} == {
        **dict.fromkeys("abcdefghij", "unseen"),
        **dict.fromkeys("acdf", "failed"),
        "g": "ok",
    }
    for key, words in {
        "a": "no answer within 0.5 s",
        "b": "ok: before",
        "e": "/secret: no permission",
        "f": "/sys/x: Input/output error",
        "i": "ok: first",
        "j": "/checkpoint: no permission",
    }.items():
        assert words in told(results[key])
    assert "internal error: ZeroDivisionError: oh" in told(results["b"])
    assert len(results["h"].lines) == 501


def test_what_several_need_is_made_once_and_fails_for_all() -> None:
    made: list[Subject] = []

    def make(subject: Subject) -> int:
        made.append(subject)
        return 7

    def fail(subject: Subject) -> int:
        make(subject)
        raise ValueError("again")

    subject = Subject()
    assert [subject.once(make), subject.once(make), made] == [7, 7, [subject]]
    for _ in range(2):
        with pytest.raises(ValueError, match="again"):
            subject.once(fail)
    assert len(made) == 2


# The command -------------------------------------------------------------------------------------


def test_a_checklist_tells_what_to_do(short_dir: Path) -> None:
    Rack(short_dir / "root").add_card(CardSpec(faults=(Fault.PORT_ERRORS,)))
    flags = ("--root", short_dir / "root", "--kubelet-dir", short_dir / "k", "--metrics-port", "1")
    done = command("doctor", *flags, "--only", "node.driver", "--only", "node.cards")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines() == [
        "ok       node.driver  Is the cards' driver loaded?",
        "         1 card with driver dfl",
        "FAILED   node.cards  Can all cards be read, and are they healthy?",
        "         failed: region0: errors/errors of dfl-port.0 reads 0x40",
        "         → accelbind fpga clear-errors PORT once it is unused; see what the workload did",
        "",
        "2 checks: 1 failed, 1 ok",
    ]
    done = command("doctor", *flags, "--only", "node.driver", "--skip", "node.cards")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "1 checks: 1 ok")


@pytest.mark.parametrize(
    "flags",
    [
        ("--node", "--only", "node.teeth"),
        ("--node", "--only", "node", "--skip", "node"),
        ("--node", "--mode", "fast"),
        ("--node", "--time-limit", "0"),
        ("--cluster", "--webhook-address", "there"),
        ("--cluster", "--webhook-address", "there:70000"),
        ("--teeth",),
    ],
)
def test_a_wrong_request_is_exit_code_2(
    flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", *flags]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_who_may_look_at_little_says_so(short_dir: Path) -> None:
    """An ordinary user: what can't be seen is not called wrong."""
    Rack(short_dir / "root").add_card(CardSpec())
    folder = short_dir / "k/device-plugins"
    with listening(folder / "kubelet.sock"):
        (folder / "kubelet_internal_checkpoint").write_text("{}")
        short_dir.chmod(0o755)
        open_to_all(short_dir)
        (folder / "kubelet_internal_checkpoint").chmod(0)
        (folder / "kubelet.sock").chmod(0)
        only = ("node.kubelet", "node.checkpoint", "node.access", "node.cards")
        flags = [flag for name in only for flag in ("--only", name)]
        flags += ["--root", str(short_dir / "root"), "--kubelet-dir", str(short_dir / "k")]
        command = accelbind_command("doctor", *flags, "-o", "json")
        done = subprocess.run(
            as_nobody(command, scratch=short_dir / "scratch"),
            cwd=REPOSITORY,
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    states = {each["id"]: each["state"] for each in json.loads(done.stdout)["checks"]}
    assert states == {
        "node.cards": "ok",
        "node.kubelet": "unseen",
        "node.checkpoint": "unseen",
        "node.access": "unseen",
    }
