"""Creates the demo's pods on a cluster of stand-ins, and shows what becomes of each.

    python -m simulator.demo.try_pods --kubeconfig FILE --webhook https://webhook:8443 --ca FILE ...

For containers, where everything else runs already or is about to. It can be run again: it deletes
what an earlier run left in the API server, and leaves its own pods running.
"""

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn, TypeVar

from services.process.errors import AccelbindError, ClusterError
from simulator.demo import cluster, show
from simulator.demo.api import Api, Refused
from simulator.demo.cluster import World
from simulator.demo.play import Player
from simulator.demo.reports import is_good
from simulator.demo.stage import DemoFailed
from simulator.demo.suite import driver_log, registrations

T = TypeVar("T")

SECONDS = 120.0
_POLL_SECONDS = 0.1
_NOT_FOUND = 404


def until(poll: Callable[[], T | None], what: str) -> T:
    """Poll until something true is returned; what cannot be reached yet counts as nothing.

    Raises:
        DemoFailed: it took too long.
    """
    deadline = time.monotonic() + SECONDS
    while True:
        problem = ""
        try:
            if found := poll():
                return found
        except Refused:
            raise
        except ClusterError as error:
            problem = f": {error}"
        if time.monotonic() > deadline:
            raise DemoFailed(
                f"{what}: not after {SECONDS:.0f} s{problem}; the logs of the other containers may"
                " show why (docker compose logs)"
            )
        time.sleep(_POLL_SECONDS)


def connect(kubeconfig: Path) -> Api:
    """The API server of a kubeconfig, once it serves."""

    def poll() -> Api | None:
        if not kubeconfig.exists():
            return None
        api = Api(kubeconfig)
        api.get("/version")
        return api

    return until(poll, f"the API server of {kubeconfig}")


def clear(api: Api, world: World) -> None:
    """Delete the pods of an earlier run, and wait until they are gone."""
    left = [f"{one.collection}/{one.name}" for one in world.pods]
    left = [path for path in left if _delete(api, path)]
    until(lambda: not any(_exists(api, path) for path in left), "the pods of an earlier run to go")


def _exists(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except Refused as refused:
        if refused.status.get("code") == _NOT_FOUND:
            return False
        raise
    return True


def _delete(api: Api, path: str) -> bool:
    try:
        api.delete(path)
    except Refused as refused:
        if refused.status.get("code") == _NOT_FOUND:
            return False
        raise
    return True


def register(api: Api, url: str, authority: Path, world: World) -> None:
    """Create mappings and webhook configurations, and replace older ones."""
    for path, obj in registrations(url, authority, world):
        with contextlib.suppress(Refused):
            api.delete(f"{path}/{obj['metadata']['name']}")
        api.post(path, obj)


def await_webhook(api: Api, world: World) -> None:
    """Wait until the webhook admits what it must: then it answers and has the mappings."""
    wanted = [one for one in world.pods if one.expected and not one.expected.refusal]
    refusal = ""

    def poll() -> bool:
        nonlocal refusal
        try:
            for one in wanted:
                api.post(f"{one.collection}?dryRun=All", one.pod)
        except Refused as refused:
            refusal = str(refused)
            return False
        return True

    try:
        until(poll, "the webhook to read the mappings")
    except DemoFailed as failed:
        raise DemoFailed(f"{failed}; the last refusal was: {refusal}") from failed


def play(given: argparse.Namespace) -> bool:
    """Try the suite; whether all was as expected.

    Raises:
        AccelbindError: it could not be played to its end.
    """
    console, started = show.make_console(), time.monotonic()
    world = cluster.demo_world()
    logs = {plan.name: driver_log(given.dir, plan) for plan in world.nodes}
    api = connect(given.kubeconfig)
    clear(api, world)
    player = Player(
        api=api,
        audit=given.audit or given.kubeconfig.with_name("audit.jsonl"),
        console=console,
        until=until,
        driver_logs=logs,
        again=any(log.exists() for log in logs.values()),
    )
    register(api, given.webhook, given.ca, world)
    player.show_nodes(world.nodes)
    await_webhook(api, world)
    reports = player.play(world.pods)
    problems = player.problems(reports)
    seconds = time.monotonic() - started
    end = show.end(reports, problems, seconds, "everything keeps running", again=player.again)
    console.print(end)
    return is_good(reports, problems)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m simulator.demo.try_pods",
        description="Create the demo's pods on a cluster of stand-ins.",
    )
    made.add_argument("--kubeconfig", type=Path, required=True, help="that of the API server")
    made.add_argument("--audit", type=Path, help="its audit log (default: beside the kubeconfig)")
    made.add_argument(
        "--webhook", required=True, metavar="URL", help="where the API server finds the webhook"
    )
    made.add_argument("--ca", type=Path, required=True, help="the CA of the webhook's certificate")
    made.add_argument("--dir", type=Path, required=True, help="holds a folder for each node")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the suite: 0 if all was as expected, 1 if not."""

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        return 0 if play(parser().parse_args(arguments)) else 1
    except AccelbindError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
