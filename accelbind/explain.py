"""`accelbind explain`: what the webhook would do to a pod, and why."""

import asyncio
import difflib
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml
from rich.console import Console
from rich.text import Text

from accelbind.explain_claims import (
    ExplainedClaim,
    FoundClaim,
    develop_hints,
    explain_claims,
    find_claims,
)
from accelbind.manifests import NO_PODS, read_objects
from accelbind.misspelt import misspelt_resources
from accelbind.options import (
    AcceleratorDomains,
    Domains,
    Guard,
    Kubeconfig,
    Mappings,
    SharedNamespace,
    find_kubeconfig,
    manifests_option,
    namespace_option,
)
from accelbind.output import Output, OutputFormat, line_width, print_json
from accelbind.survey import policy_of, read_folder, read_index
from services.admission.mutate import (
    MAX_POD_UNITS,
    Patched,
    Refused,
    Unchanged,
    UnchangedReason,
)
from services.admission.preview import Explained, explain_pod, mutated_manifest
from services.admission.requested import ResourceRequest
from services.kube.client import ClusterClient
from services.kube.config import NO_KUBECONFIG, Access, load_config
from services.mappings.accelerator import Effects
from services.mappings.index import MappingIndex
from services.mappings.model import Mapping, Mode, Resolution
from services.pods.known_fields import manifest_problems
from services.pods.manifests import FoundPod, find_pods
from services.process.errors import ClusterError, InvalidManifest, InvalidSettings
from services.process.text import plain

_DEFAULT: Final = "default"

_UNCHANGED: Final = {
    UnchangedReason.NOTHING_ASKED: "no container asks for an accelerator",
    UnchangedReason.ALREADY_PHYSICAL: "it asks by physical names only, and all of them are mapped",
}
_MODES: Final = {
    Mode.AF: "the device has the function",
    Mode.REGION: "the container starts only with the function in its region",
    Mode.REGIONDEVEL: "the container programs the region itself",
}
_CREATES_PODS: Final = {
    "CronJob": "job",
    "DaemonSet": "daemonset",
    "Deployment": "replicaset",
    "Job": "job",
    "ReplicaSet": "replicaset",
    "ReplicationController": "replicationcontroller",
    "StatefulSet": "statefulset",
}
"""The kind whose Events say why the pods of a workload are refused."""
_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


def explain(
    *,
    filename: Annotated[
        list[Path], manifests_option("--filename", "-f", text="Manifest of pods, YAML or JSON.")
    ],
    mappings: Mappings = None,
    kubeconfig: Kubeconfig = None,
    namespace: Annotated[
        str | None,
        namespace_option("Namespace of pods that name none.", f"the kubeconfig's, or {_DEFAULT}"),
    ] = None,
    output: Output = OutputFormat.TEXT,
    max_units: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=MAX_POD_UNITS, help="As the webhook's --max-units."),
    ] = 64,
    domain: Domains = None,
    accelerator_domain: AcceleratorDomains = None,
    shared_namespace: SharedNamespace = "",
    guard: Guard = None,
) -> None:
    """Show what the webhook would do to a pod, and why.

    Reads pods and the pod templates of Kubernetes' workloads: Deployments, Jobs
    and so on. Pods that name no namespace are of the kubeconfig's, as with kubectl.
    Mappings come from the folder --mappings, or else from the cluster. A mapping
    without a namespace belongs to namespace default, as in the webhook; -n does
    not change that. Fields that Kubernetes does not know get a warning.

    Also shows what the DRA driver would do for the claims of a pod, if the manifests
    have their ResourceClaims and ResourceClaimTemplates.

    Exit code 0: all pods would be admitted; 1: a pod or a claim of it would be
    refused; 2: there is no answer (no pod, unreadable files, wrong options).

    [bold]Examples[/bold]
      accelbind explain -f pod.yaml --mappings maps
      accelbind explain -f one.yaml -f folder --kubeconfig ~/.kube/config
      kubectl create job x --image=i --dry-run=client -o yaml |
        accelbind explain -f - -n team --mappings maps -o json
    """
    policy = policy_of(
        domain, accelerator_domain, shared_namespace, max_units=max_units, guard=guard
    )
    if mappings is not None and kubeconfig is not None:
        raise InvalidSettings("--mappings and --kubeconfig exclude each other")
    pods, claims = _read(filename)
    if mappings is not None:
        snapshot = read_folder(mappings)
        index, problems, default = snapshot.index, snapshot.problems, _usual_namespace()
    else:
        access = _access(find_kubeconfig(kubeconfig))
        default = access.namespace or _DEFAULT
        namespaces = {pod.namespace or namespace or default for pod in pods}
        namespaces |= {shared_namespace} - {""}
        index, problems = _from_cluster(access, sorted(namespaces)), ()
    explained = [
        explain_pod(pod, index, policy, namespace=namespace, default=default) for pod in pods
    ]
    prepared = [[*explain_claims(one, index.namespace(one.namespace), claims)] for one in explained]
    hints = [
        [
            *misspelt_resources(one.found, index, policy, namespace=one.namespace),
            *_namespace_hint(one, named=namespace is not None),
            *develop_hints(one, index),
        ]
        for one in explained
    ]
    if output is OutputFormat.JSON:
        of_all = zip(explained, prepared, hints, strict=True)
        print_json([_as_object(one, of) | {"hints": its} for one, of, its in of_all])
    else:
        _print(explained, prepared)
        for one, its in zip(explained, hints, strict=True):
            for hint in its:
                typer.echo(f"hint: {one.found.label}: {hint}", err=True)
    for problem in problems:
        typer.echo(f"warning: {problem}", err=True)
    if any(map(_is_refused, explained, prepared)):
        raise typer.Exit(1)


