"""The current mappings of one namespace, which a node lists before a container starts."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from services.kube.client import NOT_FOUND, BadStatus, ClusterClient, segment
from services.kube.lists import list_objects
from services.mappings.index import NamespaceMappings, build_namespace
from services.mappings.kinds import TABLE, Family, MappingKind
from services.mappings.model import MappingEntry, read_entry


async def read_namespace(client: ClusterClient, namespace: str) -> NamespaceMappings:
    """List the mappings of a namespace that a node checks; raises as `list_entries`."""
    # Those of a few namespaces are needed now and then: a watch would bring the whole cluster's.
    fpga = [kind for kind in TABLE.values() if kind.family is Family.FPGA]
    return build_namespace(namespace, await list_entries(client, namespace, fpga))


async def list_entries(
    client: ClusterClient,
    namespace: str | None,
    kinds: Iterable[MappingKind] = tuple(TABLE.values()),
) -> list[MappingEntry]:
    """List the mappings of a namespace or, with None, of the cluster.

    Raises:
        ClusterError: The API server doesn't answer, doesn't allow it, or lacks all definitions.
    """
    entries: list[MappingEntry] = []
    missing: BadStatus | None = None
    served = False
    within = f"/namespaces/{segment(namespace)}" if namespace else ""
    for kind in kinds:
        path = f"/apis/{kind.api_version}{within}/{kind.plural}"
        try:
            entries += await list_objects(client, path, partial(_read, kind))
            served = True
        except BadStatus as error:
            if error.status != NOT_FOUND:
                raise
            missing = error
    if missing is not None and not served:
        raise BadStatus(
            f"{missing}: are the custom resource definitions of {kind.group} installed?",
            NOT_FOUND,
        ) from missing
    return entries


def _read(kind: MappingKind, item: dict[str, Any]) -> MappingEntry | None:
    # The items of a list don't say what they are.
    return read_entry(item | {"kind": kind.name, "apiVersion": kind.api_version})
