"""Submits the demo's pods to a cluster of stand-ins, and shows what becomes of each.

    python -m simulator.demo.try_pods --kubeconfig FILE --webhook https://webhook:8443 --ca FILE ...

For containers, where everything else runs already or is about to. It can be run again: what an
earlier run left in the API server goes first, and the pods of this one stay.
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
from simulator.demo.acts import PODS, Theatre, done_by_driver
from simulator.demo.api import Api, Refused
from simulator.demo.checks import Checks
from simulator.demo.stage import DemoFailed
from simulator.demo.suite import driver_log, registrations

T = TypeVar("T")

SECONDS = 60.0
_LOOK_EVERY = 0.1
_NOT_FOUND = 404


def until(look: Callable[[], T | None], what: str) -> T:
    """Looks until something true comes back; what can't be reached yet counts as nothing.

    Raises:
        DemoFailed: it did not in time.
    """
    deadline = time.monotonic() + SECONDS
    while True:
        problem = ""
        try:
            if found := look():
                return found
        except Refused:
            raise
        except ClusterError as error:
            problem = f": {error}"
        if time.monotonic() > deadline:
            raise DemoFailed(
                f"waited {SECONDS:.0f} s in vain for {what}{problem}; the logs of the others may"
                " tell why (docker compose logs)"
            )
        time.sleep(_LOOK_EVERY)


def connect(kubeconfig: Path) -> Api:
    """The API server, once it serves."""

    def look() -> Api | None:
        if not kubeconfig.exists():
            return None
        api = Api(kubeconfig)
        api.get("/version")
        return api

    return until(look, f"the API server of {kubeconfig}")


def clear(api: Api) -> bool:
    """Has the pods of an earlier run go; whether there were any."""
    names = [plan.load()["metadata"]["name"] for plan in cluster.PODS]
    left = [name for name in names if _delete(api, f"{PODS}/{name}")]

    def gone() -> bool:
        there = {each["metadata"]["name"] for each in api.get(PODS)["items"]}
        return not there & set(left)

    until(gone, "the pods of an earlier run to go")
    return bool(left)


def _delete(api: Api, path: str) -> bool:
    try:
        api.delete(path)
    except Refused as refused:
        if refused.status.get("code") == _NOT_FOUND:
            return False
        raise
    return True


def register(api: Api, url: str, authority: Path) -> None:
    """Puts mappings and webhook configurations into the API server, in the place of older ones."""
    for path, obj in registrations(url, authority):
        with contextlib.suppress(Refused):
            api.delete(f"{path}/{obj['metadata']['name']}")
        api.post(path, obj)


def await_webhook(api: Api) -> None:
    """Waits until the webhook answers and knows the mappings: it lets pass what it must."""
    wanted = [plan for plan in cluster.PODS if not plan.refusal]
    said = ""

    def look() -> bool:
        nonlocal said
        try:
            for plan in wanted:
                api.post(f"{PODS}?dryRun=All", plan.load())
        except Refused as refused:
            said = str(refused)
            return False
        return True

    try:
        until(look, "the webhook to take in the mappings")
    except DemoFailed as failed:
        raise DemoFailed(f"{failed}; the API server said at last: {said}") from failed


def play(asked: argparse.Namespace) -> bool:
    """Tries the suite; whether all was as expected.

    Raises:
        AccelbindError: it could not be played to its end.
    """
    console, done, began = show.make_console(), Checks(), time.monotonic()
    api = connect(asked.kubeconfig)
    clear(api)
    theatre = Theatre(
        api=api,
        audit=asked.audit or asked.kubeconfig.with_name("audit.jsonl"),
        console=console,
        checks=done,
        until=until,
        driven=lambda node: done_by_driver(driver_log(asked.dir, node)),
        again=any(driver_log(asked.dir, plan).exists() for plan in cluster.NODES),
    )
    register(api, asked.webhook, asked.ca)
    theatre.show_nodes()
    await_webhook(api)
    theatre.play_pods()
    seconds = time.monotonic() - began
    console.print(show.title("Done"), show.checks(done, seconds, "everything stays up"))
    return not done.failed


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m simulator.demo.try_pods",
        description="Submit the demo's pods to a cluster of stand-ins.",
    )
    made.add_argument("--kubeconfig", type=Path, required=True, help="that of the API server")
    made.add_argument("--audit", type=Path, help="its audit log (default: beside the kubeconfig)")
    made.add_argument("--webhook", required=True, metavar="URL", help="where it finds the webhook")
    made.add_argument("--ca", type=Path, required=True, help="the CA of the webhook's certificate")
    made.add_argument("--dir", type=Path, required=True, help="has the nodes' folders")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Tries the suite: 0 if all was as expected, 1 if not."""

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
