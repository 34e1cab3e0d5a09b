"""A node for the driver: synthetic cards, an API server stand-in, and calls as the kubelet's."""

import json
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plugin.dra.face import DraDriver
from plugin.process import Plugin
from plugin.settings import Api
from services.containers.holders import Given, Holders
from services.devices.dra import DRIVER, DraDevice, fpga_name
from services.devices.model import PluginMode
from services.kubelet import dra_pb2 as pb
from services.kubelet import pluginregistration_pb2 as registration
from services.kubelet.dra_pb2_grpc import DRAPluginStub
from services.kubelet.pluginregistration_pb2_grpc import RegistrationStub
from services.kubelet.sockets import dial
from services.names import dra_name
from services.node.ledger import Rules
from services.node.state import NodeState
from simulator.apiserver.standin import ApiServerStandIn
from simulator.cards import NLB0, CardSpec, Rack
from simulator.devices import DeviceTree, vector_engine
from tests.plugin.support import install, is_ready, running, settings
from tests.services import building
from tests.support import REPOSITORY, eventually_async

ENGINE = "nec-vector-engine"
NEVER = {"afu": NLB0, "program": "Never"}
DEVELOP = {"develop": True}


def config(parameters: object, source: str = "FromClass", *requests: str) -> dict[str, Any]:
    """A configuration of an allocation."""
    return {
        "source": source,
        "requests": list(requests),
        "opaque": {"driver": DRIVER, "parameters": parameters},
    }


def result(device: str, request: str = "fpga", **more: Any) -> dict[str, Any]:
    """A device of an allocation."""
    return {"request": request, "driver": DRIVER, "pool": "n1", "device": device} | more


class Known(NodeState):
    """The state of a node with devices by any names."""

    def __init__(self, devices: Mapping[str, DraDevice]) -> None:
        super().__init__(Rules(PluginMode.REGION))
        vars(self.ledger)["by_name"] = devices  # where `cached_property` keeps it


class NoPods:
    """No pod has a device from the device plugin."""

    def __init__(self) -> None:
        self.holders: Holders = {}
        self.given: frozenset[Given] = frozenset()

    async def read(self) -> Holders:
        return self.holders

    async def current(self) -> Holders:
        return self.holders


def claim(
    name: str, *results: dict[str, Any], configs: tuple[dict[str, Any], ...] = (), **more: Any
) -> dict[str, Any]:
    """An allocated claim of namespace ns."""
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-of-{name}"} | more
    devices = {"results": list(results), "config": list(configs)}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {},
        "status": {"allocation": {"devices": devices}},
    }


def extended_claim(
    pod: dict[str, Any], *results: dict[str, Any], configs: tuple[dict[str, Any], ...] = ()
) -> dict[str, Any]:
    """The claim that the scheduler makes for extended resources of a pod."""
    metadata = pod["metadata"]
    return claim(
        f"{metadata['name']}-extended-resources",
        *results,
        configs=configs,
        annotations={"resource.kubernetes.io/extended-resource-claim": "true"},
        ownerReferences=[
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": metadata["name"],
                "uid": metadata["uid"],
                "controller": True,
            }
        ],
    )


def with_claim(pod: dict[str, Any], *users: tuple[str, str, str]) -> dict[str, Any]:
    """A pod whose status names its claim, and which container uses which request of it."""
    mappings = [
        {"requestName": request, "containerName": container, "resourceName": resource}
        for request, container, resource in users
    ]
    status = {
        "extendedResourceClaimStatus": {
            "resourceClaimName": f"{pod['metadata']['name']}-extended-resources",
            "requestMappings": mappings,
        }
    }
    return pod | {"status": status}


def mapping(name: str, afu: str = NLB0, mode: str = "region") -> dict[str, Any]:
    """A mapping of namespace ns."""
    return building.function(name, mode, afu=afu, namespace="ns")


def region(name: str) -> dict[str, Any]:
    """A mapping of a region of namespace ns."""
    return building.region(name, namespace="ns")


def parts(plugin: Plugin) -> DraDriver:
    """What serves claims."""
    assert isinstance(plugin.face, DraDriver)
    return plugin.face


