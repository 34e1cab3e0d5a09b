"""`accelbind plugin` as a process, against a kubelet stand-in in this one."""

import asyncio
import json
import signal
import socket
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from services.devices.hardware.scan import scan
from services.devices.model import PluginMode
from services.devices.resources import advertise
from simulator.cards import CardSpec, Rack
from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.support import AF, REGION, container, pod
from tests.support import Process, Processes, eventually, eventually_async, require_shared

pytestmark = pytest.mark.anyio


def start(processes: Processes, folder: Path, *flags: str | Path) -> Process:
    """Starts the plugin on the rack in `root` and the kubelet in `k`; ioctls are simulated."""
    return processes.simulated_plugin(
        *("--root", folder / "root", "--kubelet-dir", folder / "k"),
        *("--node-name", "n1", "--metrics-host", "127.0.0.1", "--metrics-port", "0"),
        *("--ports-file", folder / "ports", "--scan-interval", "0.1", "--log-format", "json"),
        *("--state-dir", folder / "state"),
        *flags,
    )


async def ended(process: Process) -> int:
    return await asyncio.to_thread(process.wait)


def get(folder: Path, path: str) -> tuple[int, str]:
    port = json.loads((folder / "ports").read_text())["metrics"]
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def sockets(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "k/device-plugins").glob("*.sock"))


def proc(process: Process, file: str) -> str:
    return Path(f"/proc/{process.pid}/{file}").read_text()


def resident_mib(process: Process) -> float:
    status = proc(process, "status")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


async def test_from_start_to_sigterm(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    processes: Processes,
    figure: Callable[[str], None],
) -> None:
    rack.add_card(CardSpec(driver="opae", numa_node=1))
    rack.add_card(CardSpec(driver="dfl", numa_node=0))
    began = time.monotonic()
    plugin = start(processes, short_dir)
    await kubelet.until(lambda: kubelet.allocatable == {AF: 2})
    figure(f"registered {time.monotonic() - began:.2f} s after its start")

    admitted = await kubelet.settled(await kubelet.admit(pod("p", container("c", AF, 2))))
    assert admitted["c"].running
    assert sorted(each.host_path for each in admitted["c"].granted.devices) == [
        f"{short_dir}/root/dev/dfl-port.0",
        f"{short_dir}/root/dev/intel-fpga-port.0",
    ]

    await kubelet.restart()
    assert kubelet.capacity == {AF: 0}
    began = time.monotonic()
    await kubelet.until(lambda: kubelet.allocatable == {AF: 2})
    figure(f"registered again {time.monotonic() - began:.3f} s after a restart of the kubelet")
    assert kubelet.in_use(AF) == {"dfl-port.0", "intel-fpga-port.0"}

    await eventually_async(lambda: asyncio.to_thread(lambda: get(short_dir, "/readyz")[0] == 200))
    assert (await asyncio.to_thread(get, short_dir, "/healthz"))[0] == 200
    _, text = await asyncio.to_thread(get, short_dir, "/metrics")
    assert f'accelbind_devices{{health="Healthy",reason="",resource="{AF}"}} 2.0' in text
    assert f'accelbind_registrations_total{{outcome="ok",resource="{AF}"}} 2.0' in text
    assert f'accelbind_allocations_total{{outcome="given",resource="{AF}"}} 1.0' in text
    assert 'accelbind_build_info{component="plugin"' in text
    figure(f"resident {resident_mib(plugin):.1f} MiB")

    began = time.monotonic()
    plugin.popen.send_signal(signal.SIGTERM)
    assert await ended(plugin) == 0
    figure(f"ended {time.monotonic() - began:.2f} s after SIGTERM")
    assert sockets(short_dir) == ["kubelet.sock"]
    await kubelet.until(lambda: kubelet.allocatable == {AF: 0})
    lines = [json.loads(line) for line in plugin.stderr.splitlines()]
    assert [line["event"] for line in lines][-1] == "plugin ended"
    assert not [line for line in lines if line["level"] == "error"]


async def test_memory_is_the_same_with_64_cards(
    short_dir: Path,
    rack: Rack,
    kubelet: KubeletStandIn,
    processes: Processes,
    figure: Callable[[str], None],
) -> None:
    for number in range(64):
        rack.add_card(CardSpec(driver="dfl" if number % 2 else "opae"))
    began = time.monotonic()
    plugin = start(processes, short_dir)
    await kubelet.until(lambda: kubelet.allocatable == {AF: 64})
    figure(f"64 cards registered {time.monotonic() - began:.2f} s after its start")
    resident = resident_mib(plugin)
    figure(f"resident with 64 cards {resident:.1f} MiB")
    assert resident < 96


async def test_interrupting_it_is_as_good(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn, processes: Processes
) -> None:
    rack.add_card(CardSpec())
    plugin = start(processes, short_dir)
    await kubelet.until(lambda: kubelet.allocatable == {AF: 1})
    plugin.popen.send_signal(signal.SIGINT)
    assert await ended(plugin) == 0
    assert sockets(short_dir) == ["kubelet.sock"]


async def test_killed_and_started_again_it_offers_the_same_and_leaves_no_socket(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn, processes: Processes
) -> None:
    rack.add_card(CardSpec())
    first = start(processes, short_dir)
    await kubelet.until(lambda: kubelet.allocatable == {AF: 1})
    admitted = await kubelet.settled(await kubelet.admit(pod("p", container("c", AF))))
    await asyncio.to_thread(first.kill)
    await kubelet.until(lambda: kubelet.allocatable == {AF: 0})
    stale = sockets(short_dir)
    assert len(stale) == 2
    start(processes, short_dir)
    await kubelet.until(lambda: kubelet.allocatable == {AF: 1})
    assert set(sockets(short_dir)) & set(stale) == {"kubelet.sock"}
    assert len(sockets(short_dir)) == 2
    assert admitted["c"].running
    assert kubelet.in_use(AF) == {"dfl-port.0"}


