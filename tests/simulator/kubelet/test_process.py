"""The stand-in as a process of its own."""

import json
import os
import signal
from pathlib import Path

import pytest

from services.kubelet.sockets import registration_socket
from tests.simulator.kubelet.fake_plugin import FakePlugin, devices
from tests.simulator.kubelet.test_registration import names
from tests.support import Process, Processes, eventually, eventually_async, python_module

pytestmark = pytest.mark.anyio


def start(processes: Processes, folder: Path, *flags: str | Path) -> Process:
    ready = folder / "ready.json"
    command = python_module(
        "simulator.kubelet", "--dir", folder, "--node-name", "n1", "--ready-file", ready, *flags
    )
    process = processes.start(command, name="kubelet")

    def is_ready() -> bool:
        process.assert_running()
        return ready.exists()

    eventually(is_ready, what="the ready file")
    assert json.loads(ready.read_text()) == {"node": "n1", "dir": str(folder)}
    return process


async def test_it_serves_restarts_on_sighup_and_ends_on_sigterm(
    processes: Processes, short_dir: Path
) -> None:
    process = start(processes, short_dir)
    socket = registration_socket(short_dir)
    async with FakePlugin(short_dir, devices("a", "b")) as plugin:
        await plugin.register()
        await eventually_async(lambda: "ListAndWatch" in plugin.calls)
        before = socket.stat().st_ino
        os.kill(process.pid, signal.SIGHUP)
        await eventually_async(plugin.stream_ended.is_set)
        await eventually_async(lambda: socket.stat().st_ino != before)
    assert process.terminate() == 0
    assert socket.is_socket()
    assert names(short_dir) == ["device-plugins", "pod-resources", "ready.json"]


def test_what_is_wrong_is_said_in_one_line(processes: Processes, short_dir: Path) -> None:
    missing = short_dir / "none.yaml"
    command = python_module(
        "simulator.kubelet", "--dir", short_dir, "--node-name", "n1", "--kubeconfig", missing
    )
    process = processes.start(command, name="kubelet")
    assert process.wait() == 1
    (line,) = [each for each in process.stderr.splitlines() if each.startswith("error: ")]
    assert str(missing) in line
    assert "Traceback" not in process.stderr
