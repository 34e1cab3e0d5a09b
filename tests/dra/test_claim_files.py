"""What containers get with the devices of a claim."""

from dra.claim_files import given_to
from dra.wants import Kind, Want
from services.devices.dra import DraDevice
from services.devices.model import Device, DeviceNode

RESOURCE = "device.accelbind.dev/ve"


def want(request: str, *devices: str, resource: str = RESOURCE, kind: Kind = Kind.PLAIN) -> Want:
    return Want(request, kind, devices, devices, ((),) * len(devices), resource, resource)


def device(name: str) -> DraDevice:
    made = Device(name, RESOURCE, type="ve", envs=(("ACCELBIND_VE", name),))
    return DraDevice(name, made, {})


DEVICES = {each: device(each) for each in ("a", "b", "c")}


def test_variables_are_joined_for_a_request_and_told_apart_by_it() -> None:
    given = given_to("u", (want("one", "a", "b"), want("no-2", "c")), DEVICES)
    assert [dict(each.edits.envs) for each in given] == [
        {"ACCELBIND_VE": "a,b", "ACCELBIND_VE_ONE": "a,b"},
        {"ACCELBIND_VE": "a,b", "ACCELBIND_VE_ONE": "a,b"},
        {"ACCELBIND_VE": "c", "ACCELBIND_VE_NO_2": "c"},
    ]
    given = given_to("u", (want("one", "a"), want("two", "b", resource="x/y")), DEVICES)
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
    first, *_ = given_to("u", (want("all", *devices, kind=Kind.ADMIN),), devices)
    assert dict(first.edits.envs) == {
        "ACCELBIND_VE": "a,,",
        "ACCELBIND_REGION_1": ",b,",
        "ACCELBIND_REGION_2": ",,c",
    }
    assert first.edits.nodes == ()
