"""How the demo looks: everything it prints is made here, from values."""

import json
from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from accelbind.demo.api import Json
from accelbind.demo.checks import Checks, capacity, containers, environment, given
from accelbind.demo.cluster import NodePlan, PodPlan
from accelbind.demo.stage import Stage

WIDTH = 110


def make_console() -> Console:
    """A console as wide as the terminal, or `WIDTH` where there is none."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    return console


def title(text: str, number: int | None = None) -> RenderableType:
    """A line across, with a number where things are counted."""
    shown = f"[bold]{number} · {text}[/bold]" if number else f"[bold]{text}[/bold]"
    return Padding(Rule(shown, align="left", style="cyan"), (1, 0, 0, 0))


def processes(parts: Iterable[tuple[str, int, str]]) -> RenderableType:
    """What runs: process, process id, what it is."""
    table = _table("process", "pid", "what it is")
    for name, pid, what in parts:
        table.add_row(name, str(pid), what)
    return table


def nodes(found: Sequence[tuple[NodePlan, Json]]) -> RenderableType:
    """The nodes: mode, cards, and what the kubelet made of them."""
    table = _table("node", "mode", "cards", "resource", "capacity", "allocatable")
    for plan, node in found:
        first = (plan.name, plan.mode, f"{len(plan.cards)} x {plan.driver}")
        allocatable = node["status"].get("allocatable", {})
        for resource, count in sorted(capacity(node).items()):
            table.add_row(*first, resource, str(count), str(allocatable.get(resource, "?")))
            first = ("", "", "")
    return table


def pod(plan: PodPlan, pod: Json, patch: Sequence[Json]) -> RenderableType:
    """A pod that runs: as written, the patch, and what its containers got."""
    return Group(
        _as_written(plan),
        Text("the webhook's patch", style="bold"),
        Padding(_patch(patch), (0, 0, 1, 2)),
        Text(f"on {pod['spec'].get('nodeName')}", style="bold"),
        Padding(_containers(pod), (0, 0, 0, 2)),
    )


def refusal(plan: PodPlan, status: Json) -> RenderableType:
    """A pod that was refused: as written, and what kubectl prints."""
    message = (
        f"Error from server ({status.get('reason')}): error when creating"
        f' "{plan.file}": {status.get("message")}'
    )
    return Group(_as_written(plan), Text(message, style="red"))


def checks(done: Checks, seconds: float) -> RenderableType:
    """The end: how many expectations held, and each that did not."""
    held = len(done.results) - len(done.failed)
    if not done.failed:
        text = f"all {held} expectations held, nothing is left running · {seconds:.1f} s"
        return Panel(Text(text, style="bold green"), border_style="green", expand=False)
    table = _table("expected", "but")
    for what, wrong in done.failed:
        table.add_row(Text(what), Text(wrong, style="red"))
    head = Text(f"{len(done.failed)} of {len(done.results)} expectations failed", style="bold red")
    return Group(head, table)


def logs(stage: Stage) -> RenderableType:
    """The ends of all logs, for when something went wrong."""
    return Group(
        *(
            Panel(Text(part.tail() or "(nothing)"), title=f"{part.name}: the end of its log")
            for part in stage.parts
        )
    )


def _as_written(plan: PodPlan) -> RenderableType:
    spec = plan.text().partition("spec:\n")[2]
    code = Syntax(spec.rstrip(), "yaml", background_color="default", word_wrap=True)
    return Panel(code, title=f"{plan.file}, from spec: on", title_align="left", border_style="dim")


def _patch(operations: Sequence[Json]) -> RenderableType:
    """An operation a line: what is removed, what is added where."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for operation in operations:
        *parents, last = str(operation["path"]).split("/")
        place = Text("/".join(parents) + "/", style="dim")
        place.append(last.replace("~1", "/").replace("~0", "~"), style="default")
        removed = operation["op"] == "remove"
        if not removed:
            place.append(f" = {_value(operation.get('value'))}", style="green")
        sign = Text("-", style="bold red") if removed else Text("+", style="bold green")
        table.add_row(sign, place)
    return table


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _containers(pod: Json) -> RenderableType:
    table = _table("container", "device ids", "in the container", "on the host", "environment")
    got = given(pod)
    for kind, container in containers(pod):
        name = container["name"]
        mine = got.get(name, {})
        ids = [one for ids in mine.get("allocated", {}).values() for one in ids]
        devices = mine.get("devices", [])
        env = Text("\n").join(
            Text.assemble((f"{key}=", "cyan"), value) for key, value in environment(mine).items()
        )
        table.add_row(
            Text(f"{name}\n(init)" if kind == "initContainers" else name),
            Text("\n".join(ids)),
            Text("\n".join(f"{one['containerPath']} {one['permissions']}" for one in devices)),
            Text("\n".join(_below_root(one["hostPath"]) for one in devices)),
            env,
        )
    return table


def _below_root(path: str) -> str:
    """A host path without the temporary folder before the node's own."""
    _, node, rest = path.rpartition("/node-")
    return f"…{node}{rest}"


def _table(*headings: str) -> Table:
    table = Table(header_style="bold", border_style="dim", pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