async def test_a_second_plugin_on_a_node_waits_until_the_first_has_ended(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn, processes: Processes
) -> None:
    rack.add_card(CardSpec())
    first = start(processes, short_dir)
    await kubelet.until(lambda: kubelet.allocatable == {AF: 1})
    before = sockets(short_dir)
    second = start(processes, short_dir)
    await asyncio.to_thread(second.wait_for_output, "another accelbind plugin serves on this node")
    assert sockets(short_dir) == before
    first.popen.kill()  # not in a thread: the second one might serve before that tells of its end
    await kubelet.until(lambda: kubelet.allocatable == {AF: 0})
    await kubelet.until(lambda: kubelet.allocatable == {AF: 1})
    assert len(sockets(short_dir)) == 2
    assert set(sockets(short_dir)) & set(before) == {"kubelet.sock"}


def test_it_ends_though_a_scan_hangs_and_no_kubelet_is_there(
    short_dir: Path, processes: Processes
) -> None:
    script = """
import asyncio, sys, threading
from pathlib import Path
import plugin.app
from plugin.settings import PluginSettings
from services.devices.hardware.scan import Scanner
Scanner.scan = lambda scanner: print("hangs", flush=True) or threading.Event().wait()
folder = Path(sys.argv[1])
settings = PluginSettings(kubelet_dir=folder / "k", metrics_port=0)
asyncio.run(plugin.app.run(settings))
"""
    process = processes.start([sys.executable, "-c", script, short_dir])
    process.wait_for_output("hangs")
    assert process.terminate(timeout=60) == 0


def test_a_kubelet_that_is_away_is_said_once(
    short_dir: Path, rack: Rack, processes: Processes
) -> None:
    rack.add_card(CardSpec())
    plugin = start(processes, short_dir)
    plugin.wait_for_output("kubelet is away: waiting for its socket")
    plugin.ports(short_dir / "ports")
    assert get(short_dir, "/healthz")[0] == 200
    eventually(lambda: "waits for" in get(short_dir, "/readyz")[1])
    status, text = get(short_dir, "/readyz")
    assert status == 503
    assert AF in text
    assert plugin.terminate() == 0
    assert plugin.stderr.count("kubelet is away") == 1


def test_region_mode_without_the_api_server_says_what_to_set(
    short_dir: Path, rack: Rack, processes: Processes
) -> None:
    rack.add_card(CardSpec())
    plugin = start(processes, short_dir, "--mode", "region")
    plugin.wait_for_output("no access to the API server: in region mode no container will start")
    plugin.wait_for_output(REGION)
    assert plugin.terminate() == 0


@pytest.mark.parametrize(
    ("flags", "code", "text"),
    [
        (["--mode", "fpga"], 2, "error: --mode: must be 'af'"),
        (["--units", "0"], 2, "error: --units"),
        (["--kubelet-dir", "/tmp/" + "d" * 90], 1, "too long for a unix socket's path"),
        (["--mode", "region", "--kubeconfig", "/gone"], 1, "error: kubeconfig /gone can't be used"),
        (["--metrics-port", "{port}"], 1, "error: can't listen on 127.0.0.1:{port}"),
        (["--ports-file", "/gone/ports"], 1, "error: can't write the ports file /gone/ports"),
    ],
)
def test_what_stands_in_the_way_of_a_start_is_one_line(
    short_dir: Path, processes: Processes, flags: list[str], code: int, text: str
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        plugin = start(processes, short_dir, *(each.replace("{port}", port) for each in flags))
        assert plugin.wait() == code
    errors = [line for line in plugin.stderr.splitlines() if not line.startswith("{")]
    assert len(errors) == 1
    assert text.replace("{port}", port) in errors[0]


def test_the_settings_that_count_can_be_seen(processes: Processes, short_dir: Path) -> None:
    plugin = start(processes, short_dir, "--print-config", "--units", "7")
    assert plugin.wait() == 0
    assert "units: 7" in plugin.stdout
    assert "# --units" in plugin.stdout


SNAPSHOTS = [
    "mock_sys_dfl_n3000_nlb0",
    "mock_sys_dfl_n6000_sku0_nlb0",
    "mock_sys_tmp-1socket-nlb0",
    "mock_sys_tmp-dcp-rc-nlb3",
]


@pytest.mark.parametrize("name", SNAPSHOTS)
async def test_a_real_cards_snapshot_is_offered_or_the_reason_given(
    name: str, short_dir: Path, kubelet: KubeletStandIn, processes: Processes
) -> None:
    archive = require_shared("hardware", f"{name}.tar.gz")
    with tarfile.open(archive) as opened:
        # They hold links to absolute paths, which discovery must not follow out of the root.
        opened.extractall(short_dir / "snapshot", filter="fully_trusted")  # noqa: S202 - ours
    root = short_dir / "snapshot/tmp"
    plugin = start(processes, short_dir, "--root", root)
    tree = advertise(scan(root), PluginMode.AF)
    wanted = {
        resource: sum(device.healthy for device in devices.values())
        for resource, devices in tree.resources.items()
    }
    await asyncio.to_thread(plugin.ports, short_dir / "ports")
    await eventually_async(lambda: asyncio.to_thread(lambda: get(short_dir, "/readyz")[0] == 200))
    await kubelet.until(lambda: kubelet.allocatable == wanted)
    reasons = [problem.message for device in tree.not_offered for problem in device.reasons]
    assert wanted or reasons
    for reason in reasons:
        plugin.wait_for_output(json.dumps(reason)[1:-1])
