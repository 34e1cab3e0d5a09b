"""The current mappings of one namespace, which a node reads before a container starts.

A node needs the mappings of a few namespaces now and then, so it lists them when a container starts
instead of watching those of the whole cluster.
"""

from functools import partial
from typing import Any, Final

from services import names
from services.kube.client import NOT_FOUND, BadStatus, ClusterClient, segment
from services.kube.lists import list_objects
from services.mappings.index import NamespaceMappings, build_namespace
from services.mappings.model import (
    ACCELERATOR_FUNCTION,
    API_VERSION,
    FPGA_REGION,
    Entry,
    read_entry,
)

PLURALS: Final = {ACCELERATOR_FUNCTION: "acceleratorfunctions", FPGA_REGION: "fpgaregions"}


async def read_namespace(client: ClusterClient, namespace: str) -> NamespaceMappings:
    """List the mappings of a namespace; raises as `list_entries`."""
    return build_namespace(namespace, await list_entries(client, namespace))


async def list_entries(client: ClusterClient, namespace: str | None) -> list[Entry]:
    """List the mappings of a namespace or, with None, of the cluster.

    Raises:
        ClusterError: The API server doesn't answer, doesn't allow it, or lacks the definitions.
    """
    entries: list[Entry] = []
    within = f"/namespaces/{segment(namespace)}" if namespace else ""
    for kind, plural in PLURALS.items():
        path = f"/apis/{API_VERSION}{within}/{plural}"
        try:
            entries += await list_objects(
                client, path, partial(_read, kind=kind, namespace=namespace)
            )
        except BadStatus as error:
            if error.status != NOT_FOUND:
                raise
            raise BadStatus(
                f"{error}: are the custom resource definitions of {names.DOMAIN} installed?",
                error.answer,
            ) from error
    return entries


def _read(item: dict[str, Any], kind: str, namespace: str | None) -> Entry | None:
    # kind and namespace are those of the list, whatever the item says
    metadata = item.get("metadata")
    if namespace and isinstance(metadata, dict):
        metadata = metadata | {"namespace": namespace}
    return read_entry(item | {"kind": kind, "apiVersion": API_VERSION, "metadata": metadata})
