"""`accelbind check`: what is wrong with the mappings of a cluster or a folder."""

import asyncio
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from accelbind.manifests import expand, read_manifest, read_pods
from accelbind.options import (
    MAPPINGS,
    Domains,
    Kubeconfig,
    find_kubeconfig,
    manifests_option,
    namespace_option,
)
from accelbind.output import Output, OutputFormat, count, print_json, table_lines
from accelbind.survey import Survey, survey
from services.admission.findings import Finding, add_advertised, check, resource_uses
from services.admission.mutate import Policy
from services.kube.client import ClusterClient
from services.kube.config import NO_KUBECONFIG, load_config
from services.mappings.folder import load_folder
from services.mappings.index import MappingIndex
from services.process.errors import ClusterError, InvalidManifest, InvalidSettings, WorldError
from services.process.text import plain

EXIT_FOUND = 1

app = typer.Typer(
    name="check",
    help="Find what is wrong with mappings.",
    no_args_is_help=True,
    add_completion=False,
)


@dataclass(frozen=True, slots=True)
class _Report:
    """The result of a check."""

    mappings: int
    """How many can be used."""
    namespaces: int
    findings: list[Finding]
    unchecked: list[str]
    """What was not checked, and why."""
    is_partial: bool = False
    """Whether something could not be checked, such as for a missing permission."""


@app.callback()
def _group() -> None:
    """Find what is wrong with mappings."""


@app.command("mappings")
def mappings(
    *,
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help=MAPPINGS, readable=False, show_default=False),
    ] = None,
    kubeconfig: Kubeconfig = None,
    namespace: Annotated[str | None, namespace_option("Check only this namespace.", "all")] = None,
    nodes: Annotated[
        list[Path] | None,
        manifests_option("--nodes", text="With DIR: output of kubectl get nodes -o yaml."),
    ] = None,
    pods: Annotated[
        list[Path] | None,
        manifests_option("--pods", text="With DIR: manifests of pods and workloads."),
    ] = None,
    domain: Domains = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Find what is wrong with mappings.

    Checks the folder DIR, or else a cluster.

    [bold]Findings[/bold]
      invalid           a mapping that can't be used
      clash             both kinds have the name, so neither can be used
      unmapped          a pod or workload asks for a name that isn't mapped
      never-advertised  no node knows the resource
      dangling          nodes know the resource, but have none of it now
      duplicate         several names of a namespace for the same thing
      deprecated        a pod or workload asks for a deprecated name

    Exit code 0: no findings; 1: findings, or a cluster that can't be checked
    completely (each missing permission is named); 2: wrong options, or files
    that can't be read.

    [bold]Examples[/bold]
      accelbind check mappings examples/mappings
      accelbind check mappings maps --pods deploy --pods job.yaml
      accelbind check mappings --kubeconfig ~/.kube/config -n team -o json
    """
    prefixes = (Policy(tuple(domain)) if domain else Policy()).prefixes
    if folder is None:
        if nodes or pods:
            raise InvalidSettings("--nodes and --pods need a folder; a cluster has its own")
        report = _check_cluster(find_kubeconfig(kubeconfig), prefixes, namespace)
    elif kubeconfig is not None:
        raise InvalidSettings("name either a folder of mappings or --kubeconfig")
    else:
        report = _check_folder(folder, nodes or (), pods or (), prefixes, namespace)
    if output is OutputFormat.JSON:
        print_json(
            {
                "mappings": report.mappings,
                "namespaces": report.namespaces,
                "findings": [dataclasses.asdict(finding) for finding in report.findings],
                "notChecked": report.unchecked,
            }
        )
    else:
        for line in _lines(report):
            typer.echo(line)
    if report.findings or report.is_partial:
        raise typer.Exit(EXIT_FOUND)


def _check_folder(
    folder: Path,
    nodes: Sequence[Path],
    pods: Sequence[Path],
    prefixes: tuple[str, ...],
    namespace: str | None,
) -> _Report:
    try:
        snapshot = load_folder(folder)
    except WorldError as error:
        raise InvalidSettings(str(error)) from error  # exit code 1 means findings here
    index = snapshot.index
    if namespace is not None:
        index = MappingIndex({namespace: index.namespace(namespace)})
    unchecked = []
    if not nodes:
        unchecked.append("whether nodes have the resources (see --nodes)")
    if not pods:
        unchecked.append("whether pods ask for names that are not mapped (see --pods)")
    found = check(
        index,
        advertised=_read_nodes(nodes, prefixes) if nodes else None,
        uses=[
            use
            for _, pod in read_pods(pods)
            for use in resource_uses(pod, prefixes, namespace=namespace or "default")
            if namespace in (None, use.namespace)
        ],
        problems=() if namespace else snapshot.problems,
    )
    return _Report(len(index), len(index.namespaces), found, unchecked)


def _check_cluster(
    kubeconfig: Path | None, prefixes: tuple[str, ...], namespace: str | None
) -> _Report:
    seen = asyncio.run(_survey(kubeconfig, prefixes, namespace))
    found = check(seen.index, advertised=seen.advertised, uses=seen.uses)
    return _Report(
        len(seen.index), len(seen.index.namespaces), found, seen.missing, bool(seen.missing)
    )


async def _survey(
    kubeconfig: Path | None, prefixes: tuple[str, ...], namespace: str | None
) -> Survey:
    try:
        config = load_config(kubeconfig)
    except ClusterError as error:
        raise InvalidSettings(str(error)) from error  # the file is wrong, not the cluster
    if config is None:
        raise InvalidSettings(f"{NO_KUBECONFIG}, or name a folder of mappings")
    async with ClusterClient(config) as client:
        return await survey(client, prefixes, namespace=namespace)


def _lines(report: _Report) -> Iterator[str]:
    """Yield a table, a summary, and what was not checked."""
    if report.findings:
        rows = (
            (one.code.value, plain(one.namespace), one.name, plain(one.message, 1000))
            for one in report.findings
        )
        yield from table_lines(("FINDING", "NAMESPACE", "OF", "WHAT"), rows)
    found = count(len(report.findings), "finding") if report.findings else "no findings"
    yield f"{count(report.mappings, 'mapping')} in {count(report.namespaces, 'namespace')}: {found}"
    yield from (f"not checked: {what}" for what in report.unchecked)


def _read_nodes(paths: Sequence[Path], prefixes: tuple[str, ...]) -> dict[str, int]:
    """How many devices of each resource the nodes in some files have."""
    totals: dict[str, int] = {}
    for path, files in expand(paths):
        nodes = [
            node
            for file in files
            for _, document in read_manifest(file)
            for node in _nodes(document.value)
        ]
        if not nodes:
            raise InvalidManifest(
                f"{path} contains no node: kubectl get nodes -o yaml writes such a file"
            )
        for node in nodes:
            add_advertised(totals, node, prefixes)
    return totals


def _nodes(value: object) -> Iterator[object]:
    if not isinstance(value, dict):
        return
    if value.get("kind") == "Node":
        yield value
    elif str(value.get("kind", "")).endswith("List"):
        items = value.get("items")
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict) and item.get("kind", "Node") == "Node":
                yield item
