"""How the demo looks: everything it prints is made here, from values."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from simulator.demo.api import Json
from simulator.demo.checks import Checks, capacity, containers, environment, given
from simulator.demo.cluster import NodePlan
from simulator.demo.stage import Stage

WIDTH = 120


class Written(Protocol):
    """A pod as its author wrote it."""

    @property
    def file(self) -> str:
        """Where it stands."""

    def text(self) -> str:
        """What stands there, or its spec."""


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
    table = _table("node", "resource", "capacity", "allocatable")
    for plan, node in found:
        cards = f", {len(plan.cards)} x {plan.driver}" if plan.cards else ", no cards"
        told = iter((f"[bold]{plan.name}[/bold]", f"mode {plan.mode}{cards}"))
        allocatable = node["status"].get("allocatable", {})
        rows = [
            (name, str(count), str(allocatable.get(name, "?")))
            for name, count in sorted(capacity(node).items())
        ]
        for row in rows + [("", "", "")] * (2 - len(rows)):
            table.add_row(next(told, ""), *row)
    return table


def pod(plan: Written, pod: Json, patch: Sequence[Json], driven: Sequence[Json]) -> RenderableType:
    """A pod that runs: as written, the patch, what was done for it, and what its containers got."""
    return Group(
        _as_written(plan),
        Text("the webhook's patch" if patch else "no patch: nothing to change", style="bold"),
        Padding(_patch(patch), (0, 0, 1, 2)),
        Text(f"on {pod['spec'].get('nodeName', 'no node')}", style="bold"),
        Padding(_containers(pod), (0, 0, 0, 2)),
        *(_done_by_driver(each) for each in driven),
    )


def refusal(plan: Written, status: Json) -> RenderableType:
    """A pod that was refused: as written, and what kubectl prints."""
    message = (
        f"Error from server ({status.get('reason')}): error when creating"
        f' "{plan.file}": {status.get("message")}'
    )
    return Group(_as_written(plan), Text(message, style="red"))


def waiting(reasons: Sequence[str]) -> RenderableType:
    """Why a pod doesn't run, a line a reason."""
    lines = reasons or ["nobody said why; --keep leaves the logs"]
    return Text("it does not run\n" + "\n".join(f"  {line}" for line in lines), style="red")


def checks(done: Checks, seconds: float, after: str) -> RenderableType:
    """The end: how many expectations held, what is left, and each that did not."""
    held = len(done.results) - len(done.failed)
    if not done.failed:
        text = f"all {held} expectations held, {after} · {seconds:.1f} s"
        return Panel(Text(text, style="bold green"), border_style="green", expand=False)
    table = _table("expected", "but")
    for what, wrong in done.failed:
        table.add_row(Text(what), Text(wrong, style="red"))
    head = Text(f"{len(done.failed)} of {len(done.results)} expectations failed", style="bold red")
    return Group(head, table)


def outcome(ran: Sequence[bool], seconds: float) -> RenderableType:
    """The end for pods of one's own: how many run."""
    style = "green" if all(ran) else "red"
    text = f"{sum(ran)} of {len(ran)} pods ran, nothing is left running · {seconds:.1f} s"
    return Panel(Text(text, style=f"bold {style}"), border_style=style, expand=False)


def logs(stage: Stage) -> RenderableType:
    """The ends of all logs, for when something went wrong."""
    return Group(
        *(
            Panel(Text(part.tail() or "(nothing)"), title=f"{part.name}: the end of its log")
            for part in stage.parts
        )
    )


def _done_by_driver(done: Json) -> RenderableType:
    line = Text(f"  {done['port']} {done['what']}", style="bold yellow")
    return line.append(f" with AFU {done['afuId']}" if done["what"] == "programmed" else "")


def _as_written(plan: Written) -> RenderableType:
    spec = plan.text().partition("spec:\n")[2]
    code = Syntax(spec.rstrip(), "yaml", background_color="default", word_wrap=True)
    return Panel(code, title=f"{plan.file}, from spec: on", title_align="left", border_style="dim")


def _patch(operations: Sequence[Json]) -> RenderableType:
    """An operation a line: what is removed, what is added where."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for operation in operations:
        removed = operation["op"] == "remove"
        sign = Text("-", style="bold red") if removed else Text("+", style="bold green")
        for path, value in _leaves(str(operation["path"]), operation.get("value")):
            *parents, last = path.split("/")
            place = Text("/".join(parents) + "/", style="dim")
            place.append(last.replace("~1", "/").replace("~0", "~"), style="default")
            if not removed:
                place.append(f" = {value}", style="green")
            table.add_row(sign, place)
    return table


def _leaves(path: str, value: object) -> Iterator[tuple[str, str]]:
    """What an operation sets, variables and annotations one by one."""
    match value:
        case {"name": str(name), "value": str(text)}:
            yield path, f"{name}={text}"
        case list():
            for one in value:
                yield from _leaves(f"{path}/-", one)
        case dict():
            for key, one in value.items():
                yield from _leaves(f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}", one)
        case _:
            yield path, str(value)


def _containers(pod: Json) -> RenderableType:
    """A container's devices and variables, a line each."""
    table = Table.grid(padding=(0, 2))
    for _ in range(2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    got = given(pod)
    for kind, container in containers(pod):
        mine = got.get(container["name"], {})
        name = Text(container["name"], style="bold")
        table.add_row(name.append(" (init)" if kind == "initContainers" else "", style="dim"))
        ids = [one for ids in mine.get("allocated", {}).values() for one in ids]
        table.add_row("", Text("devices", style="dim"), Text(", ".join(ids)))
        for at, device in enumerate(mine.get("devices", [])):
            node = Text(f"{device['containerPath']} {device['permissions']}", style="green")
            node.append(f"  on the host {_below_root(device['hostPath'])}", style="dim")
            table.add_row("", Text("" if at else "nodes", style="dim"), node)
        for at, (variable, value) in enumerate(environment(mine).items()):
            line = Text.assemble((f"{variable}=", "cyan"), value)
            table.add_row("", Text("" if at else "environment", style="dim"), line)
    return table


def _below_root(path: str) -> str:
    """A host path without the temporary folder before the node's own."""
    _, node, rest = path.rpartition("/node-")
    return f"…{node}{rest}"


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", border_style="dim", pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
