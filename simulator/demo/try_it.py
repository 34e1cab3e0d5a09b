"""The demo in containers, where each of its processes has its own.

    python -m simulator.demo.try_it cards --dir DIR
    python -m simulator.demo.try_it pods --api-server ADDRESS --webhook URL --ca FILE --dir DIR

`cards` creates a folder for each of the demo's nodes: its devices and its bitstreams. Nodes that
exist stay as they are, since plugins may be reading them. `pods` creates the demo's pods on a
cluster that runs already or is about to, and shows what happens to each. It can be run again: it
deletes what an earlier run left in the API server, and leaves its own pods running.
"""

import argparse
import contextlib
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from services.process.errors import AccelbindError, ClusterError
from services.process.text import count
from simulator.client import Client, Refused
from simulator.demo import cluster, show
from simulator.demo.cluster import DemoPod, NodePlan, World
from simulator.demo.play import Player
from simulator.demo.reports import is_good, unexpected
from simulator.demo.suite import driver_log, prepare_node, register
from simulator.polling import poll_until

until = partial(poll_until, pause=0.1, ignoring=(ClusterError,))
"""Polls until something true is returned; an error of the API server counts as nothing."""
STAGED = ".root"


def lay_out_node(home: Path, plan: NodePlan) -> bool:
    """Create a node's `root`, `types` and `bitstreams`; whether they were missing."""
    if (home / "root").exists():
        return False
    home.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(home / STAGED, ignore_errors=True)
    prepare_node(home, plan, home / STAGED)
    (home / STAGED).rename(home / "root")
    return True


def lay_out_nodes(given: argparse.Namespace) -> bool:
    for plan in cluster.NODES:
        new = lay_out_node(given.dir / plan.name, plan)
        sys.stdout.write(
            f"{plan.name}: {len(plan.cards)} x {plan.driver}, mode {plan.mode},"
            f" {count(len(plan.bitstreams), 'bitstream')}{'' if new else ' (as they were)'}\n"
        )
    return True


def clear(api: Client, world: World) -> None:
    """Delete the pods of an earlier run, and wait until they are gone."""
    for one in world.pods:
        with contextlib.suppress(Refused):
            api.ask("DELETE", f"{one.collection}/{one.name}")

    def gone() -> bool:
        left = {each["metadata"]["name"] for each in api.ask("GET", "/api/v1/pods")["items"]}
        return not left & {one.name for one in world.pods}

    until(gone, "the pods of an earlier run to go")


def await_webhook(api: Client, world: World) -> None:
    """Wait until the webhook admits what it must: then it answers and has the mappings."""
    for one in world.pods:
        if one.expected and not one.expected.refusal:
            try_out = partial(
                api.ask, "POST", one.collection, params={"dryRun": "All"}, body=one.pod
            )
            until(try_out, f"the webhook to admit pod {one.name}")


def _again(plan: DemoPod) -> DemoPod:
    """The same where cards may have the functions of an earlier run."""
    return replace(plan, expected=plan.expected and replace(plan.expected, programmed=None))


def play(given: argparse.Namespace) -> bool:
    console, started = show.make_console(), time.monotonic()
    world = cluster.demo_world()
    logs = {plan.name: driver_log(given.dir, plan) for plan in world.nodes}
    if any(log.exists() for log in logs.values()):
        world = replace(world, pods=tuple(map(_again, world.pods)))
    with Client(given.api_server) as api:
        until(lambda: api.ask("GET", "/version"), f"the API server {given.api_server}")
        clear(api, world)
        player = Player(api, console, until, logs)
        register(api, given.webhook, given.ca, world)
        nodes = player.await_nodes(world.nodes)
        await_webhook(api, world)
        reports = player.play(world.pods, nodes)
    problems = [one for report in reports for one in unexpected(report)]
    seconds = time.monotonic() - started
    console.print(show.end(reports, problems, "everything keeps running", seconds))
    return is_good(reports, problems)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m simulator.demo.try_it")
    steps = made.add_subparsers(required=True)
    cards = steps.add_parser("cards", description="Create the folders of the demo's nodes.")
    cards.set_defaults(step=lay_out_nodes)
    pods = steps.add_parser("pods", description="Create the demo's pods on stand-ins.")
    pods.set_defaults(step=play)
    pods.add_argument("--api-server", required=True, metavar="ADDRESS", help="unix:PATH")
    pods.add_argument(
        "--webhook", required=True, metavar="URL", help="where the API server finds the webhook"
    )
    pods.add_argument("--ca", type=Path, required=True, help="the CA of the webhook's certificate")
    for step in (cards, pods):
        step.add_argument("--dir", type=Path, required=True, help="holds a folder for each node")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Do a step: 0 if all was as expected, 1 if not."""
    given = parser().parse_args(arguments)
    try:
        return 0 if given.step(given) else 1
    except AccelbindError as error:
        hint = "the logs of the other containers may show why (docker compose logs)"
        sys.stderr.write(f"error: {error}; {hint}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
