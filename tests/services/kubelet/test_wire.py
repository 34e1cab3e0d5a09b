"""The stubs have the field numbers, types and methods of the kubelet's protocols.

Plugin and kubelet stand-in share the generated stubs, so a wrong field number would go unseen
between them.
"""

from types import ModuleType
from typing import Final

import pytest
from google.protobuf.descriptor import FieldDescriptor

from services.kubelet import (
    deviceplugin_pb2,
    dra_health_pb2,
    dra_pb2,
    pluginregistration_pb2,
    podresources_pb2,
)

DEVICE_PLUGIN: Final = """
Empty:
RegisterRequest: version=1 string, endpoint=2 string, resource_name=3 string,
  options=4 DevicePluginOptions
DevicePluginOptions: pre_start_required=1 bool, get_preferred_allocation_available=2 bool
ListAndWatchResponse: devices=1 repeated Device
Device: ID=1 string, health=2 string, topology=3 TopologyInfo
TopologyInfo: nodes=1 repeated NUMANode
NUMANode: ID=1 int64
PreferredAllocationRequest: container_requests=1 repeated ContainerPreferredAllocationRequest
ContainerPreferredAllocationRequest: available_deviceIDs=1 repeated string,
  must_include_deviceIDs=2 repeated string, allocation_size=3 int32
PreferredAllocationResponse: container_responses=1 repeated ContainerPreferredAllocationResponse
ContainerPreferredAllocationResponse: deviceIDs=1 repeated string
AllocateRequest: container_requests=1 repeated ContainerAllocateRequest
ContainerAllocateRequest: devices_ids=1 repeated string
AllocateResponse: container_responses=1 repeated ContainerAllocateResponse
ContainerAllocateResponse: envs=1 map, devices=3 repeated DeviceSpec,
  cdi_devices=5 repeated CDIDevice
DeviceSpec: container_path=1 string, host_path=2 string, permissions=3 string
CDIDevice: name=1 string
PreStartContainerRequest: devices_ids=1 repeated string
PreStartContainerResponse:
v1beta1.Registration/Register: RegisterRequest, Empty
v1beta1.DevicePlugin/GetDevicePluginOptions: Empty, DevicePluginOptions
v1beta1.DevicePlugin/ListAndWatch: Empty, stream ListAndWatchResponse
v1beta1.DevicePlugin/GetPreferredAllocation: PreferredAllocationRequest, PreferredAllocationResponse
v1beta1.DevicePlugin/Allocate: AllocateRequest, AllocateResponse
v1beta1.DevicePlugin/PreStartContainer: PreStartContainerRequest, PreStartContainerResponse
"""

POD_RESOURCES: Final = """
ListPodResourcesRequest:
ListPodResourcesResponse: pod_resources=1 repeated PodResources
PodResources: name=1 string, namespace=2 string, containers=3 repeated ContainerResources
ContainerResources: name=1 string, devices=2 repeated ContainerDevices
ContainerDevices: resource_name=1 string, device_ids=2 repeated string, topology=3 TopologyInfo
TopologyInfo: nodes=1 repeated NUMANode
NUMANode: ID=1 int64
v1.PodResourcesLister/List: ListPodResourcesRequest, ListPodResourcesResponse
"""

DRA: Final = """
Claim: namespace=1 string, uid=2 string, name=3 string
NodePrepareResourcesRequest: claims=1 repeated Claim
NodePrepareResourcesResponse: claims=1 map
NodePrepareResourceResponse: devices=1 repeated Device, error=2 string
Device: request_names=1 repeated string, pool_name=2 string, device_name=3 string,
  cdi_device_ids=4 repeated string
NodeUnprepareResourcesRequest: claims=1 repeated Claim
NodeUnprepareResourcesResponse: claims=1 map
NodeUnprepareResourceResponse: error=1 string
k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources: NodePrepareResourcesRequest,
  NodePrepareResourcesResponse
k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources: NodeUnprepareResourcesRequest,
  NodeUnprepareResourcesResponse
"""

DRA_HEALTH: Final = """
NodeWatchResourcesRequest:
NodeWatchResourcesResponse: devices=1 repeated DeviceHealth
DeviceHealth: device=1 DeviceIdentifier, health=2 enum, last_updated_time=3 int64,
  health_check_timeout_seconds=4 int64, message=5 string
DeviceIdentifier: pool_name=1 string, device_name=2 string
v1alpha1.DRAResourceHealth/NodeWatchResources: NodeWatchResourcesRequest,
  stream NodeWatchResourcesResponse
"""

PLUGIN_REGISTRATION: Final = """
InfoRequest:
PluginInfo: type=1 string, name=2 string, endpoint=3 string, supported_versions=4 repeated string
RegistrationStatus: plugin_registered=1 bool, error=2 string
RegistrationStatusResponse:
pluginregistration.Registration/GetInfo: InfoRequest, PluginInfo
pluginregistration.Registration/NotifyRegistrationStatus: RegistrationStatus,
  RegistrationStatusResponse
"""

TYPES: Final = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_ENUM: "enum",
}


def described(field: FieldDescriptor) -> str:
    if field.message_type is None:
        kind = TYPES[field.type]
    elif field.message_type.GetOptions().map_entry:
        return f"{field.name}={field.number} map"
    else:
        kind = field.message_type.name
    return f"{field.name}={field.number} {'repeated ' * field.is_repeated}{kind}"


@pytest.mark.parametrize(
    ("stubs", "protocol"),
    [
        (deviceplugin_pb2, DEVICE_PLUGIN),
        (podresources_pb2, POD_RESOURCES),
        (dra_pb2, DRA),
        (dra_health_pb2, DRA_HEALTH),
        (pluginregistration_pb2, PLUGIN_REGISTRATION),
    ],
)
def test_the_stubs_are_those_of_the_kubelets_protocol(stubs: ModuleType, protocol: str) -> None:
    messages = [
        f"{message.name}: {', '.join(map(described, message.fields))}"
        for message in stubs.DESCRIPTOR.message_types_by_name.values()
    ]
    methods = [
        f"{service.full_name}/{method.name}: {method.input_type.name},"
        f" {'stream ' * method.server_streaming}{method.output_type.name}"
        for service in stubs.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]
    expected = protocol.replace(",\n ", ",").strip().splitlines()
    assert [each.rstrip() for each in messages + methods] == expected
