"""The demo from beginning to end: raise the suite, create pods, look, compare, take it down."""

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from accelbind.demo import show
from accelbind.demo.acts import Theatre, done_by_driver
from accelbind.demo.checks import Checks
from accelbind.demo.stage import Stage
from accelbind.demo.suite import Suite, driver_log, raise_suite

_DESCRIPTIONS = {
    "api-server": "stand-in for the API server, on port {port}",
    "webhook": "accelbind webhook, over TLS on port {port}",
    "driver": "stand-in for the driver of the cards of {node}",
    "kubelet": "stand-in for the kubelet of {node}",
    "plugin": "accelbind plugin of {node}",
}


def play(folder: Path, console: Console) -> bool:
    """Plays the demo.

    Args:
        folder: an empty one, its path short enough for unix sockets in it.
        console: where to show it.

    Returns:
        Whether everything was as expected.

    Raises:
        AccelbindError: it could not be played to its end; the logs have been shown.
    """
    stage, done, began = Stage(folder), Checks(), time.monotonic()
    try:
        with _signals_interrupt():
            _play(stage, console, done)
            codes = stage.stop()
    except Exception:
        console.print(show.logs(stage))
        raise
    finally:
        stage.kill()
    done.equal("all processes ended cleanly", codes, dict.fromkeys(codes, 0))
    if done.failed:
        console.print(show.logs(stage))
    seconds = time.monotonic() - began
    console.print(show.title("Done"), show.checks(done, seconds, "nothing is left running"))
    return not done.failed


def _play(stage: Stage, console: Console, done: Checks) -> None:
    suite = raise_suite(stage)
    console.print(show.title("What runs"), show.processes(_describe(stage, suite)))
    theatre = Theatre(
        api=suite.api,
        audit=suite.audit,
        console=console,
        checks=done,
        until=stage.until,
        driven=lambda node: done_by_driver(driver_log(stage.folder, node)),
    )
    theatre.show_nodes()
    theatre.play_pods()


def _describe(stage: Stage, suite: Suite) -> Iterator[tuple[str, int, str]]:
    for part in stage.parts:
        kind, _, node = part.name.partition("-")
        text = _DESCRIPTIONS.get(part.name) or _DESCRIPTIONS[kind]
        yield part.name, part.process.pid, text.format(node=node, port=suite.ports.get(part.name))


@contextlib.contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Has SIGTERM and SIGHUP end the demo as Ctrl-C does, with everything taken down."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
