"""`accelbind doctor` on synthetic nodes: what is well, and each thing that isn't."""

import asyncio
import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
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
from tests.accelbind.running import run as command
from tests.accelbind.running import run_process
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


def assert_red_lines_say_what_to_do(results: dict[str, Result]) -> None:
    lines = [line for result in results.values() for line in result.lines]
    assert [line for line in lines if line.state is CheckStatus.FAILED and not line.todo] == []


@contextmanager
def listening(path: Path) -> Iterator[None]:
    """Somebody who listens on a unix socket and says nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(path))
        server.listen()
        yield


@contextmanager
def plain_port(answers: dict[str, tuple[int, str]]) -> Iterator[int]:
    """Something that answers on a plain port; others than these paths with 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = answers.get(self.path, (404, "not found\n"))
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


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
        flags: list[str | Path] = [
            "--root",
            short_dir / "root",
            "--kubelet-dir",
            short_dir / "k",
            "-o",
            "json",
        ]
        flags += ["--pod-logs-dir", short_dir / "k/pod-logs", "--cdi-dir", short_dir / "cdi"]
        flags += ["--metrics-host", "127.0.0.1", "--metrics-port", str(port), "--node"]
        flags += ["--bitstreams", short_dir / "bitstreams", "--state-dir", short_dir / "state"]
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
    results = looked(short_dir)
    assert results[check].state is CheckStatus.FAILED
    assert words in told(results[check])
    other = "node.cards" if check == "node.device-nodes" else "node.device-nodes"
    assert results[other].state is CheckStatus.OK, "a fault is told once"
    assert results["node.driver"].state is CheckStatus.OK
    assert_red_lines_say_what_to_do(results)


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
    results = looked(short_dir)
    assert "modprobe dfl-pci" in told(results["node.driver"])
    assert results["node.driver"].state is CheckStatus.FAILED
    assert results["node.cards"].state is CheckStatus.SKIPPED
    assert "--root" in told(looked(short_dir / "elsewhere")["node.driver"])


def test_mode_units_needs_no_card(short_dir: Path) -> None:
    results = looked(short_dir, PluginMode.UNITS)
    skipped = ("node.driver", "node.cards", "node.device-nodes")
    assert {results[each].state for each in skipped} == {CheckStatus.SKIPPED}


# The kubelet -------------------------------------------------------------------------------------


def test_no_kubelet_is_said_with_where_it_was_looked_for(short_dir: Path) -> None:
    results = looked(short_dir)
    assert f"{short_dir}/k/device-plugins is not a directory" in told(results["node.kubelet"])
    (short_dir / "k/device-plugins").mkdir(parents=True)
    results = looked(short_dir)
    assert "kubelet.sock does not exist" in told(results["node.kubelet"])
    assert results["node.pod-resources"].state is CheckStatus.FAILED
    assert results["node.checkpoint"].state is CheckStatus.SKIPPED
    assert results["node.plugin-sockets"].state is CheckStatus.WARNING
    assert_red_lines_say_what_to_do(results)


def test_a_socket_that_a_kubelet_left_behind_is_known(short_dir: Path) -> None:
    path = short_dir / "k/device-plugins/kubelet.sock"
    with listening(path):
        assert looked(short_dir)["node.kubelet"].state is CheckStatus.OK
    assert "nothing listens on it" in told(looked(short_dir)["node.kubelet"])
    path.unlink()
    path.write_text("")
    assert "it is not a socket" in told(looked(short_dir)["node.kubelet"])


def test_plugins_that_serve_beside_ours_are_found(short_dir: Path) -> None:
    folder = short_dir / "k/device-plugins"
    with (
        listening(folder / "accelbind-0123abcd-1.sock"),
        listening(folder / "accelbind-0123abcd-2.sock"),
    ):
        assert "2 sockets of one plugin" in told(looked(short_dir)["node.plugin-sockets"])
        with listening(folder / "accelbind-ffffffff-1.sock"):
            result = looked(short_dir)["node.plugin-sockets"]
            assert (result.state, "2 accelbind plugins" in told(result)) == (
                CheckStatus.FAILED,
                True,
            )
        public = folder / "fpga.intel.com-region-ce48969398f05f33946d560708be108a.sock"
        with listening(public):
            result = looked(short_dir)["node.plugin-sockets"]
            assert "another FPGA plugin" in told(result)
            assert "docs/migration.md" in told(result)
        assert looked(short_dir)["node.plugin-sockets"].state is CheckStatus.OK, "it ended"


