"""The mappings that a command works with, of a folder or a cluster, and names like theirs."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from accelbind.cluster import NO_CLUSTER, Target
from accelbind.output import warn
from services.admission.mutate import Policy
from services.kube.client import ClusterClient
from services.mappings.folder import FolderSnapshot, load_folder
from services.mappings.index import MappingIndex, build_index
from services.mappings.model import Mapping
from services.mappings.source import list_entries
from services.pods.manifests import FoundPod
from services.pods.pod import Resources
from services.pods.requests import requesting_containers
from services.process.errors import ExternalFailure, InvalidSettings
from services.process.text import plain, quote

_ALIKE: Final = 0.8
"""Similarity as difflib counts it: intel.com/nlb0 and fpga.intel.com/nlb0 have 0.85."""


async def read_index(client: ClusterClient, namespaces: Iterable[str | None]) -> MappingIndex:
    """The mappings of some namespaces; None is all of them."""
    return build_index(
        [entry for namespace in namespaces for entry in await list_entries(client, namespace)]
    )


def read_folder(folder: Path) -> FolderSnapshot:
    """The mappings of a folder, and its problems.

    Raises:
        InvalidSettings: It or a file can't be read.
    """
    try:
        snapshot = load_folder(folder)
    except ExternalFailure as error:  # the asker's fault
        advice = ": name the folder that has this file" if folder.is_file() else ""
        raise InvalidSettings(f"{error}{advice}") from error
    if snapshot.unread:
        raise InvalidSettings(f"the folder of mappings {folder}: {'; '.join(snapshot.unread[:4])}")
    return snapshot


def read_mappings(
    folder: Path | None, target: Target, namespaces: Iterable[str | None]
) -> MappingIndex:
    """The mappings of a folder, whose problems are shown, or of namespaces of a cluster.

    Raises:
        InvalidSettings: The folder can't be read, or both are given.
        ClusterError: The cluster can't be read, or none is known.
    """
    if folder is not None:
        if target.is_named:
            raise InvalidSettings("--mappings excludes --api-server, --kubeconfig and --context")
        snapshot = read_folder(folder)
        for problem in snapshot.problems:
            warn(problem)
        return snapshot.index
    if not target.is_known:
        raise InvalidSettings(f"{NO_CLUSTER}, or use --mappings")

    # Not of all namespaces: users often may list few.
    return target.query(lambda client: read_index(client, namespaces))


def resource_of(mapping: Mapping, domain: str) -> str:
    """The full name of a mapping's resource; `domain` is that of an FPGA's."""
    to = mapping.resolution
    return f"{domain}/{to.resource}" if to.mode else to.resource


def misspelt_resources(
    found: FoundPod, index: MappingIndex, policy: Policy, *, namespace: str
) -> Iterator[str]:
    """Yield a hint for each resource of another domain that was probably meant to be ours."""
    # The webhook ignores such a resource, and the pod stays Pending.
    mappings, shared = index.namespace(namespace), policy.shared(index)
    ours = [
        *_named(policy.domains, [*mappings.by_name, *mappings.modes]),
        *_named(policy.accelerator_domains, [*mappings.accelerators.by_name, *shared.by_name]),
    ]
    for ref in requesting_containers(found.pod, ("",)):  # whatever resource
        resources = ref.container.resources or Resources()
        for key in dict.fromkeys((*(resources.limits or ()), *(resources.requests or ()))):
            near = [] if key.startswith(policy.prefixes) else _alike(key, ours)
            if near:
                yield (
                    f"container {quote(ref.container.name)} asks for {plain(key)},"
                    f" which accelbind does not serve; did you mean {plain(near[0])}?"
                )


def _named(domains: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    yield from (f"{domain}/{name}" for domain in domains for name in names)


def _alike(key: str, ours: Sequence[str]) -> list[str]:
    if "/" not in key:  # the domain was left out
        return [each for each in ours if each.rpartition("/")[2] == key]
    return difflib.get_close_matches(key, ours, n=1, cutoff=_ALIKE)
