"""`accelbind explain`: what the webhook would do to a pod, and why."""

import difflib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
import yaml

from accelbind.exits import Exit
from accelbind.explain_claims import (
    ExplainedClaim,
    FoundClaim,
    develop_hints,
    explain_claims,
    find_claims,
    has_claims,
    read_of_cluster,
)
from accelbind.kubectl import DEFAULT_NAMESPACE, Target
from accelbind.manifests import NO_PODS, read_objects
from accelbind.misspelt import misspelt_resources
from accelbind.options import (
    ApiServer,
    Context,
    Kubeconfig,
    Mappings,
    manifests_option,
    namespace_option,
)
from accelbind.output import Output, OutputFormat, StyledLine, print_json, print_lines, styled
from accelbind.run import with_settings
from accelbind.survey import read_mappings
from services.admission.mutate import Patched, Refused, Unchanged
from services.admission.preview import Explained, explain_pod, mutated_manifest
from services.admission.requested import ResourceRequest
from services.mappings.accelerator import Effects
from services.mappings.model import Mapping, Mode, Resolution
from services.pods.known_fields import manifest_problems
from services.pods.manifests import FoundPod, find_pods
from services.pods.reasons import ReviewReason
from services.process.errors import ClusterError, InvalidManifest
from services.process.text import plain
from webhook.settings import ReviewSettings

_UNCHANGED: Final = {
    ReviewReason.NOTHING_ASKED: "no container asks for an accelerator",
    ReviewReason.ALREADY_PHYSICAL: "it asks by physical names only, and all of them are mapped",
}
_MODES: Final = {
    Mode.AF: "the device has the function",
    Mode.REGION: "the container starts only with the function in its region",
    Mode.REGIONDEVEL: "the container programs the region itself",
}
_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}


@with_settings(
    ReviewSettings,
    *("max_units", "domain", "accelerator_domain", "shared_namespace", "guard"),
    group="As the webhook's",
)
def explain(
    *,
    filename: Annotated[
        list[Path], manifests_option("--filename", "-f", text="Manifest of pods, YAML or JSON.")
    ],
    mappings: Mappings = None,
    api_server: ApiServer = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    namespace: Annotated[
        str | None,
        namespace_option(
            "Namespace of pods that name none.", f"the kubeconfig's, or {DEFAULT_NAMESPACE}"
        ),
    ] = None,
    output: Output = OutputFormat.TEXT,
    settings: ReviewSettings,
) -> None:
    """Show what the webhook would do to a pod, and why.

    Reads pods and the pod templates of Kubernetes' workloads: Deployments, Jobs
    and so on. Pods that name no namespace are of the kubeconfig's, as with kubectl.
    Mappings come from the folder --mappings, or else from the cluster. A mapping
    without a namespace belongs to namespace default, as in the webhook; -n does
    not change that. Fields that Kubernetes does not know get a warning.

    Also shows what the DRA driver would do for the claims of a pod, if the manifests
    have their ResourceClaims and ResourceClaimTemplates. Names of claims are checked
    against the cluster, unless --mappings is given. The webhook sees no static pods,
    so their names are not replaced.

    Exit code 0: all pods would be admitted; 1: a pod or a claim of it would be
    refused; 2: there is no answer (no pod, unreadable files, wrong options).

    [bold]Examples[/bold]
      accelbind explain -f pod.yaml --mappings maps
      accelbind explain -f one.yaml -f folder --kubeconfig ~/.kube/config
      kubectl create job x --image=i --dry-run=client -o yaml |
        accelbind explain -f - -n team --mappings maps -o json
    """
    policy = settings.policy()
    pods, claims = _read(filename)
    target = Target(api_server, kubeconfig, context)
    default = _usual_namespace(target, namespace, pods)
    namespaces = {pod.namespace or namespace or default for pod in pods}
    namespaces |= {policy.shared_namespace} - {""}
    index = read_mappings(mappings, target, sorted(namespaces))
    explained = [
        explain_pod(pod, index, policy, namespace=namespace, default=default) for pod in pods
    ]
    objects = None
    if mappings is None and (needing := {each.namespace for each in explained if has_claims(each)}):
        objects = read_of_cluster(target, sorted(needing), claims)
    answers = []
    for pod, one in zip(pods, explained, strict=True):
        own = explain_claims(one, index.namespace(one.namespace), claims, objects)
        misspelt = misspelt_resources(pod, index, policy, namespace=one.namespace)
        answers.append(_Answer(one, [*own], [*misspelt, *develop_hints(one, index)]))
    if output is OutputFormat.JSON:
        print_json([*map(_as_object, answers)])
    else:
        _print(answers)
    if any(each.is_refused for each in answers):
        raise typer.Exit(Exit.NO)


