"""Mappings from an API server: how long until they serve, what they weigh, what changes cost.

What follows them is a process of its own, which does nothing else: `python -m tools.bench.sync
KUBECONFIG CHANGES` prints one JSON object, `Measured`. `late ms` is how long the second of two
changes takes that come after some quiet.
"""

import asyncio
import contextlib
import gc
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import structlog
import uvloop

from services.kube.config import load_config
from services.kube.connection import connector
from services.mappings.index import MappingIndex
from services.mappings.model import parse
from services.mappings.source import ApiServerSource

Row = tuple[str, ...]
HEADINGS = (
    "mappings",
    "namespaces",
    "sync s",
    "CPU s",
    "MiB over empty",
    "loop held ms",
    "core at 1 000/s",
    "indexes/s",
    "changes/s",
    "late ms",
)
NUMBER = 100_000
CHANGES = 5_000
"""At 1 000 a second; ten times as many at full speed."""
RATE = 1000
"""Changes a second of the steady phase."""
LATE = 100
"""Pairs of changes, at most, of which the second is waited for."""
QUIET = 0.05
"""Seconds between two pairs."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What following cost.

    Attributes:
        sync: seconds from the first request to the first index.
        sync_cpu: seconds of CPU in that time.
        resident: MiB of memory afterwards.
        held: the longest that the event loop was held, in seconds, while syncing and following.
        load: the share of a core that `RATE` changes a second take.
        indexes: indexes a second meanwhile.
        changes: changes a second when they come as fast as they are read.
        late: seconds from asking for the second of two changes, right after the first, until it
            serves: the median. Opening a connection to ask for it is part of that.
    """

    sync: float
    sync_cpu: float
    resident: float
    held: float
    load: float = 0.0
    indexes: float = 0.0
    changes: float = 0.0
    late: float = 0.0


def rows() -> Iterator[Row]:
    """A row a way to spread them: all in one namespace, or over a thousand."""
    empty = _measure(0, 1, 0)
    for namespaces in (1, 1000):
        found = _measure(NUMBER, namespaces, CHANGES)
        yield (
            f"{NUMBER}",
            f"{namespaces}",
            f"{found.sync:.2f}",
            f"{found.sync_cpu:.2f}",
            f"{found.resident - empty.resident:.1f}",
            f"{found.held * 1e3:.0f}",
            f"{found.load:.0%}",
            f"{found.indexes:.0f}",
            f"{found.changes:.0f}",
            f"{found.late * 1e3:.1f}",
        )


def _measure(number: int, namespaces: int, changes: int) -> Measured:
    with (
        tempfile.TemporaryDirectory(prefix="accelbind-bench-") as folder,
        serving(number, namespaces) as port,
    ):
        file = Path(folder, "kubeconfig")
        file.write_text(kubeconfig(f"http://127.0.0.1:{port}"))
        told = subprocess.run(
            [sys.executable, "-m", "tools.bench.sync", file, str(changes)],
            check=True,
            capture_output=True,
            text=True,
        )
    return Measured(**json.loads(told.stdout))


@contextlib.contextmanager
def serving(number: int, namespaces: int) -> Iterator[int]:
    """Runs an API server of so many mappings; its port."""
    arguments = [sys.executable, "-m", "tools.bench.sync_server", str(number), str(namespaces)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield int(process.stdout.readline()) if process.stdout else 0
        finally:
            process.kill()


def kubeconfig(server: str) -> str:
    """A kubeconfig that leads to a server."""
    return json.dumps(
        {
            "current-context": "bench",
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "clusters": [{"name": "bench", "cluster": {"server": server}}],
            "users": [{"name": "bench", "user": {"token": "bench"}}],
        }
    )


class _Counting(ApiServerSource):
    indexes = 0

    def _swap(self, index: MappingIndex) -> None:
        self.indexes += 1
        super()._swap(index)


class Ticker:
    """Tells how long the event loop was held at most.

    In CPU time of its thread: what other processes take away is not what is measured here.
    """

    def __init__(self) -> None:
        self.longest = 0.0

    async def run(self) -> None:
        """Ticks every millisecond."""
        last = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            self.longest = max(self.longest, now - last)
            last = now


async def measure(kubeconfig: Path, changes: int) -> Measured:
    """Follows an API server; has it change that many objects at `RATE`, then at full speed."""
    ticker = Ticker()
    source = _Counting(connector(kubeconfig))
    gc.collect()
    gc.freeze()  # as the webhook does
    begun, cpu = time.perf_counter(), time.process_time()
    tasks = [asyncio.create_task(ticker.run()), asyncio.create_task(source.follow())]
    await _until(lambda: source.loaded)
    sync, sync_cpu = time.perf_counter() - begun, time.process_time() - cpu
    resident = _resident()
    measured = Measured(sync, sync_cpu, resident, ticker.longest)
    if changes:
        port = urlsplit(_server(kubeconfig)).port or 0
        await _until(lambda: source.watching)
        begun, cpu, indexes = time.perf_counter(), time.process_time(), source.indexes
        await _follow(source, port, RATE, changes)
        seconds = time.perf_counter() - begun
        load, made = (time.process_time() - cpu) / seconds, (source.indexes - indexes) / seconds
        begun = time.perf_counter()
        await _follow(source, port, 0, 10 * changes)
        full = 10 * changes / (time.perf_counter() - begun)
        late = await _late(source, port, min(LATE, changes))
        measured = Measured(sync, sync_cpu, resident, ticker.longest, load, made, full, late)
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    return measured


async def _follow(source: ApiServerSource, port: int, rate: int, changes: int) -> None:
    """Has objects change, and waits until the index knows the last of them."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /changes?rate=%d&number=%d HTTP/1.1\r\n\r\n" % (rate, changes))
    head = await reader.readuntil(b"\r\n\r\n")
    last = parse(json.loads(await reader.readexactly(int(head.rpartition(b":")[2]))))
    writer.transport.abort()
    await _until(lambda: source.index.namespace(last.namespace).by_name.get(last.name) == last)


async def _late(source: ApiServerSource, port: int, pairs: int) -> float:
    taken = []
    for _ in range(pairs):
        await asyncio.sleep(QUIET)
        await _follow(source, port, 0, 1)
        begun = time.perf_counter()
        await _follow(source, port, 0, 1)
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


async def _until(predicate: Callable[[], bool]) -> None:
    while not predicate():  # noqa: ASYNC110 - a source has no event for a benchmark
        await asyncio.sleep(0.001)


def _server(kubeconfig: Path) -> str:
    config = load_config(kubeconfig)
    if config is None:
        raise SystemExit(f"{kubeconfig} names no server")
    return config.server


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024**2


def main() -> None:
    """Measures and prints."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    measured = uvloop.run(measure(Path(sys.argv[1]), int(sys.argv[2])))
    print(json.dumps(asdict(measured)))


if __name__ == "__main__":
    main()
