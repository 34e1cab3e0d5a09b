"""`accelbind explain`: what the webhook would do to a pod, and why."""

from pathlib import Path
from typing import Annotated

import typer

from accelbind.options import FOUND_KUBECONFIG, Domains, default_note, find_kubeconfig
from accelbind.printing import Format


def explain(
    *,
    filename: Annotated[
        Path,
        typer.Option(
            "--filename",
            "-f",
            metavar="FILE",
            help="Manifest of pods, YAML or JSON; - is stdin.",
            readable=False,
        ),
    ],
    mappings: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of AcceleratorFunctions and FpgaRegions as YAML.",
            readable=False,
        ),
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"Without --mappings: the cluster that has them. {default_note(FOUND_KUBECONFIG)}",
            readable=False,
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAMESPACE",
            help=f"Namespace of pods that name none. {default_note('default')}",
        ),
    ] = None,
    output: Annotated[
        Format, typer.Option("--output", "-o", help="json: a list with one object a pod.")
    ] = Format.TEXT,
    max_units: Annotated[
        int, typer.Option(metavar="N", min=1, help="As the webhook's --max-units.")
    ] = 64,
    domain: Domains = None,
) -> None:
    """Show what the webhook would do to a pod, and why.

    Reads pods, and the templates of Kubernetes' own workloads: Deployments,
    Jobs and so on. Exit code 0: all would be admitted; 1: one would be
    refused; 2: that can't be said (no pod, files that can't be read, wrong
    options). Mappings that name no namespace are of namespace default
    whatever -n says, as in the webhook: they are the access control.

    [bold]Examples[/bold]
      accelbind explain -f pod.yaml --mappings maps
      accelbind explain -f pod.yaml --kubeconfig ~/.kube/config
      kubectl create job x --image=i --dry-run=client -o yaml |
        accelbind explain -f - -n team --mappings maps -o json
    """
    from accelbind import explaining  # noqa: PLC0415 - only when it runs
    from services.admission import preview  # noqa: PLC0415 - the same
    from services.admission.mutate import Policy  # noqa: PLC0415 - the same
    from services.process.errors import InvalidSettings  # noqa: PLC0415 - the same

    policy = Policy(tuple(domain), max_units) if domain else Policy(max_units=max_units)
    found = preview.read_pods(filename)
    if mappings is not None and kubeconfig is not None:
        raise InvalidSettings("--mappings and --kubeconfig exclude each other")
    if mappings is not None:
        loaded = explaining.from_folder(mappings)
    else:
        used = {one.namespace or namespace or "default" for one in found}
        loaded = explaining.from_cluster(find_kubeconfig(kubeconfig), sorted(used))
    explained = [
        preview.explain_pod(one, loaded.index, policy, namespace=namespace) for one in found
    ]
    if output is Format.JSON:
        typer.echo(explaining.as_json(explained))
    else:
        explaining.show(explained)
    if mappings is not None:
        for hint in explaining.hints(explained, loaded.index, policy, mappings):
            typer.echo(f"hint: {hint}", err=True)
    for problem in loaded.problems:
        typer.echo(f"warning: {problem}", err=True)
    if any(one.is_refused for one in explained):
        raise typer.Exit(1)
