"""`accelbind check mappings`: what is wrong with those of a cluster or a folder."""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from accelbind.check.device_types import device_types
from accelbind.check.survey import survey
from accelbind.cluster import DEFAULT_NAMESPACE, Target, part, with_target
from accelbind.flags import MAPPINGS, manifests_option, namespace_option, switch, with_settings
from accelbind.manifests import read_objects, read_pods
from accelbind.mappings import misspelt_resources, read_folder
from accelbind.output import Exit, Output, print_result, table_lines
from services.admission.findings import Code, add_advertised, check, resource_uses
from services.admission.mutate import Policy
from services.mappings import folder as folders
from services.mappings.index import EMPTY_INDEX, MappingIndex
from services.mappings.kinds import SPECS, TABLE, unknown_fields, wrong_type
from services.process.errors import InvalidSettings
from services.process.objects import is_kind
from services.process.problem import Problem
from services.process.text import count, listing, plain
from webhook.settings import ReviewSettings

app = typer.Typer(help="Find what is wrong with mappings or device types.", no_args_is_help=True)


Folder: TypeAlias = Annotated[
    Path | None, typer.Argument(metavar="DIR", help=MAPPINGS, readable=False, show_default=False)
]
Checked: TypeAlias = tuple[MappingIndex, list[Problem], list[str]]
"""The mappings that can be used, what was found, and what was not checked, and why."""

_SHOWN = 3
"""Namespaces and objects that a row of equal findings names."""
_LISTED = ("namespace", "name", "kind", "resource")


app.command("device-types")(device_types)


@app.command("mappings")
@with_settings(
    ReviewSettings, *("domain", "accelerator_domain", "shared_namespace"), group="As the webhook's"
)
@with_target
def mappings(
    *,
    folder: Folder = None,
    namespace: Annotated[str | None, namespace_option("Check only this namespace.", "all")] = None,
    nodes: Annotated[
        list[Path] | None,
        manifests_option("--nodes", text="With DIR: output of kubectl get nodes -o yaml."),
    ] = None,
    pods: Annotated[
        list[Path] | None,
        manifests_option("--pods", text="With DIR: manifests of pods and workloads."),
    ] = None,
    list_: Annotated[
        bool, switch("--list", help="List each mapping with its resource, too.")
    ] = False,
    target: Target,
    settings: ReviewSettings,
    output: Output = "text",
) -> None:
    """Find what is wrong with mappings.

    Checks the folder DIR, or else a cluster.

    [bold]Findings[/bold]
      invalid           a mapping that can't be used
      clash             both kinds have the name, so neither can be used
      logical           a mapping to a name that is logical itself
      schema            with DIR: an API server refuses the mapping or drops a field
      unmapped          a pod or workload asks for a name that isn't mapped
      never-advertised  no node knows the resource
      dangling          nodes know the resource, but have none of it now
      claims            in a cluster: no template, class or device for the claims
      duplicate         several names of a namespace for the same thing
      deprecated        a pod or workload asks for a deprecated name
      daemonset         a DaemonSet's controller doesn't see the placement
      misspelt          with --pods: a name of another domain looks like a mapping

    Exit code 0: no findings; 1: findings; 2: no findings, but a cluster that can't
    be checked completely (each missing permission is named), wrong options, or
    files that can't be read.

    [bold]Examples[/bold]
      accelbind check mappings examples/mappings
      accelbind check mappings --list -n team
      accelbind check mappings maps --pods deploy --pods job.yaml
      accelbind check mappings --kubeconfig ~/.kube/config -n team -o json
    """
    policy = settings.policy()
    if folder is None:
        if nodes or pods:
            raise InvalidSettings("--nodes and --pods need a folder; a cluster has its own")
        checked = _check_cluster(target, policy, namespace)
    elif target.is_named:
        raise InvalidSettings("name either a folder of mappings or a cluster")
    else:
        checked = _check_folder(folder, nodes or (), pods or (), policy, namespace)
    index, findings, unchecked = _within(namespace, *checked)
    listed = [*_listed(index)]
    result = {
        "mappings": len(index),
        "namespaces": len(index.namespaces),
        "resources": [dict(zip(_LISTED, row, strict=True)) for row in listed],
        "findings": [_as_object(finding) for finding in findings],
        "notChecked": unchecked,
    }
    table = table_lines([each.upper() for each in _LISTED], listed) if list_ and listed else ()
    print_result(output, result, chain(table, _lines(index, findings, unchecked)))
    if findings:
        raise typer.Exit(Exit.NO)
    if unchecked and folder is None:
        raise typer.Exit(Exit.UNKNOWN)


def _as_object(finding: Problem) -> dict[str, str]:
    return {
        "code": finding.code,
        "namespace": finding.namespace,
        "name": finding.subject,
        "message": finding.text,
    }


