"""A node as the API server has it: its annotations, with the verb `get` of nodes."""

from collections.abc import Mapping
from typing import Final

import msgspec

from services.kube.client import NOT_FOUND, BadStatus, ClusterClient, Unreadable, segment
from services.kube.lists import decode
from services.process.text import plain

NODES: Final = "/api/v1/nodes"


class _Metadata(msgspec.Struct):
    name: str = ""
    annotations: dict[str, str] | None = None


class _Node(msgspec.Struct):
    metadata: _Metadata


_NODE: Final = msgspec.json.Decoder(_Node)


async def node_annotations(client: ClusterClient, name: str) -> Mapping[str, str]:
    """The annotations of a node.

    Raises:
        ClusterError: The API server gives no answer, refuses, or has no such node.
    """
    path = f"{NODES}/{segment(name)}"
    body = await client.get(path)
    if body is None:
        raise BadStatus(
            f'the API server has no node "{name}": set --node-name to the name of this node in'
            " kubectl get nodes",
            NOT_FOUND,
        )
    metadata = (await decode(body, path, _NODE)).metadata
    if metadata.name != name:
        raise Unreadable(f"asked for node {name}, got {plain(metadata.name, 80)}")
    return metadata.annotations or {}
