"""`accelbind devices` as a process: with a plugin and without, on all that may be missing."""

import asyncio
import json
import signal
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from accelbind.devices import show
from services.containers import holder_source
from services.containers.holders import Holder
from services.node.table import Row, Table
from services.process.problem import Problem
from simulator.card_faults import Fault
from simulator.cards import NLB0, CardSpec, Rack
from simulator.devices import DeviceTree
from simulator.kubelet.standin import KubeletStandIn
from tests.accelbind.running import Done, plain_port, run, run_process
from tests.plugin.support import AF, container, pod, running, settings
from tests.recorded import CLAIM, with_claim
from tests.services.devices.types.making import document
from tests.support import REPOSITORY, Processes, eventually_async


def ask(*flags: str | Path, env: dict[str, str] | None = None) -> Done:
    return run("devices", *flags, env=env)


def here(folder: Path, *more: str | Path) -> list[str | Path]:
    return ["--root", folder / "root", "--kubelet-dir", folder / "k", *more]


def asked_json(*flags: str | Path, env: dict[str, str] | None = None) -> dict[str, Any]:
    done = ask(*flags, "-o", "json", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_node_without_plugin_is_read_from_its_files(short_dir: Path) -> None:
    rack = Rack(short_dir / "root")
    rack.add_card(CardSpec(numa_node=1))
    rack.add_card(CardSpec(driver="opae", numa_node=None, faults=(Fault.PORT_ERRORS,)))
    with closing(socket.socket()) as silent:  # bound, and not listening
        silent.bind(("127.0.0.1", 0))
        free_port = silent.getsockname()[1]
        done = ask(*here(short_dir), "--metrics-port", str(free_port))
    assert done.returncode == 0
    head, first, second = done.stdout.splitlines()
    assert head.split() == list(show.TITLES)
    assert first.split()[:9] == [
        *("dfl-port.0", AF, "-", "region0", rack.addresses[0], "1"),
        *(f"ce48969398f05f33946d560708be108a/{NLB0}", "/dev/dfl-port.0", "Healthy"),
    ]
    assert second.split()[5] == "-"
    assert "Unhealthy" in second
    assert second.endswith("errors/errors of intel-fpga-port.0 reads 0x40")
    assert f"no plugin answers on localhost:{free_port}" in done.stderr
    assert "cannot tell which pods hold devices" in done.stderr


def test_a_claim_has_a_device(short_dir: Path) -> None:
    Rack(short_dir / "root").add_card(CardSpec())
    book = with_claim(short_dir / "state")
    flags = here(short_dir, "--files", "--mode", "region", "--state-dir", short_dir / "state")
    (device,) = asked_json(*flags)["devices"]
    assert device["device"] == "dfl-fme.0"
    assert device["holders"] == [
        {"namespace": "team-a", "pod": "", "container": "", "claim": "mine", "share": ""}
    ]
    assert "claim team-a/mine" in ask(*flags).stdout
    book.path(CLAIM).write_text("{")
    assert f"{book.path(CLAIM)} can't be read" in ask(*flags).stderr


def test_the_settings_of_the_plugins_pod_count(short_dir: Path) -> None:
    Rack(short_dir / "root").add_card(CardSpec(faults=(Fault.PORT_ERRORS,)))
    env = {
        "ACCELBIND_ROOT": str(short_dir / "root"),
        "ACCELBIND_MODE": "region",
        "ACCELBIND_IGNORE_ERRORS": "port-errors=0x40",
    }
    (device,) = asked_json("--files", "--kubelet-dir", short_dir / "k", env=env)["devices"]
    assert (device["device"], device["health"]) == ("dfl-fme.0", "Healthy")


def test_logical_names_are_shown_where_mappings_are_given(short_dir: Path) -> None:
    Rack(short_dir / "root").add_card(CardSpec())
    flags = here(short_dir, "--files", "--mappings", REPOSITORY / "examples/mappings")
    (device,) = asked_json(*flags)["devices"]
    assert device["names"]
    done = ask(*flags)
    assert f"/{NLB0} ({','.join(device['names'])})" in done.stdout


async def test_a_running_plugin_is_asked_and_init_containers_are_holders(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holder_source, "RENEW_SECONDS", 0.1)
    rack = Rack(short_dir / "root")
    for _ in range(2):
        rack.add_card(CardSpec())
    async with (
        KubeletStandIn(short_dir / "k", node_name="n1", retry_seconds=0.05) as kubelet,
        running(settings(short_dir)),
    ):
        await kubelet.until(lambda: kubelet.allocatable == {AF: 2})
        spec = pod("p", container("c", AF), init=[container("i", AF, 2)])
        await kubelet.settled(await kubelet.admit(spec))
        port = str(json.loads((short_dir / "ports").read_text())["metrics"])

        async def with_holders() -> dict[str, Any] | None:
            told = await asked_by_process("--metrics-port", port)
            return told if told["devices"][0]["holders"] else None

        told = await eventually_async(with_holders)  # the plugin's answer may be a second old
        assert (told["source"], told["node"], told["problems"]) == ("plugin", "n1", [])
        own = {"namespace": "ns", "pod": "p", "claim": "", "share": ""}
        held = [each["holders"] for each in told["devices"]]
        assert {"container": "i", **own} in held[0]
        assert {"container": "i", **own} in held[1]
        assert sum({"container": "c", **own} in each for each in held) == 1
        # What was asked for and the plugin doesn't serve is read from the files.
        flags = here(short_dir, "--pod-logs-dir", short_dir / "k/pod-logs", "--metrics-port", port)
        other = await asked_by_process(*flags, "--mode", "bdf")
        assert other["source"] == "files"
        assert "has --mode af" in other["problems"][0]
        byfile = await asked_by_process(*flags, "--files")
        assert byfile["devices"] == told["devices"]


async def asked_by_process(*flags: str | Path) -> dict[str, Any]:
    """What a process prints, since stand-ins of this one log to its stdout."""
    done = await asyncio.to_thread(run_process, "devices", *flags, "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (200, b'{"devices": 7}', "is not a plugin (200)"),
        (
            503,
            msgspec.json.encode(Table(problems=("the first scan is under way",))),
            "has no devices yet: the first scan is under way",
        ),
    ],
)
def test_answers_of_other_servers_or_unready_plugins_are_ignored(
    short_dir: Path, status: int, body: bytes, why: str
) -> None:
    Rack(short_dir / "root").add_card(CardSpec())
    with plain_port({"/devices": (status, body)}) as port:
        flags = ["--metrics-host", "127.0.0.1", "--metrics-port", str(port)]
        told = asked_json(*here(short_dir), *flags)
    assert told["source"] == "files"
    assert why in told["problems"][0]
    assert len(told["devices"]) == 1


