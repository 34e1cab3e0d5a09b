"""Measure a function: the median of many calls, and the machine that made them."""

import gc
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

ROUNDS = 30
ROUND_SECONDS = 0.02


def time_calls(
    call: Callable[[], object],
    *,
    rounds: int | None = None,
    clock: Callable[[], float] | None = None,
) -> float:
    """Seconds per call: the median of rounds that take `ROUND_SECONDS` each.

    With `time.process_time` as clock, the time of other processes does not count.
    """
    clock = clock or time.perf_counter
    calls = _calls_a_round(call, clock)
    gc.collect()
    means = []
    for _ in range(rounds or ROUNDS):
        start = clock()
        for _ in range(calls):
            call()
        means.append((clock() - start) / calls)
    return statistics.median(means)


def _calls_a_round(call: Callable[[], object], clock: Callable[[], float]) -> int:
    calls, spent = 1, 0.0
    while True:
        start = clock()
        for _ in range(calls):
            call()
        spent = clock() - start
        if spent >= ROUND_SECONDS:
            return calls
        calls *= 2


def machine() -> str:
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.partition(":")[2].strip()
            for line in cpuinfo.read_text().splitlines()
            if line.startswith("model name")
        ]
        model = names[0] if names else model
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"
