"""The demo from beginning to end: raise the suite, create pods, look, compare, take it down."""

import contextlib
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from accelbind.demo import checks, cluster, show
from accelbind.demo.api import Json, Refused
from accelbind.demo.checks import Checks
from accelbind.demo.cluster import NodePlan, PodPlan
from accelbind.demo.stage import Stage
from accelbind.demo.suite import WEBHOOK, Suite, driver_of, raise_suite

PODS = f"/api/v1/namespaces/{cluster.NAMESPACE}/pods"

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
    console.print(show.title("Done"), show.checks(done, time.monotonic() - began))
    return not done.failed


def _play(stage: Stage, console: Console, done: Checks) -> None:
    suite = raise_suite(stage)
    console.print(show.title("What runs"), show.processes(_describe(stage, suite)))
    found = [(plan, _node(stage, suite, plan)) for plan in cluster.NODES]
    console.print(show.title("The nodes"), show.nodes(found))
    for plan, node in found:
        done.equal(f"{plan.name}: capacity", checks.capacity(node), dict(plan.capacity))
    for number, pod in enumerate(cluster.PODS, 1):
        console.print(show.title(pod.title, number))
        act = _refused if pod.refusal else _running
        act(stage, suite, console, done, pod)


def _describe(stage: Stage, suite: Suite) -> Iterator[tuple[str, int, str]]:
    for part in stage.parts:
        kind, _, node = part.name.partition("-")
        text = _DESCRIPTIONS.get(part.name) or _DESCRIPTIONS[kind]
        yield part.name, part.process.pid, text.format(node=node, port=suite.ports.get(part.name))


def _node(stage: Stage, suite: Suite, plan: NodePlan) -> Json:
    """The node once it has its capacity."""

    def look() -> Json | None:
        with contextlib.suppress(Refused):  # not registered yet
            node = suite.api.get(f"/api/v1/nodes/{plan.name}")
            return node if checks.has_capacity(node, plan) else None
        return None

    return stage.until(look, f"the capacity of {plan.name}")


def _running(stage: Stage, suite: Suite, console: Console, done: Checks, plan: PodPlan) -> None:
    written = plan.load()
    before = len(_driven(stage, plan))
    created = suite.api.post(PODS, written)
    patch = _newest_patch(suite.audit)
    name = created["metadata"]["name"]

    def look() -> Json | None:
        pod = suite.api.get(f"{PODS}/{name}")
        return pod if checks.has_started(pod, plan) else None

    pod = stage.until(look, f"the containers of pod {name} to start")
    driven = _driven(stage, plan)[before:]
    console.print(show.pod(plan, pod, patch, driven))
    checks.check_pod(done, plan, written, pod)
    programmed = tuple(each["afuId"] for each in driven if each["what"] == "programmed")
    done.equal(f"{name}: programmed before it started", programmed, plan.programmed)
    done.equal(f"{name}: was patched", bool(patch), expected=True)


def _driven(stage: Stage, plan: PodPlan) -> list[Json]:
    """What the driver of a node's cards has done so far; nothing where it isn't needed."""
    node = next(each for each in cluster.NODES if each.name == plan.node)
    lines = [
        line
        for part in stage.parts
        if part.name == driver_of(node)
        for line in part.log.read_text().splitlines()
    ]
    every: list[Json] = [json.loads(line) for line in lines]
    return [each for each in every if "port" in each]


def _refused(_stage: Stage, suite: Suite, console: Console, done: Checks, plan: PodPlan) -> None:
    name = plan.load()["metadata"]["name"]
    try:
        suite.api.post(PODS, plan.load())
    except Refused as refused:
        status = refused.status
    else:
        status = {"message": "it was admitted"}
    console.print(show.refusal(plan, status))
    done.equal(f"{name}: refused", (status.get("code"), status.get("reason")), (403, "Forbidden"))
    with contextlib.suppress(Refused):
        suite.api.get(f"{PODS}/{name}")
        done.equal(f"{name}: does not exist", "it does", "it does not")
    message = str(status.get("message"))
    done.holds(f"{name}: the refusal says why", (WEBHOOK, "denied", *plan.refusal), message)


def _newest_patch(audit: Path) -> list[Json]:
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
