"""The stubs are of the protocols that real kubelets were seen with.

Plugin and kubelet stand-in share the generated stubs, so a wrong field number would go unseen
between them. After a change that a kubelet's own protocols have too, its digest belongs here.
"""

import hashlib
from types import ModuleType

import pytest

from services.kubelet import (
    deviceplugin_pb2,
    dra_health_pb2,
    dra_pb2,
    pluginregistration_pb2,
    podresources_pb2,
)


def shape(stubs: ModuleType) -> str:
    """Messages, fields and methods, as far as they matter on the wire."""
    fields = [
        f"{message.name} {each.number} {each.type} {each.is_repeated} {each.name}"
        for message in stubs.DESCRIPTOR.message_types_by_name.values()
        for each in message.fields
    ]
    methods = [
        f"{each.full_name} {each.input_type.name} {each.output_type.name} {each.server_streaming}"
        for service in stubs.DESCRIPTOR.services_by_name.values()
        for each in service.methods
    ]
    return "\n".join(fields + methods)


@pytest.mark.parametrize(
    ("stubs", "digest"),
    [
        (deviceplugin_pb2, "c5adfa65bc264f8e"),
        (podresources_pb2, "29eb9cf36d080ecf"),
        (dra_pb2, "aa9ae4ba4d11f208"),
        (dra_health_pb2, "69bd641f50f0388f"),
        (pluginregistration_pb2, "039982d9fbaecf33"),
    ],
)
def test_the_stubs_are_of_the_protocols_that_were_proven(stubs: ModuleType, digest: str) -> None:
    assert hashlib.sha256(shape(stubs).encode()).hexdigest()[:16] == digest, shape(stubs)
