"""The checkpoint's bytes, and what a container is given in all."""

import base64
import json

import pytest

from services.kubelet import deviceplugin_pb2 as pb
from simulator.kubelet.ledger import (
    CorruptCheckpoint,
    Ledger,
    _checksum,
    decode_checkpoint,
    encode_checkpoint,
    entry_of,
    granted,
)
from simulator.kubelet.registry import Device
from simulator.kubelet.states import DeviceNode, Granted, Mount
from tests.simulator.kubelet.fake_plugin import RESOURCE

OTHER = "fpga.intel.com/af-other"
RESPONSE = pb.ContainerAllocateResponse(envs={"A": "1"})


def test_the_checkpoint_has_the_kubelets_layout() -> None:
    placed = Device("a", healthy=True, numa_nodes=(1,))
    both = Device("b", healthy=True, numa_nodes=(0, 1))
    nowhere = Device("c", healthy=True)
    entry = entry_of("uid-1", "main", RESOURCE, [placed, both, nowhere], RESPONSE)
    document = json.loads(encode_checkpoint([entry], {RESOURCE: ("a", "b"), OTHER: ()}))
    checksum = document.pop("Checksum")
    assert isinstance(checksum, int)
    assert document == {
        "Data": {
            "PodDeviceEntries": [
                {
                    "PodUID": "uid-1",
                    "ContainerName": "main",
                    "ResourceName": RESOURCE,
                    "DeviceIDs": {"1": ["a", "b"], "0": ["b"], "-1": ["c"]},
                    "AllocResp": base64.b64encode(RESPONSE.SerializeToString()).decode(),
                }
            ],
            "RegisteredDevices": {RESOURCE: ["a", "b"], OTHER: None},
        }
    }
    assert entry.ids == ("a", "b", "c")
    assert entry.numa_nodes("b") == (1, 0)
    assert entry.numa_nodes("c") == ()


def test_an_empty_checkpoint_has_null_entries() -> None:
    assert json.loads(encode_checkpoint([], {}))["Data"] == {
        "PodDeviceEntries": None,
        "RegisteredDevices": {},
    }


def test_a_checkpoint_is_read_back_as_it_was_written() -> None:
    entries = (
        entry_of("u", "main", RESOURCE, [Device("a", healthy=True, numa_nodes=(0,))], RESPONSE),
        entry_of("u", "main", OTHER, [Device("x", healthy=True)], RESPONSE),
    )
    content = encode_checkpoint(entries, {RESOURCE: ("a",)})
    assert decode_checkpoint(content) == (entries, (RESOURCE,))
    assert decode_checkpoint(encode_checkpoint([], {})) == ((), ())


GOOD = json.loads(
    encode_checkpoint([entry_of("u", "m", RESOURCE, [Device("a", healthy=True)], RESPONSE)], {})
)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b'{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}',
        json.dumps(GOOD | {"Checksum": GOOD["Checksum"] + 1}).encode(),
        json.dumps(GOOD).encode()[:-9],
    ],
)
def test_a_broken_checkpoint_is_named_as_such(content: bytes) -> None:
    with pytest.raises(CorruptCheckpoint):
        decode_checkpoint(content)


@pytest.mark.parametrize("response", ["%%%", base64.b64encode(b"\xff\xff").decode(), 7])
def test_a_response_that_is_none_is_named_as_such(response: object) -> None:
    data = {"PodDeviceEntries": [GOOD["Data"]["PodDeviceEntries"][0] | {"AllocResp": response}]}
    data["RegisteredDevices"] = None  # type: ignore[assignment]
    document = {"Data": data, "Checksum": _checksum(data)}
    with pytest.raises(CorruptCheckpoint):
        decode_checkpoint(json.dumps(document).encode())


def test_of_two_resources_that_set_one_name_one_is_kept() -> None:
    first = pb.ContainerAllocateResponse(
        envs={"SAME": "1", "A": "a"},
        devices=[pb.DeviceSpec(container_path="/dev/x", host_path="/h/1", permissions="rw")],
        mounts=[pb.Mount(container_path="/m", host_path="/h/m", read_only=True)],
        annotations={"same": "1"},
        cdi_devices=[pb.CDIDevice(name="v/c=1")],
    )
    second = pb.ContainerAllocateResponse(
        envs={"SAME": "2", "B": "b"},
        devices=[
            pb.DeviceSpec(container_path="/dev/x", host_path="/h/2", permissions="r"),
            pb.DeviceSpec(container_path="/dev/y", host_path="/h/3", permissions="r"),
        ],
        mounts=[pb.Mount(container_path="/m", host_path="/h/other")],
        annotations={"same": "2", "b": "b"},
        cdi_devices=[pb.CDIDevice(name="v/c=1"), pb.CDIDevice(name="v/c=2")],
    )
    entries = [
        entry_of("u", "main", RESOURCE, [Device("a", healthy=True)], first),
        entry_of("u", "main", OTHER, [Device("b", healthy=True)], second),
    ]
    together = granted(entries)
    assert dict(together.env) == {"SAME": "1", "A": "a", "B": "b"}
    assert together.devices == (
        DeviceNode("/dev/x", "/h/1", "rw"),
        DeviceNode("/dev/y", "/h/3", "r"),
    )
    assert together.mounts == (Mount("/m", "/h/m", read_only=True),)
    assert dict(together.annotations) == {"same": "1", "b": "b"}
    assert together.cdi_devices == ("v/c=1", "v/c=2")
    assert together.allocated == ((RESOURCE, ("a",)), (OTHER, ("b",)))
    assert dict(granted(reversed(entries)).env)["SAME"] == "2"
    assert granted([]) == Granted()


def test_the_ledger_keeps_one_entry_a_container_and_resource() -> None:
    ledger = Ledger()
    for device in "ab":
        ledger.add(entry_of("u", "main", RESOURCE, [Device(device, healthy=True)], RESPONSE))
    assert ledger.in_use(RESOURCE) == {"b"}
    assert ledger.has_resource(RESOURCE)
    ledger.keep_only([])
    assert not ledger.has_resource(RESOURCE)
    assert list(ledger) == []
