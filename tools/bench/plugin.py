"""A plugin on a node with many devices: start, memory, idle CPU, uevents, `Allocate`, restarts.

`accelbind plugin` runs in a process of its own, on synthetic cards or on devices of types. The
kubelet stand-in runs in the measuring process, so its CPU time and memory are not counted. Times
start when the plugin starts, when a uevent is sent or when the kubelet starts to serve. They end
when the kubelet has the right devices, so they include the time of the kubelet stand-in.
"""

import asyncio
import contextlib
import logging
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import grpc
import structlog

from plugin.process import Plugin
from plugin.settings import PluginSettings
from services.devices.hardware.events import follow_card_events
from services.devices.model import PluginMode
from services.kubelet import deviceplugin_pb2 as pb
from services.kubelet import deviceplugin_pb2_grpc as rpc
from services.kubelet.sockets import CHANNEL_OPTIONS, address
from services.process.waits import Due
from simulator.cards import CardSpec, lay_out
from simulator.kubelet.standin import KubeletStandIn
from tools.bench.devices import TYPES, lay_out_devices
from tools.bench.scan import memory

Row = tuple[str, ...]
HEADINGS = ("what", "median", "p99", "maximum", "at most")
COUNT = 64
STARTS = 5
IDLE_SECONDS = 60.0
EVENTS = 20
CALLS = 10_000
RESTARTS = 50
WAIT_SECONDS = 60.0
END_SECONDS = 20.0
SCAN_SECONDS = 5.0
"""Between two scans of the cards: the plugin's default."""
Remove: TypeAlias = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Load:
    root: Path
    ids: Sequence[str]
    """Devices of one resource."""
    add: Callable[[], Remove]
    """Plugs another one in; what it returns unplugs it."""
    mode: PluginMode = PluginMode.AF
    types: Path | None = None
    subsystem: str = "fpga_region"
    """That a uevent about it names."""


@dataclass(frozen=True, slots=True)
class Node:
    """A load and a kubelet; `folder` has the kubelet's folder and the plugin's log."""

    load: Load
    kubelet: KubeletStandIn
    folder: Path

    @contextlib.contextmanager
    def plugin(self) -> Iterator["PluginProcess"]:
        command = [
            *(sys.executable, "-m", "accelbind", "plugin", "--root", str(self.load.root)),
            *("--mode", str(self.load.mode)),
            *(("--device-types", str(self.load.types)) if self.load.types else ()),
            *("--kubelet-dir", str(self.folder), "--node-name", "bench"),
            *("--metrics-host", "127.0.0.1", "--metrics-port", "0", "--log-format", "json"),
            *("--ports-file", str(self.folder / "ports"), "--scan-interval", f"{SCAN_SECONDS}"),
        ]
        with (self.folder / "plugin.log").open("wb") as log:
            began = time.perf_counter()
            popen = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            yield PluginProcess(popen.pid, began)
        finally:
            popen.terminate()
            popen.wait(END_SECONDS)


@dataclass(frozen=True, slots=True)
class PluginProcess:
    """A running plugin; `began` is when it was started, by `time.perf_counter`."""

    pid: int
    began: float

    @property
    def resident_mib(self) -> float:
        """Its resident memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    @property
    def cpu_seconds(self) -> float:
        """The CPU time of all its threads so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.asynccontextmanager
async def a_node(lay: Callable[[Path], Load]) -> AsyncIterator[Node]:
    with (
        tempfile.TemporaryDirectory(prefix="ab-", dir=memory()) as root,
        tempfile.TemporaryDirectory(prefix="ab-") as folder,
    ):
        load = lay(Path(root))
        async with KubeletStandIn(Path(folder), node_name="bench") as kubelet:
            yield Node(load, kubelet, Path(folder))


def rows() -> Iterator[Row]:
    of_cards = f"{COUNT} cards"
    of_types = f"{COUNT} devices of {len(TYPES)} types"
    # The kubelet stand-in logs a line for each registration.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    for what, lay in (
        (f"{of_cards}, one resource", partial(cards, alike=True)),
        (f"{of_cards}, a resource each", partial(cards, alike=False)),
        (of_types, devices),
    ):
        yield from asyncio.run(_gather(_starts(what, lay)))
    for what, lay in ((of_cards, partial(cards, alike=True)), (of_types, devices)):
        yield from asyncio.run(_gather(_uevents(what, lay)))
        yield from asyncio.run(_gather(_life(what, lay)))


