"""What the demo plays on a cluster that serves, however it was raised: nodes, pods, comparisons."""

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from rich.console import Console

from simulator.demo import checks, cluster, show
from simulator.demo.api import Api, Json, Refused
from simulator.demo.checks import Checks
from simulator.demo.cluster import NodePlan, PodPlan
from simulator.demo.suite import WEBHOOK

PODS = f"/api/v1/namespaces/{cluster.NAMESPACE}/pods"

T = TypeVar("T")


class Until(Protocol):
    """Looks until something true comes back, and raises if it doesn't in time."""

    def __call__(self, look: Callable[[], T | None], what: str) -> T:
        """What `look` gave; `what` is waited for, for the error."""


@dataclass(frozen=True, slots=True)
class Theatre:
    """A cluster, and who watches.

    Args:
        api: its API server.
        audit: the audit log of that.
        console: where to show what happens.
        checks: takes what was expected and seen.
        until: how to wait.
        driven: what the driver of a node's cards has done so far.
        again: whether pods may have been here before, whose functions are still in the cards.
    """

    api: Api
    audit: Path
    console: Console
    checks: Checks
    until: Until
    driven: Callable[[NodePlan], list[Json]]
    again: bool = False

    def show_nodes(self) -> None:
        """Waits for the nodes' capacity and shows it."""
        found = [(plan, furnished(self.api, plan, self.until)) for plan in cluster.NODES]
        self.console.print(show.title("The nodes"), show.nodes(found))
        for plan, node in found:
            self.checks.equal(f"{plan.name}: capacity", checks.capacity(node), dict(plan.capacity))

    def play_pods(self) -> None:
        """Creates the pods one after the other and shows what becomes of each."""
        for number, pod in enumerate(cluster.PODS, 1):
            self.console.print(show.title(pod.title, number))
            (self._refused if pod.refusal else self._running)(pod)

    def _running(self, plan: PodPlan) -> None:
        written, node = plan.load(), _node_of(plan)
        before = len(self.driven(node))
        created = self.api.post(PODS, written)
        patch = newest_patch(self.audit)
        name = created["metadata"]["name"]

        def look() -> Json | None:
            pod = self.api.get(f"{PODS}/{name}")
            return pod if checks.has_started(pod, plan) else None

        pod = self.until(look, f"the containers of pod {name} to start")
        driven = self.driven(node)[before:]
        self.console.print(show.pod(plan, pod, patch, driven))
        checks.check_pod(self.checks, plan, written, pod)
        self._check_functions(plan, name, driven)
        self.checks.equal(f"{name}: was patched", bool(patch), expected=True)

    def _check_functions(self, plan: PodPlan, name: str, driven: Sequence[Json]) -> None:
        programmed = tuple(each["afuId"] for each in driven if each["what"] == "programmed")
        if not self.again or programmed:
            what = f"{name}: programmed before it started"
            self.checks.equal(what, programmed, plan.programmed)
        given = {each["afuId"] for each in driven if each["what"] == "reset"}
        self.checks.equal(f"{name}: reset with its function in it", given, set(plan.programmed))

    def _refused(self, plan: PodPlan) -> None:
        name = plan.load()["metadata"]["name"]
        try:
            self.api.post(PODS, plan.load())
        except Refused as refused:
            status = refused.status
        else:
            status = {"message": "it was admitted"}
        self.console.print(show.refusal(plan, status))
        seen = (status.get("code"), status.get("reason"))
        self.checks.equal(f"{name}: refused", seen, (403, "Forbidden"))
        with contextlib.suppress(Refused):
            self.api.get(f"{PODS}/{name}")
            self.checks.equal(f"{name}: does not exist", "it does", "it does not")
        message = str(status.get("message"))
        words = (WEBHOOK, "denied", *plan.refusal)
        self.checks.holds(f"{name}: the refusal says why", words, message)


def furnished(api: Api, plan: NodePlan, until: Until) -> Json:
    """A node, once it has the capacity that its cards are worth."""

    def look() -> Json | None:
        with contextlib.suppress(Refused):  # not registered yet
            node = api.get(f"/api/v1/nodes/{plan.name}")
            return node if checks.has_capacity(node, plan) else None
        return None

    return until(look, f"the capacity of {plan.name}")


def _node_of(plan: PodPlan) -> NodePlan:
    return next(each for each in cluster.NODES if each.name == plan.node)


def done_by_driver(log: Path) -> list[Json]:
    """What a stand-in for a driver says in its log that it has done."""
    lines = log.read_text().splitlines() if log.exists() else []
    every: list[Json] = [json.loads(line) for line in lines]
    return [each for each in every if "port" in each]


def newest_patch(audit: Path) -> list[Json]:
    """The webhook's patch of the pod that was created last, from the API server's audit log."""
    for line in reversed(audit.read_text().splitlines()):
        entry = json.loads(line)
        if entry["verb"] == "create" and entry["objectRef"]["resource"] == "pods":
            for name, value in entry["annotations"].items():
                if name.startswith("patch.webhook.admission.k8s.io/"):
                    patch: list[Json] = json.loads(value)["patch"]
                    return patch
            return []
    return []
