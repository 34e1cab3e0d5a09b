"""The demo from beginning to end: raise the suite, create pods, look, compare, take it down."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console

from simulator.demo import show
from simulator.demo.acts import Theatre, done_by_driver, furnished
from simulator.demo.checks import Checks
from simulator.demo.own import OwnPods, Trial
from simulator.demo.stage import Stage
from simulator.demo.suite import Suite, driver_log, raise_suite

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
    codes = _on(stage, console, lambda: _play(stage, console, done))
    done.equal("all processes ended cleanly", codes, dict.fromkeys(codes, 0))
    if done.failed:
        console.print(show.logs(stage))
    seconds = time.monotonic() - began
    console.print(show.title("Done"), show.checks(done, seconds, "nothing is left running"))
    return not done.failed


def play_own(folder: Path, console: Console, own: OwnPods) -> bool:
    """Creates somebody's own pods on a cluster that has the cards for them.

    Args:
        folder: as for `play`.
        console: where to show it.
        own: the pods, and what they need.

    Returns:
        Whether all of them run.

    Raises:
        AccelbindError: it could not be played to its end; the logs have been shown.
    """
    stage, began, ran = Stage(folder), time.monotonic(), list[bool]()
    _on(stage, console, lambda: _play_own(stage, console, own, ran))
    seconds = time.monotonic() - began
    console.print(show.title("Done"), show.outcome(ran, seconds))
    return all(ran)


def _on(stage: Stage, console: Console, act: Callable[[], None]) -> dict[str, int | str]:
    """Plays on a stage and takes it down, whatever happens; the processes' exit codes."""
    try:
        with _signals_interrupt():
            act()
            return stage.stop()
    except Exception:
        console.print(show.logs(stage))
        raise
    finally:
        stage.kill()


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


def _play_own(stage: Stage, console: Console, own: OwnPods, ran: list[bool]) -> None:
    suite = raise_suite(stage, own.world)
    console.print(show.title("What runs"), show.processes(_describe(stage, suite)))
    found = [(plan, furnished(suite.api, plan, stage.until)) for plan in own.world.nodes]
    console.print(show.title("The nodes"), show.nodes(found))
    trial = Trial(stage, suite, console)
    for number, pod in enumerate(own.pods, 1):
        ran.append(trial.of(number, pod))


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
