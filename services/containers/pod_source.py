"""Pods, claims and mappings, as the API server has them; a `ClusterError` passes through."""

from services.devices.dra import API_VERSION
from services.kube.client import ClusterClient, segment
from services.mappings.index import NamespaceMappings, build_namespace
from services.mappings.kinds import TABLE, Family
from services.mappings.source import list_entries


class ApiServerPods:
    """Where a node's pods, claims and mappings come from."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    async def get_pod(self, namespace: str, name: str) -> bytes | None:
        """A pod as JSON; None if there is none."""
        path = f"/api/v1/namespaces/{segment(namespace)}/pods"
        return await self._client.get(f"{path}/{segment(name)}")

    async def get_claim(self, namespace: str, name: str) -> bytes | None:
        """A ResourceClaim as JSON; None if there is none."""
        path = f"/apis/{API_VERSION}/namespaces/{segment(namespace)}/resourceclaims"
        return await self._client.get(f"{path}/{segment(name)}")

    async def mappings(self, namespace: str) -> NamespaceMappings:
        """The current mappings of a namespace that a node checks; raises as `list_entries`."""
        # Those of a few namespaces are needed now and then: a watch would bring all of them.
        fpga = [kind for kind in TABLE.values() if kind.family is Family.FPGA]
        return build_namespace(namespace, await list_entries(self._client, namespace, fpga))
