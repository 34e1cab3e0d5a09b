"""The claims of a node of the fleet: they are prepared and reported as in a node process."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

from plugin.dra.book import FOLDER, ClaimBook
from plugin.dra.claim_files import CdiClaimFiles
from plugin.dra.claim_reports import ClaimReports
from plugin.dra.claims import ClaimRef
from plugin.dra.preparation import Preparation
from plugin.settings import Api, PluginSettings, Programming
from services.containers.holders import Given, Holders
from services.containers.pod_source import ApiServerPods
from services.devices.dra import API_VERSION, DRIVER
from services.kube.client import ClusterClient
from services.kube.events import EventRecorder
from services.kube.objects import NamedObject, create_object, replace_object
from services.node.regions import RegionProgramming
from services.node.state import NodeState
from services.process.blocking import BlockingCalls

NAMESPACE: Final = "default"
_COLLECTION: Final = f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/resourceclaims"
_REQUEST: Final = "npu"


class NodeClaims:
    """The claims of a node, each with a device of its own."""

    def __init__(
        self,
        node: str,
        client: ClusterClient,
        folder: Path,
        state: NodeState,
        events: EventRecorder,
    ) -> None:
        settings = PluginSettings(
            node_name=node,
            api=Api.DRA,
            programming=Programming.NONE,
            root=folder,
            host_root=Path("/"),
            state_dir=folder,
            cdi_dir=folder / "cdi",
        )
        self.book = ClaimBook(folder / FOLDER)
        self.reports = ClaimReports(client, self.book, state, pool=node)
        self._preparation = Preparation(
            settings,
            self.book,
            cast("RegionProgramming", None),  # no device of a fleet has regions
            CdiClaimFiles(settings, state, BlockingCalls()),
            state,
            source=ApiServerPods(client),
            plugin=_NoPods(),
            events=events,
        )

    async def prepare(self, claims: Iterable[ClaimRef]) -> None:
        """Prepare claims, all at once."""
        await asyncio.gather(*map(self._preparation.prepare, claims))

    async def release(self) -> None:
        """Take all claims back at once."""
        claims = [each.claim for each in self.book.entries()]
        await asyncio.gather(*map(self._preparation.unprepare, claims))


class _NoPods:
    """No pod has a device by the device plugin API."""

    def __init__(self) -> None:
        self.holders: Holders = {}
        self.given: frozenset[Given] = frozenset()

    async def read(self) -> Holders:
        return self.holders

    async def current(self) -> Holders:
        return self.holders


async def create_claim(client: ClusterClient, node: str, device: str) -> NamedObject:
    """Create a claim that has a device, as the scheduler leaves it."""
    request = {"name": _REQUEST, "exactly": {"deviceClassName": "npu"}}
    item = {
        "apiVersion": API_VERSION,
        "kind": "ResourceClaim",
        "metadata": {"name": f"{node}-{device}"},
        "spec": {"devices": {"requests": [request]}},
    }
    created = await create_object(client, _COLLECTION, item)
    given = {"request": _REQUEST, "driver": DRIVER, "pool": node, "device": device}
    status = {"allocation": {"devices": {"results": [given]}}}
    at_status = replace(created, path=f"{created.path}/status")
    await replace_object(client, at_status, created.item | {"status": status})
    return created


def ref_of(claim: NamedObject) -> ClaimRef:
    """A claim as the kubelet names it."""
    metadata = claim.item["metadata"]
    return ClaimRef(metadata["namespace"], metadata["name"], metadata["uid"])
