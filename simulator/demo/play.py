"""The demo from start to end: start the suite, create pods, show them, compare, stop it."""

import contextlib
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TypeAlias

from rich.console import Console, Group, RenderableType

from simulator.apiserver.resources import PATCH_ANNOTATION
from simulator.client import Client, Json, Refused
from simulator.demo import show
from simulator.demo.cluster import DemoPod, NodePlan, World
from simulator.demo.keep import prepare, write_workloads
from simulator.demo.reports import PodReport, has_capacity, is_good, is_running, unexpected
from simulator.demo.stage import Stage, temporary_folder
from simulator.demo.suite import api_server, driver_log, raise_suite

Until: TypeAlias = Callable[[Callable[[], Json | None], str], Json]
"""Polls until a function returns something true; raises if it takes too long."""

PATIENCE = 60.0
"""Seconds for a pod to start, once its node has what it asks for."""


@dataclass(frozen=True, slots=True)
class Player:
    api: Client
    console: Console
    until: Until
    driver_logs: Mapping[str, Path]
    """The log of each node's driver."""
    verbose: bool = False
    picture: Console | None = None
    """Gets the digest and some of the pods."""

    def await_nodes(self, plans: tuple[NodePlan, ...]) -> RenderableType:
        """Wait until all nodes have what their cards provide; a table of it."""
        capacities = [(plan, await_capacity(self.api, plan, self.until)) for plan in plans]
        for plan in plans:
            label(self.api, plan)
        return Group(show.title("Nodes"), show.nodes(capacities))

    def play(self, pods: tuple[DemoPod, ...], *scene: RenderableType) -> list[PodReport]:
        """Create pods one after the other, show each, and end with a table of all.

        The scene is shown after the first pods, which say in a line each what it is about.
        """
        reports = [self._create(plan) for plan in pods if plan.in_digest]
        if reports:
            self._print(show.digest(reports), in_picture=True)
        self.console.print(*scene, show.why_requests())
        for number, plan in enumerate(pods, 1):
            if number > len(reports):
                reports.append(self._create(plan))
            report = reports[number - 1]
            shown = Group(show.title(plan.title, number), show.pod(report, verbose=self.verbose))
            self._print(shown, in_picture=plan.in_picture)
        summary = show.summary(reports, width=self.console.width)
        self.console.print(show.title("Summary"), summary)
        return reports

    def _print(self, shown: RenderableType, *, in_picture: bool) -> None:
        for console in (self.console, self.picture if in_picture else None):
            if console:
                console.print(shown)

    def _create(self, plan: DemoPod) -> PodReport:
        before = {node: len(driver_calls(log)) for node, log in self.driver_logs.items()}
        try:
            created = self.api.ask("POST", plan.collection, body=plan.pod)
        except Refused as refused:
            return PodReport(plan, None, refused.status)
        noted = created["metadata"].get("annotations", {}).get(PATCH_ANNOTATION, "[]")
        pod = self._settled(f"{plan.collection}/{created['metadata']['name']}")
        calls = [
            call
            for node, log in self.driver_logs.items()
            for call in driver_calls(log)[before[node] :]
        ]
        reasons = () if is_running(pod) else tuple(_reasons(pod) or self._events(plan))
        return PodReport(plan, pod, {}, json.loads(noted), calls, reasons)

    def _settled(self, path: str) -> Json:
        """The pod once it runs, cannot run, or took too long."""
        deadline = time.monotonic() + PATIENCE

        def poll() -> Json | None:
            pod = self.api.ask("GET", path)
            over = is_running(pod) or _phase(pod) in ("Failed", "Succeeded") or _unscheduled(pod)
            return pod if over or time.monotonic() > deadline else None

        return self.until(poll, f"pod {path} to settle")

    def _events(self, plan: DemoPod) -> list[str]:
        path = plan.collection.removesuffix("pods") + "events"
        selector = {"fieldSelector": f"involvedObject.name={plan.name}"}
        events = self.api.ask("GET", path, params=selector)["items"]
        return [f"{one['reason']}: {one['message']}" for one in events if one["type"] == "Warning"]


