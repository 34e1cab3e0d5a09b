"""What `accelbind check mappings` does: mappings of a folder or a cluster, findings, their show."""

import asyncio
import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from accelbind.survey import Survey, survey
from services.admission.findings import Finding, add_advertised, check, resource_uses
from services.admission.preview import read_pods
from services.kube.client import ClusterClient
from services.kube.config import load_config
from services.mappings.folder import load_folder
from services.mappings.index import MappingIndex
from services.process.errors import ClusterError, InvalidManifest, InvalidSettings, WorldError
from services.process.text import plain
from services.process.yaml import BrokenDocument, read_documents

MAX_BYTES = 64 * 1024 * 1024
"""Of a file of nodes: each has some 20 KiB."""

_HEAD = ("FINDING", "NAMESPACE", "OF", "WHAT")


@dataclass(frozen=True, slots=True)
class Report:
    """What was looked at, and what is wrong with it.

    Attributes:
        mappings: how many can be used.
        namespaces: in how many namespaces.
        findings: what is wrong.
        unchecked: what wasn't looked at, and why.
        is_partial: whether something should have been looked at and couldn't.
    """

    mappings: int
    namespaces: int
    findings: list[Finding]
    unchecked: list[str]
    is_partial: bool = False


def check_folder(
    folder: Path,
    nodes: Path | None,
    pods: Path | None,
    prefixes: tuple[str, ...],
    *,
    namespace: str | None,
) -> Report:
    """Look at a folder of mappings.

    Args:
        folder: as the webhook's --mappings.
        nodes: what ``kubectl get nodes`` says, if that is known.
        pods: manifests of what will ask for them, if there are any.
        prefixes: our domains, each with its slash.
        namespace: the only one to look at, and that of pods that name none.

    Raises:
        InvalidManifest: the file of nodes or of pods is none.
        InvalidSettings: the folder, or a file, can't be read.
    """
    try:
        snapshot = load_folder(folder)
    except WorldError as error:
        raise InvalidSettings(str(error)) from error  # exit code 1 means findings here
    index = _only(snapshot.index, namespace)
    unchecked = []
    if nodes is None:
        unchecked.append("whether nodes have the resources (--nodes FILE tells what they have)")
    if pods is None:
        unchecked.append("whether what is asked for is mapped (--pods FILE tells what is)")
    found = check(
        index,
        advertised=None if nodes is None else _read_nodes(nodes, prefixes),
        uses=[
            wish
            for one in (read_pods(pods) if pods is not None else ())
            for wish in resource_uses(one, prefixes, namespace=namespace or "default")
            if namespace in (None, wish.namespace)
        ],
        problems=() if namespace else snapshot.problems,
    )
    return Report(len(index), len(index.namespaces), found, unchecked)


def check_cluster(
    kubeconfig: Path | None, prefixes: tuple[str, ...], *, namespace: str | None
) -> Report:
    """Look at a cluster; see `check_folder`.

    Raises:
        ClusterError: there is no answer, or its mappings can't be listed.
    """
    seen = asyncio.run(_survey(kubeconfig, prefixes, namespace))
    found = check(seen.index, advertised=seen.advertised, uses=seen.wishes)
    return Report(
        len(seen.index), len(seen.index.namespaces), found, seen.missing, bool(seen.missing)
    )


async def _survey(
    kubeconfig: Path | None, prefixes: tuple[str, ...], namespace: str | None
) -> Survey:
    config = load_config(kubeconfig)
    if config is None:
        raise ClusterError("no kubeconfig names an API server")
    async with ClusterClient(config) as client:
        return await survey(client, prefixes, namespace=namespace)


def as_json(report: Report) -> str:
    """Return all of it for programs."""
    return json.dumps(
        {
            "mappings": report.mappings,
            "namespaces": report.namespaces,
            "findings": [dataclasses.asdict(finding) for finding in report.findings],
            "notChecked": report.unchecked,
        },
        indent=2,
    )


def lines(report: Report) -> Iterator[str]:
    """Yield all of it for people: a table, what it sums up to, and what is left out."""
    rows = [
        (one.code.value, plain(one.namespace) or "-", one.name or "-", plain(one.message, 1000))
        for one in report.findings
    ]
    if rows:
        table = [_HEAD, *rows]
        widths = [max(len(row[column]) for row in table) for column in range(3)]
        for *cells, last in table:
            padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
            yield "  ".join([*padded, last])
    found = f"{len(rows)} finding{'s' if len(rows) != 1 else ''}" if rows else "nothing found"
    mappings = f"{report.mappings} mapping{'s' if report.mappings != 1 else ''}"
    namespaces = f"{report.namespaces} namespace{'s' if report.namespaces != 1 else ''}"
    yield f"{mappings} in {namespaces}: {found}"
    yield from (f"not checked: {what}" for what in report.unchecked)


def _only(index: MappingIndex, namespace: str | None) -> MappingIndex:
    if namespace is None:
        return index
    return MappingIndex({namespace: index.namespace(namespace)})


def _read_nodes(path: Path, prefixes: tuple[str, ...]) -> dict[str, int]:
    """Return how many of each resource the nodes in a file can give."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidSettings(f"{path}: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise InvalidManifest(f"{path} has more than {MAX_BYTES} bytes")
    totals: dict[str, int] = {}
    nodes = 0
    for document in read_documents(data, types=True):
        if isinstance(document, BrokenDocument):
            raise InvalidManifest(f"{path}, line {document.line}: {plain(document.message, 500)}")
        for node in _nodes(document.value):
            nodes += 1
            add_advertised(totals, node, prefixes)
    if not nodes:
        raise InvalidManifest(f"{path} holds no node: kubectl get nodes -o yaml writes such a file")
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
