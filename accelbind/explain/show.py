"""How `accelbind explain` prints its answers: as text, JSON, or the pods as YAML."""

import difflib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import typer

from accelbind.explain.answer import PATCHED, REFUSED, Answer, ExplainedClaim, Rewrite
from accelbind.manifests import yaml_text
from accelbind.output import StyledLine, print_lines, styled
from services.mappings.accelerator import Effects
from services.mappings.model import Mapping, Mode, Resolution
from services.process.text import plain

_MODES: Final = {
    Mode.AF: "the device has the function",
    Mode.REGION: "the container starts only with the function in its region",
    Mode.REGIONDEVEL: "the container programs the region itself",
}
_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}


def as_object(answer: Answer) -> dict[str, Any]:
    """An answer as JSON."""
    found = answer.found
    return {
        "kind": found.kind,
        "pod": found.name,
        "namespace": answer.namespace,
        "template": found.template_at,
        "outcome": answer.outcome,
        "reasons": [
            {"code": each.code, "container": each.subject, "message": each.text}
            | ({"by": answer.author} if answer.author else {})
            for each in answer.reasons
        ],
        "message": answer.message,
        "patch": list(answer.patch),
        "rewrites": [*map(_rewrite_object, answer.rewrites)],
        "warnings": list(answer.warnings),
        "claims": msgspec.to_builtins(answer.claims),
        "hints": list(answer.hints),
        "assumed": answer.assumed,
        "admitted": answer.pod,
    }


def _rewrite_object(rewrite: Rewrite) -> dict[str, Any]:
    mapping = rewrite.mapping
    return {
        "container": rewrite.container,
        "init": rewrite.init,
        "logical": rewrite.key,
        "resource": rewrite.resource,
        "count": rewrite.count,
        "mode": mapping.resolution.mode if mapping else None,
        "mapping": mapping.label if mapping else "",
    }


def print_yaml(answers: Sequence[Answer]) -> None:
    """Print the pods that are admitted, and on stderr why others aren't."""
    pods = [each.pod for each in answers if each.pod is not None]
    typer.echo(yaml_text(*pods), nl=False)
    for each in answers:
        if each.pod is None:
            typer.echo(f"refused: {each.found.label}: {each.message}", err=True)


def print_text(answers: Sequence[Answer], places: Sequence[str]) -> None:
    """Print answers for people, each with its place, such as a file; empty if that is clear."""
    for number, (answer, place) in enumerate(zip(answers, places, strict=True)):
        if number:
            typer.echo()
        print_lines(lines(answer, place))
        if answer.after:
            typer.echo()
            before, after = (yaml_text(each).splitlines() for each in (answer.before, answer.after))
            changes = difflib.unified_diff(before, after, "as written", "as admitted", lineterm="")
            for line in changes:
                typer.echo(styled(line, _COLOURS.get(line[:1])))
        for hint in answer.hints:
            typer.echo(f"hint: {answer.found.label}: {hint}", err=True)
    if len(answers) > 1:
        refused = sum(each.is_refused for each in answers)
        typer.echo(f"\n{len(answers) - refused} admitted, {refused} refused")


def lines(answer: Answer, place: str = "") -> Iterator[str | StyledLine]:
    """Yield the lines of an answer, without the change of the pod."""
    found = answer.found
    title = f"{place}{found.label} in namespace {plain(answer.namespace)}: "
    if found.is_template:
        title += "its pods would be "
    if answer.outcome == REFUSED:
        yield "red", f"{title}refused"
        by = f"by {answer.author}: " if answer.author else ""
        yield from (f"  ✗ {by}{each.text} [{each.code}]" for each in answer.reasons)
    elif answer.outcome == PATCHED:
        yield "green", f"{title}admitted, {'rewritten' if answer.rewrites else 'changed'}"
        for rewrite in answer.rewrites:
            yield from _rewrite_lines(rewrite)
    else:
        yield "green", f"{title}admitted unchanged"
        yield from (f"  {each.text}" for each in answer.reasons)
    yield from (("yellow", f"  warning: {warning}") for warning in answer.warnings)
    if answer.assumed:
        yield "yellow", f"  assumed: {answer.assumed}"
    yield from map(_claim_line, answer.claims)


def _claim_line(one: ExplainedClaim) -> str:
    where = f"claim {plain(one.claim)}"
    if one.request:
        where += f", request {plain(one.request)}, DeviceClass {plain(one.device_class)}"
    return f"  {'✗ ' if one.is_refused else ''}{where}: {one.message}"


def _rewrite_lines(rewrite: Rewrite) -> Iterator[str]:
    kind = "init container" if rewrite.init else "container"
    what = f"{rewrite.key}: {rewrite.count} becomes {rewrite.becomes}"
    yield f"  {kind} {plain(rewrite.container)}: {what}"
    if rewrite.mapping:
        yield f"    {_why(rewrite.mapping)}"


def _why(mapping: Mapping) -> str:
    resolution = mapping.resolution
    if resolution.mode is None:
        return f"{mapping.label}: {', '.join(_brings(resolution))}"
    what = f"interface {resolution.interface_id}"
    if resolution.afu_id is not None:
        what = f"function {resolution.afu_id} of {what}"
    return f"{mapping.label}: {what}, mode {resolution.mode}: {_MODES[resolution.mode]}"


def _brings(resolution: Resolution) -> Iterator[str]:
    yield f"{resolution.count} of {resolution.resource} for each unit"
    effects = resolution.effects or Effects()
    for also in effects.also:
        yield f"{also.count} of {also.resource} for each {also.per.lower()}"
    for name, _ in effects.env:
        yield f"variable {name}"
    for key, value in effects.node_selector:
        yield f"node selector {key}={value}"
    for toleration in effects.tolerations:
        yield f"toleration of {toleration.key}"
    if effects.runtime_class:
        yield f"runtime class {effects.runtime_class}"