@dataclass
class Kubelet:
    """Calls to the driver of a node as its kubelet's, which has the folder `k`."""

    folder: Path

    async def register(self, *, accept: bool = True) -> registration.PluginInfo:
        """Do what the kubelet does with a new socket; return what the driver says of itself."""
        async with dial(self.folder / "k/plugins_registry/accelbind.dev-reg.sock") as channel:
            stub = RegistrationStub(channel)
            info = await stub.GetInfo(registration.InfoRequest(), timeout=10)
            error = "" if accept else "no"
            await stub.NotifyRegistrationStatus(
                registration.RegistrationStatus(plugin_registered=accept, error=error), timeout=10
            )
        return info

    async def prepare(self, *claims: dict[str, Any]) -> dict[str, pb.NodePrepareResourceResponse]:
        """Have claims prepared; return the answers by the claims' names."""
        async with dial(self.folder / "k/plugins/accelbind.dev/dra.sock") as channel:
            request = pb.NodePrepareResourcesRequest(claims=map(_message, claims))
            answer = await DRAPluginStub(channel).NodePrepareResources(request, timeout=45)
        return {each["metadata"]["name"]: answer.claims[_uid(each)] for each in claims}

    async def unprepare(self, *claims: dict[str, Any]) -> None:
        """Give claims back, which must succeed."""
        async with dial(self.folder / "k/plugins/accelbind.dev/dra.sock") as channel:
            request = pb.NodeUnprepareResourcesRequest(claims=map(_message, claims))
            answer = await DRAPluginStub(channel).NodeUnprepareResources(request, timeout=45)
        assert [answer.claims[_uid(each)].error for each in claims] == ["" for _ in claims]

    def cdi(self, each: dict[str, Any]) -> dict[str, Any]:
        """What the CDI file of a claim gives, by the last parts of its devices' names."""
        path = self.folder / "cdi" / f"accelbind-claim-{_uid(each)}.json"
        file = json.loads(path.read_text())
        return {device["name"]: device["containerEdits"] for device in file["devices"]}


@dataclass
class Bed(Kubelet):
    """A node and its cluster."""

    rack: Rack
    api: ApiServerStandIn

    @asynccontextmanager
    async def running(self, **values: Any) -> AsyncIterator[Plugin]:
        """The driver in this process, registered; ends it as SIGTERM would."""
        usual: dict[str, Any] = {
            "api": Api.DRA,
            "scan_interval": 0.1,
            "cdi_dir": self.folder / "cdi",
            "enforce_mappings": "never",
        }
        async with running(settings(self.folder, **(usual | values)), api=self.api) as plugin:
            socket = self.folder / "k/plugins_registry/accelbind.dev-reg.sock"
            await eventually_async(socket.exists)
            yield plugin

    @asynccontextmanager
    async def serving(self, **values: Any) -> AsyncIterator[Plugin]:
        """The driver, once the kubelet has registered it and it is ready."""
        async with self.running(**values) as plugin:
            await self.register()
            await eventually_async(lambda: is_ready(plugin))
            yield plugin

    async def ready(self, each: dict[str, Any]) -> pb.NodePrepareResourceResponse:
        """Store a claim and have it prepared, which must succeed."""
        self.api.put(each)
        done = (await self.prepare(each))[each["metadata"]["name"]]
        assert done.error == ""
        return done

    async def refused(self, each: dict[str, Any]) -> str:
        """Store a claim and have it prepared; return the error."""
        self.api.put(each)
        done = (await self.prepare(each))[each["metadata"]["name"]]
        assert done.error
        assert not done.devices
        return done.error

    def add_fpga(self) -> str:
        """Add a card with one region that carries NLB0; return the name of its device."""
        address = self.rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
        return fpga_name(address)

    def add_engines(self, *numbers: int) -> list[str]:
        """Add devices of a type in folder `types`; return their names."""
        types, tree = self.folder / "types", DeviceTree(self.rack.root)
        types.mkdir()
        shutil.copy(REPOSITORY / f"manifests/device-types/{ENGINE}.yaml", types)
        return [dra_name(ENGINE, vector_engine(tree, number).id) for number in numbers]

    @property
    def published(self) -> dict[str, Any]:
        """The devices in slices, by name."""
        slices = self.api.objects("ResourceSlice")
        return {one["name"]: one for each in slices for one in each["spec"]["devices"]}

    def install(self, *afus: str) -> None:
        """Install synthetic bitstreams."""
        install(self.folder, *afus)

    @property
    def left(self) -> list[str]:
        """Files of claims that are there."""
        folders = [self.folder / "state/claims", self.folder / "cdi"]
        return sorted(path.name for folder in folders for path in folder.glob("*"))


def _uid(each: dict[str, Any]) -> str:
    return str(each["metadata"]["uid"])


def _message(each: dict[str, Any]) -> pb.Claim:
    metadata = each["metadata"]
    return pb.Claim(namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"])
