"""How the demo looks: everything it prints is made here, from values.

Names that do not fit are folded into several lines, so that all of them can be read.
"""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import yaml
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from services.process.text import clip, count
from simulator.client import Json
from simulator.demo.cluster import NodePlan
from simulator.demo.keep import Kept
from simulator.demo.reports import (
    PodReport,
    capacity,
    containers,
    given,
    is_good,
    short,
    unexpected,
)
from simulator.demo.stage import Part, Stage

_GAP = 2
"""Columns between two columns of a table."""

_SHOWN = 27
"""Characters of a name in the digest: on 80 columns, all three stand side by side."""

_RESOURCE = 31
"""Characters of a resource's name in the table of nodes: one line each."""

_TRY = (
    "kubectl get pods -A",
    "accelbind doctor",
    "accelbind devices",
    'accelbind bitstream info "$SAMPLES"/*',
    "accelbind fpga list",
    "accelbind fpga program PORT BITSTREAM --dry-run",
)


def make_console() -> Console:
    """A console as wide as the terminal, or `COLUMNS`, or 80 columns."""
    return Console(highlight=False)


def make_picture() -> Console:
    """A console of 80 columns that prints nowhere and can be saved as a picture."""
    return Console(highlight=False, record=True, width=80, file=io.StringIO())


def save_picture(console: Console, file: Path) -> None:
    """Write what was printed to a picture's console as an SVG, without fonts from the web."""
    svg = console.export_svg(title="accelbind demo (excerpt)", unique_id="accelbind-demo")
    file.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL), encoding="utf-8")


def title(text: str, number: int | None = None) -> RenderableType:
    shown = Text(f"{number} · {text}" if number else text, style="bold")
    return Padding(Rule(shown, align="left", style="cyan"), (1, 0, 0, 0))


def starting() -> RenderableType:
    return Text("A simulated cluster starts on this machine. No cluster is needed, and no card.")


def digest(reports: Sequence[PodReport]) -> RenderableType:
    """A line for each pod: the name, what it becomes or how it is refused, the device."""
    table = _table("a pod requests", "it becomes", "its container gets")
    table.columns[2].no_wrap = False
    for report in reports:
        names = Text("\n".join(name for _, name in report.asked_for), style="bold")
        if report.stored is None:
            nearest = re.search(r"did you mean (.*?\?)", str(report.refusal.get("message")))
            answer = f"refused; did you mean\n{nearest[1]}" if nearest else "refused"
            table.add_row(names, Text(answer, style="red"), Text())
        else:
            devices = Text("\n".join(report.devices), style="green")
            became = "\n".join(clip(name, _SHOWN) for name in report.became)
            table.add_row(names, Text(became), devices)
    remark = "accelbind replaces names and serves the FPGA; the GPU keeps its vendor's plugin."
    return Group(Text(), table, Text(), Text(remark, style="italic"))


def processes(parts: Sequence[Part], *, verbose: bool) -> RenderableType:
    text = Text(
        f"{len(parts)} processes: the accelbind webhook and one plugin per node; stand-ins for"
        " the API server, the kubelets and a driver."
    )
    if not verbose:
        return text
    table = _table("process", "pid")
    for part in parts:
        table.add_row(part.name, str(part.process.pid))
    return Group(text, table)


def nodes(found: Sequence[tuple[NodePlan, Json]]) -> RenderableType:
    table = _table("node", "mode", "cards", "resource", "devices")
    table.columns[4].justify = "right"
    for plan, node in found:
        cards = f"{len(plan.cards)} x {plan.driver}" if plan.cards else "none"
        first = (Text(plan.name, style="bold"), plan.mode, cards)
        offered = sorted(capacity(node).items()) + sorted(plan.others.items())
        for name, devices in offered or [("none", 0)]:
            table.add_row(*first, Text(clip(name, _RESOURCE)), str(devices))
            first = (Text(), "", "")
    return table


def why_requests() -> RenderableType:
    text = (
        "Patches change limits and requests, since the API server copies limits to requests before"
        " it calls the webhook; each change is shown once."
    )
    return Padding(Text(text, style="italic"), (1, 0, 0, 0))


