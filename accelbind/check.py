"""`accelbind check`: what is wrong with what a cluster or a folder holds."""

from pathlib import Path
from typing import Annotated

import typer

from accelbind.options import FOUND_KUBECONFIG, Domains, default_note, find_kubeconfig
from accelbind.printing import Format

EXIT_FOUND = 1


app = typer.Typer(
    name="check",
    help="Find what is wrong with mappings.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def check() -> None:
    """Find what is wrong with mappings."""


@app.command("mappings")
def mappings(
    *,
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR",
            help="Folder of AcceleratorFunctions and FpgaRegions as YAML.",
            readable=False,
            show_default=False,
        ),
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"Without DIR: the cluster to check. {default_note(FOUND_KUBECONFIG)}",
            readable=False,
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", metavar="NAMESPACE", help="Look at this one only."),
    ] = None,
    nodes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With DIR: what kubectl get nodes -o yaml says.", readable=False
        ),
    ] = None,
    pods: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With DIR: manifests of pods and workloads.", readable=False
        ),
    ] = None,
    domain: Domains = None,
    output: Annotated[
        Format, typer.Option("--output", "-o", help="json: an object with all findings.")
    ] = Format.TEXT,
) -> None:
    """Find what is wrong with mappings.

    [bold]Findings[/bold]
      invalid           a mapping that can't be used
      clash             both kinds have the name, so neither can be used
      unmapped          a pod or workload asks for a name that isn't mapped
      never-advertised  no node knows the resource
      dangling          nodes know the resource, but have none of it now
      duplicate         several names of a namespace for the same thing
      deprecated        a pod or workload asks for a deprecated name

    Exit code 0: nothing found; 1: something found, or a cluster that can't be
    looked at (each permission that is missing is named); 2: wrong options, or
    files that can't be read.

    [bold]Examples[/bold]
      accelbind check mappings examples/mappings
      accelbind check mappings --kubeconfig ~/.kube/config -n team -o json
    """
    from accelbind import checking  # noqa: PLC0415 - only when it runs
    from services.admission.mutate import Policy  # noqa: PLC0415 - the same
    from services.kube.config import may_reach  # noqa: PLC0415 - the same
    from services.process.errors import InvalidSettings  # noqa: PLC0415 - the same

    if folder is not None and kubeconfig is not None:
        raise InvalidSettings("name either a folder of mappings or --kubeconfig")
    prefixes = (Policy(tuple(domain)) if domain else Policy()).prefixes
    if folder is not None:
        report = checking.check_folder(folder, nodes, pods, prefixes, namespace=namespace)
    else:
        if nodes is not None or pods is not None:
            raise InvalidSettings("--nodes and --pods need a folder; a cluster has its own")
        config = find_kubeconfig(kubeconfig)
        if not may_reach(config):
            raise InvalidSettings("name a folder of mappings, or a cluster with --kubeconfig")
        report = checking.check_cluster(config, prefixes, namespace=namespace)
    if output is Format.JSON:
        typer.echo(checking.as_json(report))
    else:
        for line in checking.lines(report):
            typer.echo(line)
    if report.findings or report.is_partial:
        raise typer.Exit(EXIT_FOUND)
