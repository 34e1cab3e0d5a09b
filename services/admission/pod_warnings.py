"""Admission warnings: problems of a pod that don't prevent its admission. kubectl shows them."""

from collections.abc import Iterator, Sequence
from itertools import islice

from services.admission.plan import ContainerPlan
from services.admission.requested import amounts
from services.mappings.index import NamespaceMappings
from services.mappings.model import Mapping, Mode
from services.pods.pod import ContainerRef, Pod
from services.process.text import clip, plain

MAX_WARNINGS = 4
"""How many warnings a pod gets at most."""

MAX_WARNING = 120
"""Characters of a warning: Kubernetes recommends that limit."""


def find_warnings(
    pod: Pod, plans: Sequence[ContainerPlan], mappings: NamespaceMappings
) -> tuple[str, ...]:
    """Return the warnings about a pod that is admitted."""
    warnings: list[str] = []
    seen: dict[frozenset[Mode], ContainerRef] = {}
    for plan in plans:
        warnings += _mixed_modes(plan, seen)
        for each in plan.rewritten:
            warnings += _of_name(each.key, each.mapping, mappings)
    annotations = pod.metadata.annotations if pod.metadata else None
    if annotations and annotations.limit_ranger:
        warnings += _of_limit_ranges(annotations.limit_ranger, plans, is_noted=pod.is_noted)
    return tuple(islice(dict.fromkeys(warnings), MAX_WARNINGS)) if warnings else ()


def _of_limit_ranges(text: str, plans: Sequence[ContainerPlan], *, is_noted: bool) -> Iterator[str]:
    """Yield which units come from LimitRanges; `text` is LimitRanger's annotation.

    It has parts like ``cpu, fpga.intel.com/nlb0 limit for container work``.
    """
    defaults = {*_defaults(text)}
    for plan in plans:
        name = plan.ref.container.name
        keys = [each.key for each in plan.rewritten if each.total]
        if not is_noted:  # otherwise a physical name has the units of an earlier mutation
            keys += [each.key for each in plan.direct if each.units]
            if plan.accelerators:
                named = amounts(plan.accelerators.mapped)
                gets = plan.accelerators.amounts
                keys += [key for key in gets if gets[key] > named.get(key, 0)]
        for key in keys:
            if (name, key) in defaults:
                text = f"{plain(key)} of container {plain(name, 20)} comes from a LimitRange"
                yield clip(text, MAX_WARNING)


def _defaults(text: str) -> Iterator[tuple[str, str]]:
    """Yield the containers and resources that LimitRanger's annotation names."""
    # Anybody can write it, and a regular expression would take minutes for some texts.
    for part in text.partition(": ")[2].split("; "):
        left, _, container = part.rpartition(" container ")
        names, _, kind = left.removesuffix(" init").removesuffix(" for").rpartition(" ")
        if kind in ("request", "limit"):
            yield from ((container, key) for key in names.split(", "))


def _mixed_modes(plan: ContainerPlan, seen: dict[frozenset[Mode], ContainerRef]) -> Iterator[str]:
    """Yield which containers before this one need a node of another mode."""
    if plan.modes is not None and plan.modes not in seen:
        for modes, other in seen.items():
            if not modes & plan.modes:
                first, second = _with_modes(other, modes), _with_modes(plan.ref, plan.modes)
                yield f"containers {first} and {second}: a node runs one mode only"
        seen[plan.modes] = plan.ref


def _with_modes(ref: ContainerRef, modes: frozenset[Mode]) -> str:
    return f"{plain(ref.container.name, 20)} ({'/'.join(sorted(modes))})"


def _of_name(key: str, mapping: Mapping, mappings: NamespaceMappings) -> Iterator[str]:
    """Yield the warning about a logical name."""
    twin = None if mapping.deprecated else mappings.twin_of(mapping)
    other = f"{key.partition('/')[0]}/{plain(twin.name)}" if twin is not None else ""
    if mapping.deprecated is not None:
        advice = plain(mapping.deprecated) or (f"use {other}" if other else "")
        yield clip(f"{plain(key)} is deprecated{advice and ': '}{advice}", MAX_WARNING)
    elif other:
        yield clip(f"{plain(key)} is a duplicate of {other}", MAX_WARNING)