def play(
    console: Console,
    world: World,
    *,
    verbose: bool = False,
    keep: bool = False,
    picture: Console | None = None,
) -> bool:
    """Play the demo; returns whether all pods were as expected, or ran.

    With `keep` everything runs on until a signal asks for the end. `picture` gets an excerpt of
    what is shown. Where the demo cannot be played to its end, the logs are shown.
    """
    started, interrupted = time.monotonic(), threading.Event()
    reports: list[PodReport] = []
    problems: list[str] = []

    def act() -> None:
        console.print(show.starting())
        raise_suite(stage, world, api)
        player = Player(
            api=api,
            console=console,
            until=stage.until,
            driver_logs={plan.name: driver_log(stage.folder, plan) for plan in world.nodes},
            verbose=verbose,
            picture=picture,
        )
        nodes = player.await_nodes(world.nodes)
        processes = show.processes(stage.parts, verbose=verbose)
        reports.extend(player.play(world.pods, show.title("Processes"), processes, nodes))
        problems.extend(one for report in reports for one in unexpected(report))
        if keep:
            write_workloads(api, world.nodes)
            console.print(show.kept(prepare(stage.folder, world.nodes)))
            stage.keep()

    with (
        _signals_set(interrupted),
        temporary_folder() as folder,
        Client(api_server(folder)) as api,
    ):
        stage = Stage(folder, interrupted=interrupted)
        codes = _on(stage, console, act)
        problems += [f"process {name} ended with {code}" for name, code in codes.items() if code]
        if problems:
            console.print(show.logs(stage))
        seconds = time.monotonic() - started
        console.print(show.end(reports, problems, "nothing is left running", seconds))
    if interrupted.is_set():
        raise KeyboardInterrupt
    if picture:
        picture.print(show.end(reports, problems, "nothing is left running"))
    return is_good(reports, problems)


def _on(stage: Stage, console: Console, act: Callable[[], None]) -> dict[str, int]:
    """Act, and stop all processes whatever happens; returns their exit codes."""
    try:
        act()
        return stage.stop()
    except Exception:
        console.print(show.logs(stage))
        raise
    finally:
        stage.kill()


def await_capacity(api: Client, plan: NodePlan, until: Until) -> Json:
    def poll() -> Json | None:
        with contextlib.suppress(Refused):  # not registered yet
            node = api.ask("GET", f"/api/v1/nodes/{plan.name}")
            return node if has_capacity(node, plan) else None
        return None

    return until(poll, f"the capacity of {plan.name}")


def label(api: Client, plan: NodePlan) -> None:
    """Label a node, as the feature discovery of a vendor does."""
    api.ask(
        "PATCH",
        f"/api/v1/nodes/{plan.name}",
        body={"metadata": {"labels": dict(plan.labels)}},
        content_type="application/merge-patch+json",
    )


def driver_calls(log: Path) -> list[Json]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [call for call in map(json.loads, lines) if "port" in call]


def _phase(pod: Json) -> str:
    return str(pod.get("status", {}).get("phase", ""))


def _unscheduled(pod: Json) -> list[Json]:
    conditions = pod.get("status", {}).get("conditions", [])
    return [one for one in conditions if one.get("reason") == "Unschedulable"]


def _reasons(pod: Json) -> list[str]:
    message = pod.get("status", {}).get("message")
    return ([f"{_phase(pod)}: {message}"] if message else []) + [
        f"{one['reason']}: {one.get('message', '')}" for one in _unscheduled(pod)
    ]


@contextlib.contextmanager
def _signals_set(interrupted: threading.Event) -> Iterator[None]:
    """Have SIGTERM and SIGHUP end the demo as Ctrl-C does, with everything stopped and removed."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        interrupted.set()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