def _read(paths: Sequence[Path]) -> tuple[list[FoundPod], list[FoundClaim]]:
    """The pods of manifests, and the claims and templates that they may name."""

    def find(value: object) -> Iterator[FoundPod | FoundClaim]:
        if value:
            yield from find_pods(value)
            yield from find_claims(value)

    found = [each for _, each in read_objects(paths, find, NO_PODS)]
    pods = [each for each in found if isinstance(each, FoundPod)]
    if not pods:
        raise InvalidManifest(f"the manifests contain {NO_PODS}")
    return pods, [each for each in found if isinstance(each, FoundClaim)]


def _is_refused(one: Explained, claims: Iterable[ExplainedClaim]) -> bool:
    """Whether a pod would be refused, or would wait for ever for a claim."""
    return one.is_refused or any(each.is_refused for each in claims)


def _usual_namespace() -> str:
    """Where kubectl would create a pod that names no namespace."""
    try:
        access = load_config(find_kubeconfig(None))
    except ClusterError:  # nothing else is needed of the cluster
        return _DEFAULT
    return (access and access.namespace) or _DEFAULT


def _namespace_hint(one: Explained, *, named: bool) -> Iterator[str]:
    if one.is_refused and not named and one.namespace not in (one.found.namespace, _DEFAULT):
        yield f"namespace {plain(one.namespace)} is the kubeconfig's; use -n for another one"


def _access(kubeconfig: Path | None) -> Access:
    """How to reach the cluster whose mappings count."""
    access = load_config(kubeconfig)
    if access is None:
        raise InvalidSettings(f"{NO_KUBECONFIG}, or use --mappings")
    return access


def _from_cluster(access: Access, namespaces: Iterable[str]) -> MappingIndex:
    """Read only the pods' namespaces, since users often may list no others."""

    async def read() -> MappingIndex:
        async with ClusterClient(access) as client:
            return await read_index(client, namespaces)

    return asyncio.run(read())


# JSON ---------------------------------------------------------------------------------------------


def _as_object(one: Explained, claims: Iterable[ExplainedClaim]) -> dict[str, Any]:
    result = one.result
    facts: dict[str, Any] = {
        "kind": one.found.kind,
        "pod": one.found.name,
        "namespace": one.namespace,
        "outcome": "patched",
        "reasons": [],
        "message": "",
        "patch": [],
        "rewrites": [],
        "warnings": _warnings(one),
        "claims": [_claim_object(each) for each in claims],
    }
    if isinstance(result, Refused):
        reasons = [
            {"code": refusal.reason, "container": refusal.container, "message": refusal.message}
            for refusal in result.refusals
        ]
        return facts | {"outcome": "refused", "reasons": reasons, "message": result.message}
    if isinstance(result, Unchanged):
        reason = {"code": result.reason, "container": "", "message": _UNCHANGED[result.reason]}
        return facts | {"outcome": "unchanged", "reasons": [reason]}
    rewrites = [
        {
            "container": rewrite.ref.container.name,
            "init": rewrite.ref.init,
            "logical": rewrite.key,
            "resource": rewrite.resource,
            "count": rewrite.units,
            "mode": rewrite.mapping.resolution.mode,
            "mapping": rewrite.mapping.label,
        }
        for rewrite in result.rewrites
    ]
    return facts | {"patch": result.operations, "rewrites": rewrites}


def _claim_object(one: ExplainedClaim) -> dict[str, Any]:
    return {
        "claim": one.claim,
        "request": one.request,
        "deviceClass": one.device_class,
        "refused": one.is_refused,
        "message": one.message,
    }


def _warnings(one: Explained) -> list[str]:
    """The warnings of the webhook, and what is wrong with the manifest itself."""
    result = one.result
    own = [] if isinstance(result, Refused) else result.warnings
    return [*own, *manifest_problems(one.found)]