def pod(report: PodReport, *, verbose: bool) -> RenderableType:
    """The end of a pod; verbose with its manifest, the whole patch and all variables."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True, min_width=10)
    table.add_column(overflow="fold")
    for label, line in _lines(report):
        table.add_row(Text(label, style="dim"), line)
    if not verbose:
        return table
    whole = {"manifest": report.plan.pod, "patch": list(report.patch)}
    whole["containers"] = given(report.stored or {})
    text = yaml.safe_dump(whole, sort_keys=False, allow_unicode=True)
    return Group(table, Syntax(text, "yaml", background_color="default", word_wrap=True))


def summary(reports: Sequence[PodReport], *, width: int = 80) -> RenderableType:
    """A row for each pod, on so many columns: what it asked for, where it runs, what it got."""
    table = _table("pod", "asked for", "node", "device", "outcome")
    table.columns[0].max_width = 14
    for column in table.columns:  # on 80 columns, the names asked for get what the others leave
        column.no_wrap = width >= 80 and column.header != "asked for"
    for report in reports:
        table.add_row(
            Text(report.plan.name, no_wrap=False),
            Text("\n".join(times + short(name) for times, name in report.asked_for) or "-"),
            Text(report.node or "-", no_wrap=False),
            Text("\n".join(Path(one).name for one in report.devices) or "-", no_wrap=False),
            _outcome(report),
        )
    return table


def kept(nodes: Sequence[Kept]) -> RenderableType:
    first = nodes[0]
    lines = Text("In another terminal, for the commands below:\n\n")
    for each in nodes:
        note = f"mode {each.plan.mode}" if each is first else f"or for {each.plan.name}"
        lines.append(f"  . {each.file}", style="bold").append(f"    # {note}\n", style="dim")
    lines.append(f"\nIt sets PATH (accelbind for simulated cards) and, for {first.plan.name}:\n\n")
    for name, value in first.variables.items():
        lines.append(f"  {name}={value}\n")
    lines.append("\nThen try:\n\n")
    for command in _TRY:
        lines.append(f"  {command}\n", style="bold")
    lines.append("\nEverything keeps running until Ctrl-C here, and is then removed.")
    return Group(title("Your turn"), lines)


def end(
    reports: Sequence[PodReport],
    problems: Sequence[str],
    left: str,
    seconds: float | None = None,
) -> RenderableType:
    total, ran = len(reports), sum(one.is_running for one in reports)
    if any(one.plan.expected for one in reports):
        wrong = sum(bool(unexpected(one)) for one in reports)
        text = f"{total - wrong} of {count(total, 'pod')} behaved as expected"
    else:
        text = f"{ran} of {count(total, 'pod')} ran"
    style = "bold green" if is_good(reports, problems) else "bold red"
    took = "" if seconds is None else f" ({seconds:.1f} s)"
    return Group(
        *(Text(f"not as expected: {one}", style="red") for one in problems),
        Text(f"{text}; {left}{took}", style=style),
    )


def logs(stage: Stage) -> RenderableType:
    return Group(
        *(
            Group(title(f"{part.name}: the end of its log"), Text(part.tail() or "(nothing)"))
            for part in stage.parts
        )
    )


def _outcome(report: PodReport) -> Text:
    if report.plan.expected and not unexpected(report):
        text = "running" if report.is_running else "refused (expected)"
        return Text(text, style="green", no_wrap=False)
    text = "running" if report.is_running else "refused" if report.stored is None else "not running"
    if report.plan.expected:
        text += ", not as expected"
    return Text(text, style="green" if text == "running" else "red", no_wrap=False)


def _lines(report: PodReport) -> Iterator[tuple[str, Text]]:
    asked = (Text(times + name, style="bold") for times, name in report.asked_for)
    yield from _labelled("asks for", asked)
    if report.stored is None:
        yield "refused", Text(str(report.refusal.get("message")), style="red")
        return
    changes = _changes(report.patch)
    yield from _labelled("patch", changes or [Text("none: nothing to change", style="dim")])
    if not report.devices:
        yield "node", Text(report.node or "none")
    for port, afu_id in report.programmed:
        yield "programmed", Text(f"{port} with AFU {afu_id}", style="yellow")
    yield from _devices(report)
    if report.plan.shows_variables:
        got = given(report.stored).values()
        lines = (Text(f"{one['name']}={one['value']}") for each in got for one in each["env"])
        yield from _labelled("variables", lines)
    if not report.is_running:
        reasons = report.reasons or ["no reason was reported; --keep lets you look for it"]
        yield from _labelled("not running", (Text(one, style="red") for one in reasons))


def _labelled(label: str, lines: Iterable[Text]) -> Iterator[tuple[str, Text]]:
    for number, line in enumerate(lines):
        yield "" if number else label, line


def _devices(report: PodReport) -> Iterator[tuple[str, Text]]:
    """The device nodes of a pod, each with its containers where there are several."""
    holders: dict[str, list[str]] = {}
    got = given(report.stored or {})
    for container in containers(report.stored or {}):
        for one in got.get(container["name"], {}).get("devices", []):
            device = f"{one['containerPath']} {one['permissions']}"
            holders.setdefault(device, []).append(container["name"])
    several = len(got) > 1
    lines = (
        Text.assemble(
            (device, "green"),
            (f" on {report.node}" + (f", in {' and '.join(names)}" if several else ""), "dim"),
        )
        for device, names in holders.items()
    )
    yield from _labelled("device", lines)


def _changes(patch: Sequence[Json]) -> list[Text]:
    """A line for each change; equal changes at several places are one line."""
    lines: dict[str, Text] = {}
    for operation in patch:
        removed = operation["op"] == "remove"
        sign = ("- ", "bold red") if removed else ("+ ", "bold green")
        for path, value in _leaves(str(operation["path"]), operation.get("value")):
            parent, _, last = path.rpartition("/")
            name = last.replace("~1", "/").replace("~0", "~")
            text = value if last == "-" else name if removed else f"{name} = {value}"
            text = short(text)
            if parent.endswith("/annotations"):
                text = f"annotation {name}: what was asked for"
            line = Text.assemble(sign, (text, "" if removed else "green"))
            lines.setdefault(line.plain, line)
    return list(lines.values())


def _leaves(path: str, value: object) -> Iterator[tuple[str, str]]:
    """The changes of an operation, variables and annotations one by one."""
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


def _table(*headings: str) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, _GAP, 0, 0), pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=True)
    return table
