"""Scans of a node's cards and of devices of types, in CPU time.

The synthetic sysfs is in memory if possible.
"""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from services.devices.hardware.scan import Scanner
from services.devices.types.provider import DeviceTypes
from services.process.blocking import BlockingCalls
from simulator.cards import CardSpec, lay_out
from tools.bench.devices import lay_out_devices
from tools.bench.measure import time_calls

Row = tuple[str, ...]
HEADINGS = ("devices", "of", "scan ms", "at most", "each µs")
COUNTS = (1, 64, 1000)
LIMITS = {64: "75 ms"}
MEMORY = "/dev/shm"  # noqa: S108 - where Linux has memory; the folder in it has a name of its own
ROOM = 512 << 20


def rows() -> Iterator[Row]:
    """One row per number of devices; the time should grow linearly."""
    yield from _cards()
    yield from _types()


def _cards() -> Iterator[Row]:
    for driver in ("opae", "dfl"):
        for count in COUNTS:
            with tempfile.TemporaryDirectory(prefix="accelbind-bench-", dir=memory()) as folder:
                root = Path(folder)
                lay_out(root, [CardSpec(driver=driver)] * count)
                scanner = Scanner(root, BlockingCalls())
                inventory = scanner.scan_sync()
                if sum(len(card.ports) for card in inventory.cards) != count:
                    raise AssertionError(f"{count} ports were laid out, not as many found")
                rounds = 5 if count > 100 else 20
                scan = time_calls(scanner.scan_sync, rounds)
            yield _row(count, driver, scan)


def _types() -> Iterator[Row]:
    for count in COUNTS[:2]:
        with tempfile.TemporaryDirectory(prefix="accelbind-bench-", dir=memory()) as folder:
            root = Path(folder)
            made = lay_out_devices(root, count)
            types = DeviceTypes(made.types, root, BlockingCalls())
            scan = _scan_of_types(types, count)
        yield _row(count, "types", scan)


def _scan_of_types(provider: DeviceTypes, count: int) -> float:
    with asyncio.Runner() as loop:
        read = loop.run(provider.read(()))
        if sum(device.healthy for each in read.sightings for device in each.devices) != count:
            raise AssertionError(f"{count} devices were laid out, not as many found")
        return time_calls(lambda: loop.run(provider.read(())), 20)


def _row(count: int, what: str, scan: float) -> Row:
    each = f"{scan / count * 1e6:.0f}"
    return (f"{count}", what, f"{scan * 1e3:.2f}", LIMITS.get(count, ""), each)


def memory() -> str | None:
    """A folder in memory with room for a thousand cards; None if there is none."""
    if not os.access(MEMORY, os.W_OK):
        return None
    state = os.statvfs(MEMORY)
    return MEMORY if state.f_bavail * state.f_frsize >= ROOM else None