@pytest.mark.parametrize(
    ("text", "state", "words"),
    [
        ('{"Data": {"PodDeviceEntries": null}}', CheckStatus.OK, "0 allocations"),
        ('{"Data": {"PodDeviceEntries": [', CheckStatus.FAILED, "is not a checkpoint"),
        ("", CheckStatus.FAILED, "is not a checkpoint"),
        ("[]", CheckStatus.FAILED, "is not a checkpoint"),
    ],
)
def test_a_checkpoint_is_read(short_dir: Path, text: str, state: CheckStatus, words: str) -> None:
    path = short_dir / "k/device-plugins/kubelet_internal_checkpoint"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    result = looked(short_dir)["node.checkpoint"]
    assert (result.state, words in told(result)) == (state, True)


def test_log_folders_need_not_exist_but_must_be_readable(short_dir: Path) -> None:
    def result() -> Result:
        return looked(short_dir, pod_logs_dir=short_dir / "logs")["node.pod-logs"]

    assert "pods are found by their devices" in told(result())
    (short_dir / "logs").touch()
    assert result().state is CheckStatus.WARNING
    (short_dir / "logs").unlink()
    (short_dir / "logs/ns_pod_uid").mkdir(parents=True)
    assert "1 pod in" in told(result())


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
    rack = Rack(short_dir / "root")
    address = rack.add_card(CardSpec())
    cdi = short_dir / "cdi"
    assert looked(short_dir, cdi_dir=cdi)["node.cdi"].state is CheckStatus.SKIPPED
    result = looked(short_dir, cdi_dir=cdi, cdi=True)["node.cdi"]
    assert (result.state, "accelbind-fpga.json" in told(result)) == (CheckStatus.FAILED, True)
    path = written_cdi(short_dir)
    assert "1 device in 1 file" in told(looked(short_dir, cdi_dir=cdi, cdi=True)["node.cdi"])
    other = cdi / "intel.cdi.k8s.io-fpga-dfl-port.0.yaml"
    other.write_text("kind: intel.cdi.k8s.io/fpga\ndevices:\n- name: dfl-port.0\n")
    assert "both define" in told(looked(short_dir, cdi_dir=cdi)["node.cdi"])
    other.unlink()
    rack.break_(address, Fault.PORT_NODE_MISSING)
    assert "/dev/dfl-port.0, which does not exist" in told(
        looked(short_dir, cdi_dir=cdi)["node.cdi"]
    )
    path.write_text('{"kind": ')
    assert looked(short_dir, cdi_dir=cdi)["node.cdi"].state is CheckStatus.FAILED
    path.unlink()
    os.mkfifo(path)
    assert "is not a file" in told(looked(short_dir, cdi_dir=cdi)["node.cdi"])


def test_bitstreams_are_read_and_missed(short_dir: Path) -> None:
    Rack(short_dir / "root").add_card(CardSpec())
    region = PluginMode.REGION
    assert looked(short_dir)["node.bitstreams"].state is CheckStatus.SKIPPED
    missing = looked(short_dir, region)["node.bitstreams"]
    assert (missing.state, "bitstream install" in told(missing)) == (CheckStatus.FAILED, True)
    (short_dir / "bitstreams").mkdir()
    without = looked(short_dir, region)["node.bitstreams"]
    assert (without.state, A10_INTERFACE in told(without)) == (CheckStatus.WARNING, True)
    source = short_dir / "new.gbs"
    source.write_bytes(make_gbs(A10_INTERFACE, NLB0, b"raw"))
    place, _ = BitstreamStorage(short_dir / "bitstreams").install(source)
    good = looked(short_dir, region)["node.bitstreams"]
    assert (good.state, "1 usable bitstream" in told(good)) == (CheckStatus.OK, True)
    place.write_bytes(place.read_bytes()[:100])
    broken = looked(short_dir, region)["node.bitstreams"]
    assert (broken.state, str(place) in told(broken)) == (CheckStatus.FAILED, True)
    none = looked(short_dir / "x", region, programming=Programming.NONE)["node.bitstreams"]
    assert none.state is CheckStatus.SKIPPED