async def _gather(rows: AsyncIterator[Row]) -> list[Row]:
    return [row async for row in rows]


def cards(root: Path, *, alike: bool) -> Load:
    """Cards of both drivers in turn, all with one function or each with its own."""
    specs = [
        CardSpec(driver, numa_node=number % 2)
        if alike
        else CardSpec(driver, numa_node=number % 2, afu_ids=(f"{number:032x}",))
        for number, driver in zip(range(COUNT), ("opae", "dfl") * COUNT, strict=False)
    ]
    rack = lay_out(root, specs)

    def add() -> Remove:
        return partial(rack.remove_card, rack.add_card(CardSpec()))

    ids = [port for card in rack.addresses for port in rack.ports(card)]
    return Load(root, ids, add)


def devices(root: Path) -> Load:
    made = lay_out_devices(root, COUNT)
    return Load(root, made.ids, made.add, PluginMode.NONE, made.types, subsystem="usb")


def offers(node: Node, count: int) -> Callable[[], bool]:
    """Whether the kubelet has this number of allocatable devices."""
    return lambda: sum(node.kubelet.allocatable.values()) == count


async def _starts(what: str, lay: Callable[[Path], Load]) -> AsyncIterator[Row]:
    async with a_node(lay) as node:
        took, worked, resident = [], [], []
        for _ in range(STARTS):
            with node.plugin() as plugin:
                await node.kubelet.until(offers(node, COUNT), WAIT_SECONDS)
                took.append(time.perf_counter() - plugin.began)
                worked.append(plugin.cpu_seconds)
                resident.append(plugin.resident_mib)
            await node.kubelet.until(offers(node, 0), WAIT_SECONDS)
    yield row(f"start to registered, {what}", took, 1e3, "ms", "2000 ms")
    yield row("  of which CPU time", worked, 1e3, "ms", "")
    yield row("  resident then", resident, 1, "MiB", "96 MiB")


async def _life(what: str, lay: Callable[[Path], Load]) -> AsyncIterator[Row]:
    async with a_node(lay) as node:
        with node.plugin() as plugin:
            await node.kubelet.until(offers(node, COUNT), WAIT_SECONDS)
            for each in await asyncio.to_thread(_allocations, node, what):
                yield each
            again = [await _again(node) for _ in range(RESTARTS)]
            yield row("registered again after a kubelet restart", again, 1e3, "ms", "1000 ms")
            for each in await _idle(plugin, node.load.root):
                yield each
            yield row("resident at the end", [plugin.resident_mib], 1, "MiB", "96 MiB")


async def _uevents(what: str, lay: Callable[[Path], Load]) -> AsyncIterator[Row]:
    """The time from a uevent until the kubelet has the new list; nothing else scans."""
    added, removed = [], []
    async with a_node(lay) as node, _plugin_with_uevents(node) as kernel:
        await node.kubelet.until(offers(node, COUNT), WAIT_SECONDS)
        for _ in range(EVENTS):
            remove = node.load.add()
            added.append(await _after_uevent(kernel, node, COUNT + 1))
            remove()
            removed.append(await _after_uevent(kernel, node, COUNT))
    for change, took in (("added", added), ("removed", removed)):
        yield row(f"{change} to the stream, {what}", took, 1e3, "ms", "100 ms (median)")


async def _after_uevent(kernel: socket.socket, node: Node, count: int) -> float:
    began = time.perf_counter()
    kernel.send(f"change@/devices/x\0ACTION=change\0SUBSYSTEM={node.load.subsystem}\0".encode())
    await node.kubelet.until(offers(node, count), WAIT_SECONDS)
    return time.perf_counter() - began


