"""A cluster's mappings, what its nodes offer, and what its pods and workloads ask for.

Each list is read once, page by page.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final

from accelbind.cluster import DEFAULT_NAMESPACE, ENDED, Json, Reader, part
from accelbind.dra.objects import (
    CLASSES,
    SLICES,
    ClaimObjects,
    names_claims,
    read_claim_objects,
    read_published,
    templates_path,
)
from accelbind.mappings import read_index
from services.admission.findings import ResourceUse, add_advertised, resource_uses
from services.admission.mutate import Policy
from services.kube.client import ClusterClient, segment
from services.mappings.index import MappingIndex
from services.pods.manifests import find_pods
from services.process.errors import InvalidManifest

_POD_KINDS: Final = {
    "/api/v1": ("Pod", "ReplicationController"),
    "/apis/apps/v1": ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"),
    "/apis/batch/v1": ("Job", "CronJob"),
}


@dataclass(slots=True)
class Survey:
    """Mappings, resources and requests of a cluster."""

    index: MappingIndex
    """The mappings."""
    advertised: dict[str, int] | None = None
    """The number of devices of each resource; None if what nodes offer can't be listed."""
    uses: list[ResourceUse] = field(default_factory=list)
    """What pods and workloads ask for."""
    claims: ClaimObjects | None = None
    """The objects that names of claims need; None if they can't be listed, or no name needs one."""
    missing: list[str] = field(default_factory=list)
    """A sentence for each kind that we may not list."""


async def survey(client: ClusterClient, policy: Policy, *, namespace: str | None) -> Survey:
    """Read a cluster, or what one namespace of it has."""
    namespaces = {namespace, policy.shared_namespace or namespace} if namespace else {None}
    result = Survey(await read_index(client, namespaces))

    reader = Reader(client, result.missing)
    prefixes, within = policy.prefixes, f"/namespaces/{segment(namespace)}" if namespace else ""

    def advertised(node: Json) -> dict[str, int]:
        return add_advertised({}, node, policy.fpga_prefixes)

    nodes = await reader.listed("/api/v1/nodes", advertised, note="nodes: {}")
    slices = await reader.listed(SLICES, dict, note="resourceslices: {}")
    classes = await reader.listed(CLASSES, dict, note="deviceclasses: {}")
    if nodes is not None and slices is not None and classes is not None:
        totals: Counter[str] = Counter()
        for of_node in nodes:
            totals.update(of_node)
        published = read_published(slices, classes)
        # How many devices another driver has for a resource is unknown.
        of_others = dict.fromkeys(published.of_others, 1)
        for key, number in (*published.amounts.items(), *of_others.items()):
            is_ours = key.startswith(policy.fpga_prefixes)
            totals[key.partition("/")[2] if is_ours else key] += number
        result.advertised = totals
        if names_claims(result.index):
            templates = await reader.listed(
                templates_path(namespace), dict, note="resourceclaimtemplates: {}"
            )
            if templates is not None:
                result.claims = read_claim_objects(templates, classes, slices)
    for root, kinds in _POD_KINDS.items():
        for kind in kinds:
            plural, read = f"{kind.lower()}s", partial(_uses, root, kind, prefixes)
            found = await reader.listed(f"{root}{within}/{plural}", read, note=f"{plural}: {{}}")
            result.uses += chain.from_iterable(found or ())
    return result


def _uses(root: str, kind: str, prefixes: tuple[str, ...], obj: Json) -> list[ResourceUse]:
    owners = part(obj, "metadata").get("ownerReferences") or ()
    # What has a controller asks for what that asks for too.
    is_owned = any(owner.get("controller") for owner in owners)
    if is_owned or part(obj, "status").get("phase") in ENDED:
        return []
    # Items of a list don't say what they are.
    about = {"apiVersion": root.split("/", 2)[2], "kind": kind}
    try:
        return [
            use
            for pod in find_pods(about | obj)
            for use in resource_uses(pod, prefixes, namespace=DEFAULT_NAMESPACE)
        ]
    except InvalidManifest:
        return []  # it can't run
