"""A DRA driver of somebody else: `python -m tests.e2e.foreign_driver NAME NODE API KUBELET CDI`.

Its name begins with the kind of its four devices; number n is at PCIe root n. A container gets the
variable `FOREIGN_<request>` with the names of its devices.
"""

import asyncio
import json
import signal
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import grpc.aio

from services.devices.dra import API_VERSION, SHARES
from services.kube.access import Access
from services.kube.client import ClusterClient
from services.kubelet import dra_pb2 as pb
from services.kubelet import pluginregistration_pb2 as registration
from services.kubelet.dra_pb2_grpc import DRAPluginServicer, add_DRAPluginServicer_to_server
from services.kubelet.pluginregistration_pb2_grpc import (
    RegistrationServicer,
    add_RegistrationServicer_to_server,
)
from services.kubelet.sockets import dra_registration, dra_socket, listen

_API = f"/apis/{API_VERSION}"
_CAPACITY = {SHARES: {"value": "8", "requestPolicy": {"default": "1"}}}


def device(kind: str, number: int) -> dict[str, Any]:
    """A device; one of kind `shared` has 8 shares for claims."""
    attributes = {"resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{number:02x}"}}
    more = {"allowMultipleAllocations": True, "capacity": _CAPACITY} if kind == "shared" else {}
    return {"name": f"{kind}-{number}", "attributes": attributes, **more}


class ForeignDriver(DRAPluginServicer, RegistrationServicer):
    """Publishes its devices whenever a kubelet registers it, and prepares any claim."""

    def __init__(self, name: str, node: str, api: str, kubelet: str, cdi: str) -> None:
        self._name, self._node, self._access, self._cdi = name, node, Access(api), Path(cdi)
        self._endpoint = dra_socket(Path(kubelet), name)
        self._registration = dra_registration(Path(kubelet), name)

    async def serve_forever(self) -> None:
        """Serve until the process ends."""
        server = grpc.aio.server()
        add_DRAPluginServicer_to_server(self, server)
        add_RegistrationServicer_to_server(self, server)
        for path in (self._endpoint, self._registration):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            listen(server, path)
        await server.start()
        try:
            await server.wait_for_termination()
        finally:
            self._registration.unlink(missing_ok=True)

    async def GetInfo(self, *_: object) -> registration.PluginInfo:  # noqa: N802 - the protocol's
        about = {"type": "DRAPlugin", "name": self._name, "endpoint": str(self._endpoint)}
        return registration.PluginInfo(**about, supported_versions=["v1.DRAPlugin"])

    async def NotifyRegistrationStatus(self, *_: object) -> registration.RegistrationStatusResponse:  # noqa: N802 - the same
        devices = [device(self._name.partition(".")[0], number) for number in range(4)]
        pool = {"name": self._node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": self._name, "nodeName": self._node, "pool": pool, "devices": devices}
        about = {"apiVersion": API_VERSION, "kind": "ResourceSlice", "spec": spec}
        name, path = f"{self._node}-{self._name}", f"{_API}/resourceslices"
        async with ClusterClient(self._access) as client:
            await client.request("DELETE", f"{path}/{name}")
            await client.request("POST", path, body=about | {"metadata": {"name": name}})
        return registration.RegistrationStatusResponse()

    async def NodePrepareResources(  # noqa: N802 - the same
        self, request: pb.NodePrepareResourcesRequest, *_: object
    ) -> pb.NodePrepareResourcesResponse:
        answer = pb.NodePrepareResourcesResponse()
        for claim in request.claims:
            path = f"{_API}/namespaces/{claim.namespace}/resourceclaims/{claim.name}"
            async with ClusterClient(self._access) as client:
                status = json.loads(await client.get(path) or b"")["status"]
            given = defaultdict[str, list[str]](list)
            for each in status["allocation"]["devices"]["results"]:
                if each["driver"] == self._name:
                    given[wanted := each["request"].partition("/")[0]].append(each["device"])
                    one = answer.claims[claim.uid].devices.add(request_names=[wanted])
                    one.pool_name, one.device_name = each["pool"], each["device"]
                    one.cdi_device_ids.append(f"{self._name}/claim={claim.uid}-{wanted}")
            edits = {
                key: {"env": [f"FOREIGN_{key}={','.join(all_)}"]} for key, all_ in given.items()
            }
            devices = [{"name": f"{claim.uid}-{k}", "containerEdits": e} for k, e in edits.items()]
            spec = {"cdiVersion": "0.5.0", "kind": f"{self._name}/claim", "devices": devices}
            self._cdi.mkdir(parents=True, exist_ok=True)
            (self._cdi / f"{self._name}-{claim.uid}.json").write_text(json.dumps(spec))
        return answer

    async def NodeUnprepareResources(  # noqa: N802 - the same
        self, request: pb.NodeUnprepareResourcesRequest, *_: object
    ) -> pb.NodeUnprepareResourcesResponse:
        answer = pb.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            (self._cdi / f"{self._name}-{claim.uid}.json").unlink(missing_ok=True)
            answer.claims[claim.uid].error = ""
        return answer


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    asyncio.run(ForeignDriver(*sys.argv[1:]).serve_forever())
