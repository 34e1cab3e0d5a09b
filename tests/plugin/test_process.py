"""`accelbind plugin` as a process, against a kubelet stand-in in this one."""

import asyncio
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from simulator.cards import CardSpec, Rack
from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.support import AF, container, pod, start_plugin
from tests.support import Process, Processes, eventually_async


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


def resident_mib(process: Process) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text()
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
    plugin = start_plugin(processes, short_dir)
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
    assert (
        'accelbind_card_temperature_celsius{card="region0",sensor="dfl_fme_thermal temp1"}' in text
    )
    figure(f"resident {resident_mib(plugin):.1f} MiB")

    began = time.monotonic()
    assert await asyncio.to_thread(plugin.terminate) == 0
    figure(f"ended {time.monotonic() - began:.2f} s after SIGTERM")
    assert sockets(short_dir) == ["kubelet.sock"]
    await kubelet.until(lambda: kubelet.allocatable == {AF: 0})
    lines = [json.loads(line) for line in plugin.stderr.splitlines()]
    assert [line["event"] for line in lines][-1] == "plugin ended"
    assert not [line for line in lines if line["level"] == "error"]
    assert plugin.stderr.count("no access to the API server: --mode counts") == 1


def test_it_ends_though_a_scan_hangs_and_no_kubelet_is_there(
    short_dir: Path, processes: Processes
) -> None:
    script = """
import asyncio, sys, threading
from pathlib import Path
import plugin.process
from plugin.settings import PluginSettings
from services.devices.hardware import scan
scan.list_entries = lambda *_: print("hangs", flush=True) or threading.Event().wait()
folder = Path(sys.argv[1])
settings = PluginSettings(kubelet_dir=folder / "k", state_dir=folder / "state", metrics_port=0)
asyncio.run(plugin.process.run(settings))
"""
    process = processes.start([sys.executable, "-c", script, short_dir])
    process.wait_for_output("hangs")
    assert process.terminate() == 0
