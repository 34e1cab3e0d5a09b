"""What `accelbind explain` does: pods of a manifest, the webhook's verdict, how it is shown."""

import asyncio
import copy
import difflib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonpatch
import yaml
from rich.console import Console
from rich.text import Text

from accelbind.survey import read_index
from services.admission.mutate import (
    Patched,
    Policy,
    Refused,
    Rewrite,
    Unchanged,
    UnchangedReason,
)
from services.admission.preview import Explained
from services.kube.client import ClusterClient
from services.kube.config import load_config
from services.mappings.folder import load_folder
from services.mappings.index import MappingIndex
from services.mappings.model import Mapping, Mode
from services.pods.manifests import FoundPod
from services.pods.refusals import RefusalReason
from services.pods.requests import requesting_containers
from services.process.errors import ClusterError, InvalidSettings, WorldError
from services.process.text import plain

_DEFAULT = "default"
_NONE = ""
"""No namespace is called so: stands for that of mappings that name none."""

_UNCHANGED = {
    UnchangedReason.NOTHING_ASKED: "no container asks for an accelerator",
    UnchangedReason.MIRROR_POD: "a mirror pod only shows what a kubelet runs",
    UnchangedReason.ALREADY_PHYSICAL: "it asks by physical names only, and all of them are mapped",
}
_MODES = {
    Mode.AF: "the device has the function",
    Mode.REGION: "the container starts only with the function in its region",
    Mode.REGIONDEVEL: "the container programs the region itself",
}
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True, slots=True)
class LoadedMappings:
    """The mappings that pods are explained by, and what is wrong with any."""

    index: MappingIndex
    problems: Sequence[object] = ()


def from_folder(folder: Path) -> LoadedMappings:
    """The mappings of a folder.

    Raises:
        InvalidSettings: It can't be read.
    """
    try:
        snapshot = load_folder(folder)
    except WorldError as error:
        raise InvalidSettings(str(error)) from error  # exit code 1 means a refusal here
    return LoadedMappings(snapshot.index, snapshot.problems)


def from_cluster(kubeconfig: Path | None, namespaces: Iterable[str]) -> LoadedMappings:
    """The mappings of some namespaces of a cluster.

    Args:
        kubeconfig: How to reach it; None: as `KUBECONFIG` says, or as a pod does.
        namespaces: Those of the pods, since people may often list no others.

    Raises:
        InvalidSettings: There is no cluster, or its mappings can't be listed.
    """
    try:
        return LoadedMappings(asyncio.run(_read_index(kubeconfig, namespaces)))
    except ClusterError as error:
        raise InvalidSettings(str(error)) from error  # as above


async def _read_index(kubeconfig: Path | None, namespaces: Iterable[str]) -> MappingIndex:
    config = load_config(kubeconfig)
    if config is None:
        raise ClusterError(
            "name a folder of mappings with --mappings, or the cluster that has them with"
            " --kubeconfig"
        )
    async with ClusterClient(config) as client:
        return await read_index(client, namespaces)


def hints(
    explained: Sequence[Explained], index: MappingIndex, policy: Policy, mappings: Path
) -> Iterator[str]:
    """Yield what would help where a name is refused that a document without a namespace maps.

    Args:
        explained: the pods.
        index: the mappings of all namespaces.
        policy: the webhook's.
        mappings: the folder of mappings.
    """
    lost = [one for one in explained if one.namespace != _DEFAULT and _has_unknown_name(one)]
    if not lost:
        return
    homeless = load_folder(mappings, default_namespace=_NONE).index.namespace(_NONE)
    for one in lost:
        unknown = _asked(one.found, policy) - index.namespace(one.namespace).by_name.keys()
        for name in sorted(unknown & homeless.by_name.keys()):
            yield (
                f"{plain(name)} is mapped by a document that names no namespace, which counts for"
                f" namespace {_DEFAULT}; with metadata.namespace {plain(one.namespace)} it would"
                f" count for {one.found.label}"
            )


def _has_unknown_name(one: Explained) -> bool:
    return isinstance(one.result, Refused) and any(
        refusal.reason is RefusalReason.UNKNOWN_NAME for refusal in one.result.refusals
    )


