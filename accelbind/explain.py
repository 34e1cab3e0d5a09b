"""`accelbind explain`: what the webhook would do to a pod, and why."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """How to print."""

    TEXT = "text"
    JSON = "json"


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
        Path,
        typer.Option(
            metavar="DIR",
            help="Folder of AcceleratorFunctions and FpgaRegions as YAML.",
            readable=False,
        ),
    ],
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAMESPACE",
            help="Namespace of pods that name none. (default: default)",
        ),
    ] = None,
    output: Annotated[
        Format, typer.Option("--output", "-o", help="json: a list with one object a pod.")
    ] = Format.TEXT,
    max_units: Annotated[
        int, typer.Option(metavar="N", min=1, help="As the webhook's --max-units.")
    ] = 64,
    domain: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DOMAIN",
            help="As the webhook's --domain; repeat it for more. (default: fpga.intel.com)",
        ),
    ] = None,
) -> None:
    """Show what the webhook would do to a pod, and why.

    Reads pods, and the templates of Kubernetes' own workloads: Deployments,
    Jobs and so on. Exit code 0: all would be admitted; 1: one would be
    refused; 2: that can't be said (no pod, files that can't be read, wrong
    options). Mappings that name no namespace are of namespace default
    whatever -n says, as in the webhook: they are the access control.

    [bold]Examples[/bold]
      accelbind explain -f pod.yaml --mappings maps
      kubectl create job x --image=i --dry-run=client -o yaml |
        accelbind explain -f - -n team --mappings maps -o json
    """
    from accelbind import explaining  # noqa: PLC0415 - only when it runs
    from services.admission import preview  # noqa: PLC0415 - the same
    from services.admission.mutate import Policy  # noqa: PLC0415 - the same
    from services.mappings.folder import load_folder  # noqa: PLC0415 - the same
    from services.process.errors import InvalidSettings, WorldError  # noqa: PLC0415 - the same

    policy = Policy(tuple(domain), max_units) if domain else Policy(max_units=max_units)
    found = preview.read_pods(filename)
    try:
        snapshot = load_folder(mappings)
    except WorldError as error:
        raise InvalidSettings(str(error)) from error  # exit code 1 means a refusal here
    explained = [
        preview.explain_pod(one, snapshot.index, policy, namespace=namespace) for one in found
    ]
    if output is Format.JSON:
        typer.echo(explaining.as_json(explained))
    else:
        explaining.show(explained)
    for hint in explaining.hints(explained, snapshot.index, policy, mappings):
        typer.echo(f"hint: {hint}", err=True)
    for problem in snapshot.problems:
        typer.echo(f"warning: {problem}", err=True)
    if any(one.is_refused for one in explained):
        raise typer.Exit(1)