def _usual_namespace(target: Target, given: str | None, pods: Sequence[FoundPod]) -> str:
    if given or all(pod.namespace for pod in pods):
        return DEFAULT_NAMESPACE  # nobody asks
    try:
        return target.namespace()
    except ClusterError:  # whoever needs more of the cluster says so
        return DEFAULT_NAMESPACE


def _read(paths: Sequence[Path]) -> tuple[list[FoundPod], list[FoundClaim]]:
    def find(value: object) -> Iterator[FoundPod | FoundClaim]:
        yield from find_pods(value)
        yield from find_claims(value)

    objects = read_objects(paths, find, NO_PODS)
    pods = [each for each in objects if isinstance(each, FoundPod)]
    if not pods:
        raise InvalidManifest(f"the manifests contain {NO_PODS}")
    return pods, [each for each in objects if isinstance(each, FoundClaim)]


@dataclass(frozen=True, slots=True)
class _Answer:
    pod: Explained
    claims: list[ExplainedClaim]
    hints: list[str]

    @property
    def is_refused(self) -> bool:
        # A pod with a claim that is refused would wait for ever.
        return self.pod.is_refused or any(each.is_refused for each in self.claims)


# JSON ---------------------------------------------------------------------------------------------


def _as_object(answer: _Answer) -> dict[str, Any]:
    one, result = answer.pod, answer.pod.result
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
        "claims": msgspec.to_builtins(answer.claims),
        "hints": answer.hints,
    }
    if isinstance(result, Refused):
        reasons = [
            {"code": refusal.code, "container": refusal.subject, "message": refusal.text}
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
            "count": rewrite.total,
            "mode": rewrite.mapping.resolution.mode,
            "mapping": rewrite.mapping.label,
        }
        for rewrite in result.rewrites
    ]
    return facts | {"patch": result.operations, "rewrites": rewrites}


def _warnings(one: Explained) -> list[str]:
    result = one.result
    own = [] if isinstance(result, Refused) else result.warnings
    return [*own, *manifest_problems(one.found)]


# Text ---------------------------------------------------------------------------------------------


def _print(answers: Sequence[_Answer]) -> None:
    for number, answer in enumerate(answers):
        one = answer.pod
        if number:
            typer.echo()
        print_lines((*_lines(one), *map(_claim_line, answer.claims)))
        if isinstance(one.result, Patched):
            typer.echo()
            for line in _diff(one.found.manifest, one.result):
                typer.echo(styled(line, _COLOURS.get(line[:1])))
        for hint in answer.hints:
            typer.echo(f"hint: {one.found.label}: {hint}", err=True)
    if len(answers) > 1:
        refused = sum(each.is_refused for each in answers)
        typer.echo(f"\n{len(answers) - refused} admitted, {refused} refused")


def _lines(one: Explained) -> Iterator[str | StyledLine]:
    result = one.result
    title = f"{one.found.label} in namespace {plain(one.namespace)}: "
    if one.found.template_at:
        title += "its pods would be "
    if isinstance(result, Refused):
        yield "red", f"{title}refused"
        yield from (f"  ✗ {each.text} [{each.code}]" for each in result.refusals)
    elif isinstance(result, Unchanged):
        yield "green", f"{title}admitted unchanged"
        yield f"  {_UNCHANGED[result.reason]}"
    else:
        yield "green", f"{title}admitted, rewritten"
        for rewrite in result.rewrites:
            yield from _rewrite_lines(rewrite)
    yield from (("yellow", f"  warning: {warning}") for warning in _warnings(one))


def _claim_line(one: ExplainedClaim) -> str:
    where = f"claim {plain(one.claim)}"
    if one.request:
        where += f", request {plain(one.request)}, DeviceClass {plain(one.device_class)}"
    return f"  {'✗ ' if one.is_refused else ''}{where}: {one.message}"


def _rewrite_lines(rewrite: ResourceRequest) -> Iterator[str]:
    kind = "init container" if rewrite.ref.init else "container"
    what = f"{rewrite.key}: {rewrite.total} becomes {rewrite.resource}"
    yield f"  {kind} {plain(rewrite.ref.container.name)}: {what}"
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


def _diff(manifest: dict[str, object], result: Patched) -> Iterator[str]:
    before, after = _as_yaml(manifest), _as_yaml(mutated_manifest(manifest, result))
    return difflib.unified_diff(before, after, "as written", "as admitted", lineterm="")


def _as_yaml(manifest: object) -> list[str]:
    text: str = yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True, width=sys.maxsize)
    return text.splitlines()