@contextlib.asynccontextmanager
async def _plugin_with_uevents(node: Node) -> AsyncIterator[socket.socket]:
    """Run a plugin in this process; what is sent to the socket reaches it as a uevent."""
    # Only the kernel can send them to another process. Times are upper bounds: both share a loop.
    settings = PluginSettings(
        mode=node.load.mode,
        root=node.load.root,
        device_types=node.load.types,
        kubelet_dir=node.folder,
        state_dir=node.folder / "state",
        node_name="bench",
        metrics_host="127.0.0.1",
        metrics_port=0,
        scan_interval=3600,
    )
    plugin, stop = Plugin(settings), asyncio.Event()

    class Rescan(Due):
        """That of what serves then."""

        def request(self) -> None:
            if plugin.face is not None:
                plugin.face.node.state.rescan.request()

    kernel, received = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    received.setblocking(False)  # noqa: FBT003 - the standard library's signature
    with kernel:
        async with asyncio.TaskGroup() as group:
            group.create_task(plugin.serve(stop))
            subsystem = frozenset({node.load.subsystem})
            uevents = group.create_task(
                follow_card_events(Rescan(), lambda: subsystem, connect=lambda: received)
            )
            try:
                yield kernel
            finally:
                uevents.cancel()
                stop.set()


def _allocations(node: Node, what: str) -> Iterator[Row]:
    """`Allocate`, in turn with a call that does nothing and so shows the cost of gRPC."""
    times: dict[str, list[float]] = {"Allocate": [], "nothing": []}
    ids = node.load.ids
    with grpc.insecure_channel(address(_socket_of(node)), options=CHANNEL_OPTIONS) as channel:
        stub = rpc.DevicePluginStub(channel)  # type: ignore[arg-type]  # its types know grpc.aio only
        for number in range(CALLS):
            began = time.perf_counter()
            stub.Allocate(_request(ids[number % len(ids)]))
            middle = time.perf_counter()
            stub.GetDevicePluginOptions(pb.Empty())
            times["Allocate"].append(middle - began)
            times["nothing"].append(time.perf_counter() - middle)
    yield row(f"Allocate, {CALLS} calls, {what}", times["Allocate"], 1e3, "ms", "5 ms (p99)")
    yield row("a call that does nothing, in turn", times["nothing"], 1e3, "ms", "")


def _request(device: str) -> pb.AllocateRequest:
    return pb.AllocateRequest(
        container_requests=[pb.ContainerAllocateRequest(devices_ids=[device])]
    )


def _socket_of(node: Node) -> Path:
    """The socket of the resource that has the load's devices."""
    for path in (node.folder / "device-plugins").glob("accelbind-*.sock"):
        with grpc.insecure_channel(address(path), options=CHANNEL_OPTIONS) as channel:
            stub = rpc.DevicePluginStub(channel)  # type: ignore[arg-type]  # its types know grpc.aio only
            with contextlib.suppress(grpc.RpcError):
                stub.Allocate(_request(node.load.ids[0]))
                return path
    raise AssertionError(f"no resource has {node.load.ids[0]}")


async def _again(node: Node) -> float:
    await node.kubelet.stop()
    began = time.perf_counter()
    await node.kubelet.start()
    await node.kubelet.until(offers(node, COUNT), WAIT_SECONDS)
    return time.perf_counter() - began


async def _idle(plugin: PluginProcess, root: Path) -> list[Row]:
    """The plugin's CPU time, and that of other work on its files, as often and then in a row."""
    # The other work shows what the machine adds: its speed now, and what each rest costs.
    spent, began, rested = plugin.cpu_seconds, time.perf_counter(), []
    for _ in range(int(IDLE_SECONDS / SCAN_SECONDS)):
        await asyncio.sleep(SCAN_SECONDS)
        rested.append(_walk(root))
    share = (plugin.cpu_seconds - spent) / (time.perf_counter() - began)
    in_turn = [_walk(root) for _ in rested]
    return [
        (f"idle CPU, a scan every {SCAN_SECONDS:g} s", f"{share * 100:.2f} %", "", "", "1 %"),
        row(f"  CPU time to walk the same files every {SCAN_SECONDS:g} s", rested, 1e3, "ms", ""),
        row("  to walk them in a row", in_turn, 1e3, "ms", ""),
    ]


def _walk(root: Path) -> float:
    """The CPU time of a walk through all folders."""
    began = time.thread_time()
    for _ in os.walk(root):
        pass
    return time.thread_time() - began


def row(what: str, values: Sequence[float], scale: float, unit: str, limit: str) -> Row:
    """The name of a figure, its median, 99th percentile, maximum and limit."""
    ordered = sorted(values)
    median, most = statistics.median(ordered), ordered[-1]
    late = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return (what, *(f"{each * scale:.2f} {unit}" for each in (median, late, most)), limit)
