"""A plugin on a node of many cards: start, memory, idling, news of cards, `Allocate`, restarts.

`accelbind plugin` runs as a process on a rack of synthetic cards. The kubelet is the stand-in, in
the process that measures, so that what it takes is not counted as the plugin's. Times are seen from
outside: from the start of the process, or from the moment at which a card's class entry comes or
goes or the kubelet begins to serve, until the kubelet has what it should have. What the kubelet
stand-in itself takes is in them.
"""

import asyncio
import compileall
import contextlib
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import structlog

from services.kubelet import deviceplugin_pb2 as pb
from services.kubelet import deviceplugin_pb2_grpc as rpc
from services.kubelet.sockets import CHANNEL_OPTIONS, address
from simulator.cards import CardSpec, Rack, lay_out
from simulator.kubelet.standin import KubeletStandIn
from tools.bench.scan import memory

Row = tuple[str, ...]
HEADINGS = ("what", "median", "p99", "most", "limit")
CARDS = 64
STARTS = 5
IDLE_SECONDS = 60.0
EVENTS = 100
CALLS = 10_000
RESTARTS = 50
WAIT_SECONDS = 60.0
END_SECONDS = 20.0
SCAN_SECONDS = 5.0
"""Between two looks at the cards: the plugin's default."""


@dataclass(frozen=True, slots=True)
class Node:
    """Cards and a kubelet for a plugin; in `folder` are the kubelet's folder and its output."""

    rack: Rack
    kubelet: KubeletStandIn
    folder: Path

    @contextlib.contextmanager
    def plugin(self) -> Iterator["PluginProcess"]:
        """The plugin, from its start until it has ended."""
        command = [
            *(sys.executable, "-m", "accelbind", "plugin", "--root", str(self.rack.root)),
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
    """A plugin that runs, and when it was started, by `time.perf_counter`."""

    pid: int
    began: float

    @property
    def resident_mib(self) -> float:
        """What it has in memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    @property
    def cpu_seconds(self) -> float:
        """What it has used so far, with its threads that have ended."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.asynccontextmanager
async def a_node(cards: list[CardSpec]) -> AsyncIterator[Node]:
    """A node with these cards, and nothing that outlasts it but bytecode, which pip makes too."""
    _compile()
    with (
        tempfile.TemporaryDirectory(prefix="ab-", dir=memory()) as root,
        tempfile.TemporaryDirectory(prefix="ab-") as folder,
    ):
        rack = lay_out(Path(root), cards)
        async with KubeletStandIn(Path(folder), node_name="bench") as kubelet:
            yield Node(rack, kubelet, Path(folder))


def _compile() -> None:
    """Has the plugin start from bytecode, as where it is installed, wherever it may be written."""
    checkout = Path(__file__).parents[2]
    for room in ("accelbind", "plugin", "services"):
        compileall.compile_dir(checkout / room, quiet=2)


def rows() -> Iterator[Row]:
    """A row a figure."""
    with _quiet():
        yield from asyncio.run(_gather(_starts()))
        yield from asyncio.run(_gather(_life()))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Only errors of the kubelet stand-in are told, which says a line for each registration."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    try:
        yield
    finally:
        structlog.configure(**before)


async def _gather(rows: AsyncIterator[Row]) -> list[Row]:
    return [row async for row in rows]


def cards(count: int, *, alike: bool) -> list[CardSpec]:
    """Cards under either driver by turns, of one function or of one each."""
    return [
        CardSpec(driver, numa_node=number % 2)
        if alike
        else CardSpec(driver, numa_node=number % 2, afu_ids=(f"{number:032x}",))
        for number, driver in zip(range(count), ("opae", "dfl") * count, strict=False)
    ]


def offers(node: Node, count: int) -> Callable[[], bool]:
    """Whether so many devices may be allocated."""
    return lambda: sum(node.kubelet.allocatable.values()) == count


async def _starts() -> AsyncIterator[Row]:
    for alike, what in ((True, "one resource"), (False, "a resource each")):
        async with a_node(cards(CARDS, alike=alike)) as node:
            took, worked, resident = [], [], []
            for _ in range(STARTS):
                with node.plugin() as plugin:
                    await node.kubelet.until(offers(node, CARDS), WAIT_SECONDS)
                    took.append(time.perf_counter() - plugin.began)
                    worked.append(plugin.cpu_seconds)
                    resident.append(plugin.resident_mib)
                await node.kubelet.until(offers(node, 0), WAIT_SECONDS)
        yield row(f"start to registered, {CARDS} cards, {what}", took, 1e3, "ms", "2000 ms")
        yield row("  of which at work", worked, 1e3, "ms", "")
        yield row(f"resident then, {what}", resident, 1, "MiB", "96 MiB")


async def _life() -> AsyncIterator[Row]:
    async with a_node(cards(CARDS, alike=True)) as node:
        with node.plugin() as plugin:
            await node.kubelet.until(offers(node, CARDS), WAIT_SECONDS)
            for each in await asyncio.to_thread(_allocations, node):
                yield each
            yield row("a card goes, on the stream", await _news(node, comes=False), *_NEWS)
            yield row("a card comes, on the stream", await _news(node, comes=True), *_NEWS)
            again = [await _again(node) for _ in range(RESTARTS)]
            yield row("registered again after the kubelet", again, 1e3, "ms", "1000 ms")
            yield await _idle(plugin)
            yield row("resident after all that", [plugin.resident_mib], 1, "MiB", "96 MiB")


_NEWS = (1e3, "ms", "100 ms")


def _allocations(node: Node) -> Iterator[Row]:
    """`Allocate`, by turns with a call that does nothing, which tells what client and gRPC take."""
    socket = _socket_of(node)
    times: dict[str, list[float]] = {"Allocate": [], "nothing": []}
    names = [port for card in node.rack.addresses for port in node.rack.ports(card)]
    with grpc.insecure_channel(address(socket), options=CHANNEL_OPTIONS) as channel:
        stub = rpc.DevicePluginStub(channel)  # type: ignore[arg-type]  # its types know grpc.aio only
        for number in range(CALLS):
            ask = pb.ContainerAllocateRequest(devices_ids=[names[number % len(names)]])
            began = time.perf_counter()
            stub.Allocate(pb.AllocateRequest(container_requests=[ask]))
            middle = time.perf_counter()
            stub.GetDevicePluginOptions(pb.Empty())
            times["Allocate"].append(middle - began)
            times["nothing"].append(time.perf_counter() - middle)
    yield row(f"Allocate, {CALLS} calls", times["Allocate"], 1e3, "ms", "5 ms (p99)")
    yield row("a call that does nothing, by turns", times["nothing"], 1e3, "ms", "")


def _socket_of(node: Node) -> Path:
    folder = node.folder / "device-plugins"
    (found,) = folder.glob("accelbind-*.sock")
    return found


async def _news(node: Node, *, comes: bool) -> list[float]:
    """Takes the class entry of a card away, or puts it back; the last thing that a driver does."""
    took = []
    entries = sorted(node.rack.root.glob("sys/class/fpga/intel-fpga-dev.*"))
    for number in range(EVENTS):
        entry = entries[number % len(entries)]
        target = entry.readlink()
        if comes:
            entry.unlink()
            await node.kubelet.until(offers(node, CARDS - 1), WAIT_SECONDS)
        began = time.perf_counter()
        if comes:
            entry.symlink_to(target)
        else:
            entry.unlink()
        await node.kubelet.until(offers(node, CARDS if comes else CARDS - 1), WAIT_SECONDS)
        took.append(time.perf_counter() - began)
        if not comes:
            entry.symlink_to(target)
            await node.kubelet.until(offers(node, CARDS), WAIT_SECONDS)
    return took


async def _again(node: Node) -> float:
    await node.kubelet.stop()
    began = time.perf_counter()
    await node.kubelet.start()
    await node.kubelet.until(offers(node, CARDS), WAIT_SECONDS)
    return time.perf_counter() - began


async def _idle(plugin: PluginProcess) -> Row:
    spent, began = plugin.cpu_seconds, time.perf_counter()
    await asyncio.sleep(IDLE_SECONDS)
    share = (plugin.cpu_seconds - spent) / (time.perf_counter() - began)
    what = f"CPU while idle, a scan every {SCAN_SECONDS:g} s"
    return (what, f"{share * 100:.2f} %", "", "", "1 %")


def row(what: str, values: Sequence[float], scale: float, unit: str, limit: str) -> Row:
    """A figure: what it is, its median, 99th percentile and most, and what it should keep to."""
    ordered = sorted(values)
    median, most = statistics.median(ordered), ordered[-1]
    late = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return (what, *(f"{each * scale:.2f} {unit}" for each in (median, late, most)), limit)
