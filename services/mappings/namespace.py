"""The mappings of one namespace as they are now: for a node, which asks before a container starts.

A node needs those of a few namespaces now and then, so it lists them when it has to know, rather
than to follow all of the cluster's.
"""

from typing import Any, Final

import msgspec

from services import names
from services.kube.client import NOT_FOUND, BadStatus, ClusterClient, segment
from services.mappings.index import NamespaceMappings, build_namespace
from services.mappings.model import (
    ACCELERATOR_FUNCTION,
    API_VERSION,
    FPGA_REGION,
    Mapping,
    Rejected,
    parse,
    reject,
)
from services.process.errors import ClusterError, InvalidMapping
from services.process.text import plain

PLURALS: Final = {ACCELERATOR_FUNCTION: "acceleratorfunctions", FPGA_REGION: "fpgaregions"}


class _List(msgspec.Struct):
    items: list[dict[str, Any]]


async def read_namespace(client: ClusterClient, namespace: str) -> NamespaceMappings:
    """List what a namespace maps.

    Args:
        client: The API server.
        namespace: Name of the namespace.

    Raises:
        ClusterError: It can't be told: away, not allowed to us, or without the custom resources.
    """
    mappings: list[Mapping] = []
    rejected: list[Rejected] = []
    for kind, plural in PLURALS.items():
        path = f"/apis/{API_VERSION}/namespaces/{segment(namespace)}/{plural}"
        try:
            async for page in client.pages(path):
                _take(page, kind, namespace, mappings, rejected)
        except BadStatus as error:
            if error.status != NOT_FOUND:
                raise
            raise ClusterError(
                f"{error}: are the custom resource definitions of {names.DOMAIN} installed?"
            ) from error
    return build_namespace(namespace, mappings, rejected)


def _take(
    page: bytes, kind: str, namespace: str, mappings: list[Mapping], rejected: list[Rejected]
) -> None:
    try:
        items = msgspec.json.decode(page, type=_List).items
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ClusterError(
            f"the list of the {kind}s of namespace {plain(namespace)} can't be read: {error}"
        ) from error
    for item in items:
        # whatever an item says of itself, it stands in the list of this kind and namespace
        metadata = item.get("metadata")
        own = metadata | {"namespace": namespace} if isinstance(metadata, dict) else metadata
        whole = item | {"kind": kind, "apiVersion": API_VERSION, "metadata": own}
        try:
            mappings.append(parse(whole))
        except InvalidMapping as error:
            if (refused := reject(whole, str(error))) is not None:
                rejected.append(refused)
