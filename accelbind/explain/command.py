"""`accelbind explain`: what becomes of a pod, and why."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from accelbind.cluster import DEFAULT_NAMESPACE, Target, with_target
from accelbind.explain.answer import Answer
from accelbind.explain.asking import Asked
from accelbind.explain.claims import FoundClaim, find_claims
from accelbind.explain.show import as_object, print_text, print_yaml
from accelbind.flags import Mappings, manifests_option, namespace_option, with_settings
from accelbind.manifests import NO_PODS, distinct, files_in, path_label, read_documents
from accelbind.mappings import read_mappings
from accelbind.output import Exit, output_of, print_json
from services.pods.manifests import FoundPod, find_objects, find_pods, object_label
from services.process.errors import ClusterError, InvalidManifest, InvalidSettings
from webhook.settings import ReviewSettings

_SEES_THE_PERSON: Final = (
    "note: policies that look at the user saw you, not the controller that creates such pods"
)


@dataclass(slots=True)
class _Manifests:
    """The contents of the files that are named."""

    pods: list[FoundPod] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    """The file of each pod."""
    claims: list[FoundClaim] = field(default_factory=list)
    others: list[tuple[str, str]] = field(default_factory=list)
    """The files and the names of objects without a pod."""
    unused: list[str] = field(default_factory=list)
    """Files and folders in which nothing was read."""
    problems: list[str] = field(default_factory=list)
    """Files and folders that can't be read."""


@with_settings(
    ReviewSettings,
    *("max_units", "domain", "accelerator_domain", "shared_namespace", "guard"),
    group="With --mappings: as the webhook's",
)
@with_target
def explain(
    *,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="As -f.", readable=False, show_default=False),
    ] = None,
    filename: Annotated[
        list[Path] | None,
        manifests_option(
            "--filename", "-f", text="Manifest of pods and what makes pods, YAML or JSON."
        ),
    ] = None,
    mappings: Mappings = None,
    namespace: Annotated[
        str | None,
        namespace_option(
            "Namespace of pods that name none.", f"the kubeconfig's, or {DEFAULT_NAMESPACE}"
        ),
    ] = None,
    output: Annotated[
        Literal["text", "json", "yaml"], output_of("Output format; yaml is the pods.")
    ] = "text",
    target: Target,
    settings: ReviewSettings,
) -> None:
    """Show what becomes of a pod, and why.

    Reads pods, and templates of pods in whatever object: Deployments, Jobs,
    RayClusters, JobSets, Workflows and so on. Pods that name no namespace are of the
    kubeconfig's, as with kubectl.

    On a cluster it asks the API server, by a dry run of the pod: the answer is that
    of all webhooks, quotas and policies, with the first refusal and its author. It is
    asked about each pod alone: not about the object that makes it, nor whether a
    quota suffices for all of them.
    Policies that look at the user see you, not the controller that makes such pods.
    Without the right to create pods, the pod is evaluated here, and the answer says
    what was assumed.

    With --mappings it needs no cluster, and evaluates what accelbind's webhook would
    do. A mapping without a namespace belongs to namespace default, as in the webhook;
    -n does not change that.

    Also shows what the DRA driver would do for the claims of a pod, if the manifests
    have their ResourceClaims and ResourceClaimTemplates. Names of claims are checked
    against the cluster, unless --mappings is given. The webhook sees no static pods,
    so their names are not replaced.

    Exit code 0: all pods would be admitted; 1: a pod or a claim of it would be
    refused; 2: there is no answer (unreadable files, wrong options), or a file or
    folder that was named has nothing that makes pods.

    [bold]Examples[/bold]
      accelbind explain pod.yaml --mappings maps
      accelbind explain one.yaml folder --kubeconfig ~/.kube/config
      accelbind explain pod.yaml -o yaml
      kubectl create job x --image=i --dry-run=client -o yaml |
        accelbind explain - -n team --mappings maps -o json
    """
    manifests = _read([*(files or ()), *(filename or ())])
    default = _usual_namespace(target, namespace, manifests.pods)
    places = [pod.namespace_among(namespace, default) for pod in manifests.pods]
    asked = Asked(manifests.pods, places, manifests.claims, settings.policy())
    if mappings is None and target.is_known:
        answers = target.query(asked.on_cluster)
    else:
        answers = asked.here(read_mappings(mappings, target, asked.namespaces))
    manifests.problems += asked.unanswered
    _print(output, answers, manifests)
    if any(each.is_refused for each in answers):
        raise typer.Exit(Exit.NO)
    if manifests.unused or manifests.problems:
        raise typer.Exit(Exit.UNKNOWN)


def _usual_namespace(target: Target, given: str | None, pods: Sequence[FoundPod]) -> str:
    if given or all(pod.namespace for pod in pods):
        return DEFAULT_NAMESPACE  # nobody asks
    try:
        return target.namespace()
    except ClusterError:  # whoever needs more of the cluster says so
        return DEFAULT_NAMESPACE


def _read(paths: Sequence[Path]) -> _Manifests:
    if not paths:
        raise InvalidSettings("name a file, a folder or - for stdin")
    read = _Manifests()
    for path in distinct(paths):
        problems, is_used = len(read.problems), False
        try:
            for file in files_in(path):
                is_used = _read_file(read, file) or is_used
        except InvalidManifest as error:
            read.problems.append(str(error))
        if not is_used and len(read.problems) == problems:
            read.unused.append(path_label(path))
    if not read.pods:
        unused = f"{', '.join(read.unused) or 'the manifests'}: {NO_PODS}"
        raise InvalidManifest("; ".join(read.problems or [unused]))
    return read


def _read_file(read: _Manifests, file: Path) -> bool:
    """Add the contents of a file; return whether it has pods or claims."""
    is_used = False
    try:
        documents = [*read_documents([file])]
        if not documents:
            read.others.append((path_label(file), "nothing"))
        for document in documents:
            with document.reading():
                for each in find_objects(document.value):
                    pods, claims = [*find_pods(each)], [*find_claims(each)]
                    read.pods += pods
                    read.files += [document.file] * len(pods)
                    read.claims += claims
                    if pods or claims:
                        is_used = True
                    else:
                        read.others.append((document.file, object_label(each)))
    except InvalidManifest as error:  # the others have an answer
        read.problems.append(str(error))
    return is_used


def _print(output: str, answers: Sequence[Answer], manifests: _Manifests) -> None:
    if output == "json":
        items = [*map(as_object, answers)]
        print_json({"items": items, "withoutPods": [name for _, name in manifests.others]})
    elif output == "yaml":
        print_yaml(answers)
    else:
        several = len({*manifests.files, *(file for file, _ in manifests.others)}) > 1
        pods = zip(manifests.pods, manifests.files, strict=True)
        places = {id(pod): f"{file}: " if several else "" for pod, file in pods}
        print_text(answers, [places[id(each.found)] for each in answers])
        if manifests.others:
            others = [name + (f" in {file}" if several else "") for file, name in manifests.others]
            typer.echo(f"\nwithout pods: {', '.join(others)}")
        if any(each.is_of_cluster and each.found.is_template for each in answers):
            typer.echo(_SEES_THE_PERSON, err=True)
    for each in manifests.unused:
        typer.echo(f"error: {each}: {NO_PODS}", err=True)
    for each in manifests.problems:
        typer.echo(f"error: {each}", err=True)
