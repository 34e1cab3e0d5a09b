from pathlib import Path

import grpc
import grpc.aio
import pytest

from services.kubelet import podresources_pb2 as pb
from services.kubelet import sockets
from services.kubelet.pod_resources import held_devices
from services.kubelet.values import Held

pytestmark = pytest.mark.anyio

DEVICES = [
    pb.ContainerDevices(resource_name="d/n", device_ids=["x", "y"]),
    pb.ContainerDevices(resource_name="d/n", device_ids=["z"]),
]
ANSWER = pb.ListPodResourcesResponse(
    pod_resources=[
        pb.PodResources(name="idle", namespace="ns"),
        pb.PodResources(
            name="p",
            namespace="ns",
            containers=[
                pb.ContainerResources(name="bare"),
                pb.ContainerResources(name="c", devices=DEVICES),
            ],
        ),
    ]
)


class Lister(grpc.GenericRpcHandler):
    """The kubelet's service without its stubs."""

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[bytes, bytes] | None":
        assert handler_call_details.method == "/v1.PodResourcesLister/List"

        async def answer(_request: bytes, _context: object) -> bytes:
            return ANSWER.SerializeToString()

        return grpc.unary_unary_rpc_method_handler(answer)


async def test_the_devices_of_active_pods_are_listed(short_dir: Path) -> None:
    server = grpc.aio.server(handlers=[Lister()])
    sockets.listen(server, short_dir / "k.sock")
    await server.start()
    try:
        assert await held_devices(short_dir / "k.sock", seconds=60) == (
            Held("ns", "p", "c", "d/n", frozenset("xyz")),
        )
    finally:
        await server.stop(0)