@pytest.mark.parametrize(
    ("make", "state", "words"),
    [
        (lambda _: None, CheckStatus.OK, "does not exist yet"),
        (lambda path: path.mkdir(mode=0o700), CheckStatus.OK, "only user"),
        (lambda path: (path.mkdir(), path.chmod(0o777)), CheckStatus.FAILED, "chmod 755"),
        (lambda path: path.write_text(""), CheckStatus.FAILED, "not a directory"),
        (lambda path: path.symlink_to("elsewhere"), CheckStatus.FAILED, "not a directory"),
    ],
)
def test_the_folder_of_locks_is_for_nobody_else(
    short_dir: Path, make: Callable[[Path], object], state: CheckStatus, words: str
) -> None:
    make(short_dir / "state")
    result = looked(short_dir, PluginMode.REGION)["node.state-dir"]
    assert (result.state, words in told(result)) == (state, True)
    assert looked(short_dir)["node.state-dir"].state is CheckStatus.SKIPPED


def test_the_hook_must_be_there_and_a_programme(short_dir: Path) -> None:
    values: dict[str, Any] = {"programming": Programming.OCI_HOOK, "cdi_dir": short_dir / "cdi"}
    path = short_dir / "root/opt/accelbind/hook/accelbind-hook"
    unmounted = looked(short_dir, **values)["node.hook"]
    assert unmounted.state is CheckStatus.UNSEEN, (
        "as in a pod, which needs none of the host's folder"
    )
    path.parent.mkdir(parents=True)
    assert "does not exist" in told(looked(short_dir, **values)["node.hook"])
    path.write_text("#!/bin/sh\n")
    path.chmod(0o644)
    assert "can't be executed" in told(looked(short_dir, **values)["node.hook"])
    path.chmod(0o755)
    assert looked(short_dir, **values)["node.hook"].state is CheckStatus.OK
    assert looked(short_dir)["node.hook"].state is CheckStatus.SKIPPED


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
    answers = {
        "/healthz": (503, "r: no answer\n"),
        "/readyz": (503, "not ready\nr waiting: the kubelet is away\n"),
        "/devices": (200, json.dumps(TABLE)),
        "/metrics": (
            200,
            'accelbind_permission_missing{path="/dev/x",permission="read and write"} 1.0\n',
        ),
    }
    with plain_port(answers) as port:
        results = looked(short_dir, metrics_port=port)
        options = settings(short_dir, metrics_port=port)
        assert Node(options).mode is PluginMode.REGION
        assert Node(options, PluginMode.BDF).mode is PluginMode.BDF
    assert "the kubelet is away" in told(results["node.plugin"])
    assert "healthz: r: no answer" in told(results["node.plugin"])
    assert "b of r (held by ns/train): it burns" in told(results["node.devices"])
    assert "/dev/x: the plugin has no permission to read and write" in told(
        results["node.permissions"]
    )
    failing = ("node.plugin", "node.devices", "node.permissions")
    assert {results[each].state for each in failing} == {CheckStatus.FAILED}
    assert_red_lines_say_what_to_do(results)


def test_a_plugin_that_is_away_or_out_of_reach(short_dir: Path) -> None:
    results = looked(short_dir)
    assert (results["node.plugin"].state, results["node.devices"].state) == (
        CheckStatus.FAILED,
        CheckStatus.UNSEEN,
    )
    with listening(short_dir / "k/device-plugins/accelbind-0123abcd-1.sock"):
        result = looked(short_dir)["node.plugin"]
    assert result.state is CheckStatus.UNSEEN, "it runs, in a pod with an address of its own"
    assert "kubectl exec" in told(result)
    with plain_port({"/metrics": (200, "{{{ 7 of 9")}) as port:
        results = looked(short_dir, metrics_port=port)
        assert Node(settings(short_dir, metrics_port=port)).mode is PluginMode.AF
    assert results["node.permissions"].state is CheckStatus.UNSEEN
    assert results["node.plugin"].state is CheckStatus.FAILED


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
    states = {key: result.state.value for key, result in results.items()}
    assert "".join(states) == "abcdefghij"
    assert [*states.values()] == [
        *("failed", "unseen", "failed", "failed", "unseen", "failed", "ok", "unseen"),
        *("unseen", "unseen"),
    ]
    assert "/checkpoint: no permission" in told(results["j"])
    assert "ok: first" in told(results["i"]), "what was seen before is told"
    assert "no answer within 0.5 s" in told(results["a"])
    assert "ok: before" in told(results["b"])
    assert "internal error: ZeroDivisionError: oh" in told(results["b"])
    assert "/secret: no permission" in told(results["e"])
    assert "/sys/x: Input/output error" in told(results["f"])
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
    done = command(
        "doctor", *flags, "--only", "node.driver", "--only", "node.cards", "--skip", "node.cards"
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "1 checks: 1 ok")


@pytest.mark.parametrize(
    "flags",
    [
        ("--node", "--only", "node.teeth"),
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
