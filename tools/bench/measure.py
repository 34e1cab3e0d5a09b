"""Measure a function: the median of many calls, and the machine that made them."""

import gc
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

ROUND_SECONDS = 0.02


def time_calls(call: Callable[[], object], rounds: int) -> float:
    """CPU seconds per call: the median of rounds that take `ROUND_SECONDS` each."""
    calls = 1
    while _cpu_seconds(call, calls) < ROUND_SECONDS:
        calls *= 2
    gc.collect()
    return statistics.median(_cpu_seconds(call, calls) / calls for _ in range(rounds))


def _cpu_seconds(call: Callable[[], object], calls: int) -> float:
    start = time.process_time()  # the time of other processes does not count
    for _ in range(calls):
        call()
    return time.process_time() - start


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
