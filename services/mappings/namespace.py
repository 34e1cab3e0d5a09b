"""Mappings that are read once: those of one namespace, or of all.

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
from services.process.errors import ClusterError

PLURALS: Final = {ACCELERATOR_FUNCTION: "acceleratorfunctions", FPGA_REGION: "fpgaregions"}


async def read_namespace(client: ClusterClient, namespace: str) -> NamespaceMappings:
    """List the mappings of a namespace, and decide which are served."""
    return build_namespace(namespace, await list_mappings(client, namespace))


async def list_mappings(client: ClusterClient, namespace: str | None) -> list[Entry]:
    """List the mappings of a namespace; None is all namespaces.

    Raises:
        ClusterError: The API server doesn't answer, doesn't allow it, or lacks the definitions.
    """
    within = f"namespaces/{segment(namespace)}/" if namespace else ""
    entries: list[Entry] = []
    for kind, plural in PLURALS.items():
        about = {"apiVersion": API_VERSION, "kind": kind}  # items of a list don't say it
        try:
            entries += await list_objects(
                client,
                f"/apis/{API_VERSION}/{within}{plural}",
                partial(_read, about),
            )
        except BadStatus as error:
            if error.status != NOT_FOUND:
                raise
            raise ClusterError(
                f"{error}: are the custom resource definitions of {names.DOMAIN} installed?"
            ) from error
    return entries


def _read(about: dict[str, str], item: dict[str, Any]) -> Entry | None:
    return read_entry(about | item)
