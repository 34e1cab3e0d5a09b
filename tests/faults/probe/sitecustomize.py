"""Lets a test look into a plugin process: on SIGUSR1 it writes the tasks of its event loop.

The interpreter imports this at its start, from a folder on PYTHONPATH. PLUGIN_PROBE names the file.
"""

import contextlib
import os
import signal


def _on_signal(_number: int, _frame: object) -> None:
    with contextlib.suppress(Exception):  # an error here must not be one of the process
        _write_tasks()


def _write_tasks() -> None:
    import asyncio  # noqa: PLC0415 - nothing of this is imported unless it is asked for
    import json  # noqa: PLC0415 - as above
    from collections import Counter  # noqa: PLC0415 - as above
    from pathlib import Path  # noqa: PLC0415 - as above

    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:
        tasks = set()
    path = Path(os.environ["PLUGIN_PROBE"])
    half = path.with_suffix(".half")
    names = Counter(getattr(task.get_coro(), "__qualname__", "?") for task in tasks)
    half.write_text(json.dumps({"tasks": names}))
    half.replace(path)


if os.environ.get("PLUGIN_PROBE"):
    signal.signal(signal.SIGUSR1, _on_signal)
