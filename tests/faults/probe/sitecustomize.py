"""Lets a test look into a Python process that knows nothing of it: SIGUSR1 has it tell.

Found by the interpreter at its start, in a folder on PYTHONPATH. What is told is written to the
file that PLUGIN_PROBE names: the tasks of the running loop, the threads, the objects.
"""

import contextlib
import os
import signal


def _asked(_number: int, _frame: object) -> None:
    with contextlib.suppress(Exception):  # an error here must not be one of the process
        _tell()


def _tell() -> None:
    import asyncio  # noqa: PLC0415 - nothing of this is there unless it is asked for
    import ctypes  # noqa: PLC0415 - as above
    import gc  # noqa: PLC0415 - as above
    import json  # noqa: PLC0415 - as above
    import threading  # noqa: PLC0415 - as above
    import tracemalloc  # noqa: PLC0415 - as above
    from collections import Counter  # noqa: PLC0415 - as above
    from pathlib import Path  # noqa: PLC0415 - as above

    gc.collect()
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:
        tasks = set()

    class Mallinfo(ctypes.Structure):
        """`struct mallinfo2` of glibc: bytes in use, and free, in the arenas."""

        _fields_ = (
            *((f"_{number}", ctypes.c_size_t) for number in range(4)),
            ("mapped", ctypes.c_size_t),
            *((f"_{number}", ctypes.c_size_t) for number in range(5, 7)),
            ("used", ctypes.c_size_t),
            ("free", ctypes.c_size_t),
            ("_9", ctypes.c_size_t),
        )

    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    heap = Mallinfo()
    if mallinfo is not None:
        mallinfo.restype = Mallinfo
        heap = mallinfo()
    path = Path(os.environ["PLUGIN_PROBE"])
    told = {
        "tasks": Counter(getattr(task.get_coro(), "__qualname__", "?") for task in tasks),
        "threads": Counter(thread.name for thread in threading.enumerate()),
        "heap": {"used": heap.used, "free": heap.free, "mapped": heap.mapped},
        "traced": tracemalloc.get_traced_memory()[0],
        "objects": len(gc.get_objects()),
        "types": Counter(type(each).__qualname__ for each in gc.get_objects()).most_common(80),
    }
    half = path.with_suffix(".half")
    half.write_text(json.dumps(told))
    half.replace(path)


if os.environ.get("PLUGIN_PROBE"):
    signal.signal(signal.SIGUSR1, _asked)