def _listed(index: MappingIndex) -> Iterator[tuple[str, ...]]:
    """Yield the columns of `_LISTED`."""
    for namespace in sorted(index.namespaces):
        for table in index.namespace(namespace).tables:
            for name, mapping in sorted(table.by_name.items()):
                yield plain(namespace), plain(name), mapping.kind, mapping.resolution.resource


def _check_folder(
    folder: Path, nodes: Sequence[Path], pods: Sequence[Path], policy: Policy, namespace: str | None
) -> Checked:
    snapshot = read_folder(folder)
    index = snapshot.index
    advertised: dict[str, int] = {}
    wanted = "no node: kubectl get nodes -o yaml writes such a file"
    for node in read_objects(nodes, _nodes, wanted):
        add_advertised(advertised, node, policy.fpga_prefixes)
    found_pods = read_pods(pods)
    unchecked = []
    if not nodes:
        unchecked.append("whether nodes have the resources (see --nodes)")
    if not pods:
        unchecked.append("whether pods ask for names that are not mapped (see --pods)")
    findings = check(
        index,
        policy=policy,
        advertised=advertised if nodes else None,
        uses=[
            use
            for pod in found_pods
            for use in resource_uses(pod, policy.prefixes, namespace=namespace or DEFAULT_NAMESPACE)
            if namespace in (None, use.namespace)
        ],
        problems=snapshot.nameless,
    )
    findings += _of_schema(folder, index)
    for pod in found_pods:
        of = pod.namespace or namespace or DEFAULT_NAMESPACE
        for hint in misspelt_resources(pod, index, policy, namespace=of):
            findings.append(Problem(Code.MISSPELT, hint, pod.label, of))
    return index, findings, unchecked


def _of_schema(folder: Path, index: MappingIndex) -> Iterator[Problem]:
    # What an API server would refuse or drop, the webhook reads in a folder.
    for where, obj in folders.read_folder(folder, types=True):
        kind = str(obj.get("kind")) if isinstance(obj, dict) else ""
        if (
            not isinstance(obj, dict)
            or kind not in SPECS
            or not is_kind(obj, kind, TABLE[kind].group)
        ):
            continue
        named = part(obj, "metadata")
        namespace, name = str(named.get("namespace") or DEFAULT_NAMESPACE), str(named.get("name"))
        if any(name in table.rejected for table in index.namespace(namespace).tables):
            continue  # it is invalid anyway
        wrong = wrong_type(kind, obj)
        for problem in [wrong] if wrong else unknown_fields(kind, obj):
            yield Problem(Code.SCHEMA, f"{where}: {problem}", f"{kind} {plain(name)}", namespace)


def _within(
    namespace: str | None, index: MappingIndex, findings: list[Problem], unchecked: list[str]
) -> Checked:
    if namespace is None:
        return index, findings, unchecked
    # The namespace of shared names was read too, and is not asked about.
    own = [each for each in findings if each.namespace == namespace]
    return EMPTY_INDEX.with_namespaces([index.namespace(namespace)]), own, unchecked


def _check_cluster(target: Target, policy: Policy, namespace: str | None) -> Checked:
    found = target.query(lambda client: survey(client, policy, namespace=namespace))
    findings = check(
        found.index,
        policy=policy,
        advertised=found.advertised,
        uses=found.uses,
        claim_problem=found.claims.problem if found.claims else None,
    )
    return found.index, findings, found.missing


def _lines(
    index: MappingIndex, findings: Sequence[Problem], unchecked: Sequence[str]
) -> Iterator[str]:
    if findings:
        yield from table_lines(("FINDING", "NAMESPACE", "OF", "WHAT"), _rows(findings))
    amount = count(len(findings), "finding") if findings else "no findings"
    mappings, namespaces = count(len(index), "mapping"), count(len(index.namespaces), "namespace")
    yield f"{mappings} in {namespaces}: {amount}"
    yield from (f"not checked: {what}" for what in unchecked)


def _rows(findings: Sequence[Problem]) -> Iterator[tuple[str, ...]]:
    """Yield a row for all findings with the same words."""
    alike: dict[tuple[str, str], list[Problem]] = {}
    for one in findings:
        alike.setdefault((one.code, one.text), []).append(one)
    for (code, text), group in alike.items():
        namespaces = listing([*dict.fromkeys(plain(one.namespace) for one in group)], most=_SHOWN)
        subjects = listing([*dict.fromkeys(one.subject for one in group)], most=_SHOWN)
        yield code, namespaces, subjects, plain(text, 1000)


def _nodes(value: object) -> list[object]:
    # `kubectl get nodes -o yaml` prints a list; in those of an API server, items have no kind.
    items = value.get("items", [value]) if isinstance(value, dict) else ()
    listed = items if isinstance(items, list) else ()
    return [
        one
        for one in listed
        if isinstance(one, dict) and is_kind({"kind": "Node"} | one, "Node", "")
    ]