def test_texts_from_elsewhere_are_shown_on_one_line() -> None:
    row = Row("a\x1b[2Jb", reasons=(Problem("r", "x\ny"),), holders=(Holder("", "", "c"),))
    head, line = show.lines(Table(devices=(row,)))
    assert "\x1b" not in line
    assert "\n" not in line
    assert line.split()[-5:] == ["?", "c", "not", "offered:", "x\\ny"]
    assert head.split()[0] == "DEVICE"


# --watch -----------------------------------------------------------------------------------------


def test_the_table_is_printed_again_after_each_change(
    short_dir: Path, processes: Processes
) -> None:
    rack = Rack(short_dir / "root")
    address = rack.add_card(CardSpec())
    flags = here(short_dir, "--files", "--watch", "--interval", "0.1")
    process = processes.accelbind("devices", *flags)
    process.wait_for_output("DEVICE")
    rack.break_(address, Fault.PORT_ERRORS)
    process.wait_for_output("reads 0x40")
    process.popen.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert "Traceback" not in process.stderr
    assert "\x1b" not in process.stdout, "only a terminal is cleared"
    assert process.stdout.count("DEVICE") >= 2


def test_device_types_show_what_they_would_serve(tmp_path: Path) -> None:
    tree = DeviceTree(tmp_path / "root")
    for address, driver in (("0000:b1:00.5", "qat"), ("0000:b1:00.6", "other")):
        folder = tree.pci(address, "8086:bccf", numa_node=1)
        tree.bind(folder, driver)
        tree.entry(folder, "xdma", f"xdma{address[-1]}", f"239:{address[-1]}")
    types = tmp_path / "types"
    types.mkdir()
    match = [{"pci": {"vendor": ["8086"], "driver": ["qat"]}}]
    spec = {"match": match, "nodes": [{"class": "xdma"}]}
    (types / "t.yaml").write_text(json.dumps(document(spec)))
    (types / "bent.yaml").write_text("kind: x")
    kubelet = tmp_path / "kubelet"
    done = run(
        *("devices", "--device-types", types, "--mode", "none", "--root", tree.root),
        *("--kubelet-dir", kubelet, "-o", "json"),
    )
    table = json.loads(done.stdout)
    served, near = sorted(table["devices"], key=lambda row: str(row["device"]))
    assert (served["resource"], served["health"]) == ("device.accelbind.dev/t", "Healthy")
    assert (served["type"], served["numaNode"], served["nodes"]) == ("t", 1, ["/dev/xdma5"])
    assert near["reasons"] == [
        {"reason": "not-matched", "message": "it is bound to other, not to qat"}
    ]
    assert near["resource"] == ""
    assert any(each.startswith("bent.yaml, line 1: ") for each in table["problems"])
    own = run(
        "devices", "--device-types", types, "--mode", "none", "--root", tree.root, "-o", "json"
    )
    assert json.loads(own.stdout)["kubeletDir"] == f"{tree.root}/var/lib/kubelet"
