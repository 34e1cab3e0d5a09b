"""A scan of a node's cards and of their sensors, on synthetic sysfs, in memory if possible."""

import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from services.devices.hardware.scan import Scanner
from services.devices.hardware.sensor_reader import SensorReader
from services.devices.model import PluginMode
from services.devices.resources import advertise
from services.process.blocking import BlockingCalls
from simulator.cards import CardSpec, lay_out
from tools.bench.measure import time_calls

Row = tuple[str, ...]
HEADINGS = ("cards", "driver", "scan ms", "at most", "a port µs", "resources ms", "sensors ms")
COUNTS = (1, 64, 1000)
LIMITS = {64: "30 ms"}
MEMORY = "/dev/shm"  # noqa: S108 - where Linux has memory; the folder in it has a name of its own
ROOM = 512 << 20


def rows() -> Iterator[Row]:
    """One row per number of cards with one port each; the time should grow linearly."""
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
                scan = time_calls(scanner.scan_sync, rounds=rounds)
                build = partial(advertise, inventory, PluginMode.AF)
                tree = time_calls(build, rounds=rounds)
                read = partial(SensorReader(root, BlockingCalls()).read_sync, inventory.cards)
                sensors = time_calls(read, rounds=rounds)
            yield (
                f"{count}",
                driver,
                f"{scan * 1e3:.2f}",
                LIMITS.get(count, ""),
                f"{scan / count * 1e6:.0f}",
                f"{tree * 1e3:.2f}",
                f"{sensors * 1e3:.2f}",
            )


def memory() -> str | None:
    """A folder in memory with room for a thousand cards; None if there is none."""
    if not os.access(MEMORY, os.W_OK):
        return None
    state = os.statvfs(MEMORY)
    return MEMORY if state.f_bavail * state.f_frsize >= ROOM else None