# Text ---------------------------------------------------------------------------------------------

Line = tuple[str, Text]
"""An indentation, and the text after it."""


def _print(explained: Sequence[Explained], prepared: Sequence[Sequence[ExplainedClaim]]) -> None:
    console = Console(soft_wrap=True, highlight=False)
    width = line_width()
    for number, (one, claims) in enumerate(zip(explained, prepared, strict=True)):
        if number:
            console.print()
        for indent, text in (*_lines(one), *map(_claim_line, claims)):
            for line in _wrapped(indent, text, width):
                console.print(line)
        if isinstance(one.result, Patched):
            console.print()
            for line in _diff(one.found.manifest, one.result):
                console.print(line)
    if len(explained) > 1:
        refused = sum(map(_is_refused, explained, prepared))
        console.print(f"\n{len(explained) - refused} admitted, {refused} refused")


def _wrapped(indent: str, text: Text, width: int) -> Iterator[Text]:
    """Yield a line as lines that fit, broken between words only; 0 columns break nothing."""
    wrapper = textwrap.TextWrapper(
        width=max(1, width - len(indent) - 2), break_long_words=False, break_on_hyphens=False
    )
    fits = not width or len(indent) + len(text) <= width
    end = 0
    for part in [text.plain] if fits else wrapper.wrap(text.plain):
        start = text.plain.index(part, end)
        yield Text.assemble(f"{indent}  " if end else indent, text[start : start + len(part)])
        end = start + len(part)


def _lines(one: Explained) -> Iterator[Line]:
    result = one.result
    title = Text(f"{one.found.label} in namespace {plain(one.namespace)}: ", style="bold")
    if one.found.template_at:
        title.append("its pods would be ")
    if isinstance(result, Refused):
        yield "", title.append("refused", style="bold red")
        for refusal in result.refusals:
            text = Text(f"✗ {refusal.message}")
            yield "  ", text.append(f" [{refusal.reason}]", style="dim")
        if kind := _CREATES_PODS.get(one.found.kind):
            shown = f"kubectl -n {plain(one.namespace)} describe {kind} shows why it has no pods"
            yield "  ", Text(f"the {one.found.kind} itself is accepted; {shown}")
    elif isinstance(result, Unchanged):
        yield "", title.append("admitted unchanged", style="bold green")
        yield "  ", Text(_UNCHANGED[result.reason])
    else:
        yield "", title.append("admitted, rewritten", style="bold green")
        for rewrite in result.rewrites:
            yield from _rewrite_lines(rewrite)
    for warning in _warnings(one):
        yield "  ", Text(f"warning: {warning}", style="yellow")


def _claim_line(one: ExplainedClaim) -> Line:
    where = f"claim {plain(one.claim)}"
    if one.request:
        where += f", request {plain(one.request)}, DeviceClass {plain(one.device_class)}"
    if one.is_refused:
        return "  ", Text(f"✗ {where}: {one.message}")
    return "  ", Text(f"{where}: {one.message}")


def _rewrite_lines(rewrite: ResourceRequest) -> Iterator[Line]:
    kind = "init container" if rewrite.ref.init else "container"
    text = Text(f"{kind} {plain(rewrite.ref.container.name)}: ")
    text.append(f"{rewrite.key}: {rewrite.units}", style="red").append(" becomes ")
    yield "  ", text.append(rewrite.resource, style="green")
    yield "    ", Text(_why(rewrite.mapping), style="dim")


def _why(mapping: Mapping) -> str:
    resolution = mapping.resolution
    if resolution.mode is None:
        return f"{mapping.label}: {', '.join(_brings(resolution))}"
    what = f"interface {resolution.interface_id}"
    if resolution.afu_id is not None:
        what = f"function {resolution.afu_id} of {what}"
    return f"{mapping.label}: {what}, mode {resolution.mode}: {_MODES[resolution.mode]}"


def _brings(resolution: Resolution) -> Iterator[str]:
    """Yield what each unit of an Accelerator is, and what the pod gets with it."""
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


def _diff(manifest: dict[str, object], result: Patched) -> Iterator[Text]:
    """Yield a unified diff of the pod as YAML, whose lines are never broken."""
    after = mutated_manifest(manifest, result)
    lines = difflib.unified_diff(
        _as_yaml(manifest), _as_yaml(after), "as written", "as admitted", lineterm=""
    )
    for line in lines:
        text = line[1:].lstrip()
        style = _STYLES.get(line[:1], "")
        yield Text.assemble(line[: len(line) - len(text)], (text, style))


def _as_yaml(manifest: object) -> list[str]:
    text: str = yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True, width=sys.maxsize)
    return text.splitlines()