def _asked(found: FoundPod, policy: Policy) -> set[str]:
    """Return the names, without their domains, that a pod's containers ask for."""
    prefixes = tuple(f"{domain}/" for domain in policy.domains)
    resources = (place.container.resources for place in requesting_containers(found.pod, prefixes))
    keys = {key for one in resources if one and one.limits for key in one.limits}
    return {key.partition("/")[2] for key in keys if key.startswith(prefixes)}


def as_json(explained: Sequence[Explained]) -> str:
    """Return all of it for programs: a list with one object a pod."""
    return json.dumps([_as_object(one) for one in explained], indent=2)


def show(explained: Sequence[Explained]) -> None:
    """Print all of it for people; in colour on a terminal."""
    console = Console(soft_wrap=True, highlight=False)
    for n, one in enumerate(explained):
        if n:
            console.print()
        for line in _lines(one):
            console.print(line)


def _as_object(one: Explained) -> dict[str, Any]:
    result = one.result
    made: dict[str, Any] = {
        "kind": one.found.kind,
        "pod": one.found.name,
        "namespace": one.namespace,
        "outcome": "unchanged",
        "reasons": [],
        "message": "",
        "patch": [],
        "rewrites": [],
        "warnings": [],
    }
    if isinstance(result, Refused):
        reasons = [
            {"code": refusal.reason, "container": refusal.container, "message": refusal.message}
            for refusal in result.refusals
        ]
        return made | {"outcome": "refused", "reasons": reasons, "message": result.message}
    made["warnings"] = list(result.warnings)
    if isinstance(result, Unchanged):
        reason = {"code": result.reason, "container": "", "message": _UNCHANGED[result.reason]}
        return made | {"reasons": [reason]}
    rewrites = [_rewrite_object(rewrite) for rewrite in result.rewrites]
    return made | {"outcome": "patched", "patch": result.operations, "rewrites": rewrites}


def _rewrite_object(rewrite: Rewrite) -> dict[str, Any]:
    return {
        "container": rewrite.container,
        "init": rewrite.init,
        "logical": rewrite.logical,
        "resource": rewrite.resource,
        "count": rewrite.count,
        "mode": rewrite.mapping.resolution.mode,
        "mapping": rewrite.mapping.label,
    }


def _lines(one: Explained) -> Iterator[Text]:
    """Yield what is printed of a pod, line by line."""
    result = one.result
    title = Text(f"{one.found.label} in namespace {plain(one.namespace)}: ", style="bold")
    if isinstance(result, Refused):
        yield title.append("refused", style="bold red")
        for refusal in result.refusals:
            yield (
                Text("  ")
                .append(f"✗ {refusal.message}")
                .append(f" [{refusal.reason}]", style="dim")
            )
        return
    if isinstance(result, Unchanged):
        yield title.append("admitted unchanged", style="bold green")
        yield Text(f"  {_UNCHANGED[result.reason]}")
    else:
        yield title.append("admitted, rewritten", style="bold green")
        for rewrite in result.rewrites:
            yield from _rewrite_lines(rewrite)
    for warning in result.warnings:
        yield Text(f"  warning: {warning}", style="yellow")
    if isinstance(result, Patched):
        yield Text()
        yield from _diff(one.found.manifest, result)


def _rewrite_lines(rewrite: Rewrite) -> Iterator[Text]:
    kind = "init container" if rewrite.init else "container"
    yield (
        Text(f"  {kind} {plain(rewrite.container)}: ")
        .append(f"{rewrite.logical}: {rewrite.count}", style="red")
        .append(" becomes ")
        .append(rewrite.resource, style="green")
    )
    yield Text(f"    {_why(rewrite.mapping)}", style="dim")


def _why(mapping: Mapping) -> str:
    resolution = mapping.resolution
    what = f"interface {resolution.interface_id}"
    if resolution.afu_id is not None:
        what = f"function {resolution.afu_id} of {what}"
    return f"{mapping.label}: {what}, mode {resolution.mode}: {_MODES[resolution.mode]}"


def _diff(manifest: dict[str, object], result: Patched) -> Iterator[Text]:
    """Yield a unified diff of the pod as YAML."""
    after = jsonpatch.apply_patch(copy.deepcopy(manifest), result.operations)
    lines = difflib.unified_diff(
        _as_yaml(manifest), _as_yaml(after), "as written", "as admitted", lineterm=""
    )
    for line in lines:
        yield Text(line, style=_STYLES.get(line[:1], ""))


def _as_yaml(manifest: object) -> list[str]:
    text: str = yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True, width=sys.maxsize)
    return text.splitlines()
