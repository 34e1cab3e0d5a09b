"""What containers get with the devices of a claim."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from plugin.dra.claim_files import CdiClaimFiles, given_to
from plugin.dra.wants import Kind, Want
from services.devices.dra import DraDevice
from services.devices.model import Device, DeviceNode
from services.process.blocking import BlockingCalls
from services.process.errors import NotAllowed
from tests.plugin.dra.support import Known
from tests.plugin.support import settings

RESOURCE = "device.accelbind.dev/ve"


def want(request: str, *devices: str, resource: str = RESOURCE, kind: Kind = Kind.PLAIN) -> Want:
    return Want(request, kind, devices, devices, ((),) * len(devices), resource, resource)


def device(name: str) -> DraDevice:
    made = Device(name, RESOURCE, type="ve", envs=(("ACCELBIND_VE", name),))
    return DraDevice(name, made, {})


DEVICES = {each: device(each) for each in ("a", "b", "c")}


def test_variables_are_joined_for_a_request_and_told_apart_by_it() -> None:
    given = given_to("u", (want("one", "a", "b"), want("no-2", "c")), DEVICES, {})
    assert [dict(each.edits.envs) for each in given] == [
        {"ACCELBIND_VE": "a,b", "ACCELBIND_VE_ONE": "a,b"},
        {"ACCELBIND_VE": "a,b", "ACCELBIND_VE_ONE": "a,b"},
        {"ACCELBIND_VE": "c", "ACCELBIND_VE_NO_2": "c"},
    ]
    given = given_to("u", (want("one", "a"), want("two", "b", resource="x/y")), DEVICES, {})
    assert [dict(each.edits.envs) for each in given] == [{"ACCELBIND_VE": each} for each in "ab"]


def test_who_watches_all_devices_can_tell_their_resources_apart() -> None:
    node = (DeviceNode("ve0"),)
    devices = {
        each: DraDevice(
            each, Device(each, "r", type=kind, envs=((variable, each),), nodes=node), {}
        )
        for each, kind, variable in (
            ("a", "ve", "ACCELBIND_VE"),
            ("b", "", "ACCELBIND_REGION_1"),
            ("c", "", "ACCELBIND_REGION_2"),
        )
    }
    first, *_ = given_to("u", (want("all", *devices, kind=Kind.ADMIN),), devices, {})
    assert dict(first.edits.envs) == {
        "ACCELBIND_VE": "a,,",
        "ACCELBIND_REGION_1": ",b,",
        "ACCELBIND_REGION_2": ",,c",
    }
    assert first.edits.nodes == ()


@pytest.mark.parametrize(
    ("path", "host_path", "foreign"),
    [
        ("/dev/zigbee", "/host/dev/null", ""),
        ("/dev/null", "/host/dev/null", ""),  # of an earlier version, or no link
        ("/dev/null", "/elsewhere/dev/null", ""),  # of another root
        ("/dev/zigbee", "/host/dev/zero", "zero"),
        ("/dev/null", "/host/dev/zero", "zero"),
        ("/dev/zero", "/host/dev/zero", "zero"),
        ("/dev/zero", "/elsewhere/dev/zero", "zero"),
        ("/dev/ve1", "/host/dev/null", ""),  # its path in the container is another's on the host
        ("/dev/zigbee", "/host/dev/ve1", "ve1"),
        ("/dev/ve1", "/elsewhere/dev/ve1", "ve1"),
    ],
)
def test_a_file_with_the_node_of_another_device_is_refused(
    tmp_path: Path, path: str, host_path: str, foreign: str
) -> None:
    other = Device("b", RESOURCE, type="ve", nodes=(DeviceNode("ve1"),))
    known = Known({"b": DraDevice("b", other, {})})
    files = CdiClaimFiles(settings(tmp_path, root="/", host_root="/host"), known, BlockingCalls())
    node = {"path": path, "hostPath": host_path}
    content = json.dumps({"devices": [{"containerEdits": {"deviceNodes": [node]}}]})
    own = Want("one", Kind.PLAIN, ("a",), ("a",), (("1:3",),), RESOURCE, RESOURCE)
    refused = pytest.raises(NotAllowed, match=f"another device has {foreign} now")
    with refused if foreign else nullcontext():
        files.require_own(content, [own])
