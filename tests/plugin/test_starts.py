"""Region mode where functions are only verified: what starts, what doesn't, what the events say."""

import base64
import json
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from plugin.device_plugin.starts import Starts
from plugin.settings import PluginSettings
from services.containers import holder_source
from services.containers.permission import Enforce
from services.devices.held import HELD
from services.devices.model import Device, DeviceNode, PluginMode
from services.devices.resources import AdvertisedResources
from services.kube.events import EventRecord
from services.kubelet import deviceplugin_pb2 as pb
from services.kubelet.checkpoint import KubeletFiles
from services.names import DOMAIN, FUNCTION_PREFIX, REGION_PREFIX, UNIT_RESOURCE, function_name
from services.node.ledger import RECOVERING
from services.node.node_check import require_numbers
from services.process.blocking import BlockingCalls
from services.process.errors import NotAllowed
from services.process.problem import Problem
from simulator.card_faults import Fault
from simulator.cards import A10_INTERFACE, NLB0, NLB3, CardSpec
from tests.plugin.support import Bed, container
from tests.services.node.support import Recorder, scanned, set_state, shown


async def test_a_container_waits_until_its_region_carries_what_it_wants(bed: Bed) -> None:
    """Every port counts: the container gets all, and its namespace may not map the others."""
    card = bed.add_card(NLB3, NLB0)
    bed.record_ports()
    async with bed.running(PluginMode.REGION, programming="none"):
        started = await bed.wants("p", NLB0)
        assert not started["c"].started
        assert (
            f"on node n1 dfl-port.0 of region dfl-fme.0 carries AFU {NLB3} instead of AFU {NLB0}:"
            ' container "c" of pod ns/p would get every port of its regions, and this plugin'
            " verifies functions and doesn't program them: program the region with accelbind fpga"
            " program, or ask for a function that it carries"
        ) in bed.said
        assert "code = FailedPrecondition" in bed.said
        bed.rack.set_afu(card, NLB0)
        bed.record_ports()
        await bed.runs(started)
        assert len(started["c"].granted.devices) == 2
        await bed.restart(started)
        bed.rack.break_(card, Fault.AFU_EMPTY)
        await bed.kubelet.restart_container(started, "c")
        assert not started["c"].running
        assert "carries an unknown function (the content of dfl-port.0 is unknown" in bed.said


# Whether a container's device nodes are those of its devices


async def test_a_port_whose_node_a_container_has_from_another_one_is_given_to_nobody(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RENEW_SECONDS", "POLL_SECONDS"):
        monkeypatch.setattr(holder_source, name, 0.05)
    cards = [CardSpec(address=f"0000:{each}:00.0") for each in ("5e", "af")]
    events: list[EventRecord] = []
    async with bed.running(PluginMode.BDF, events=events):
        for each in cards:
            bed.rack.add_card(each)
        await bed.offers(2, UNIT_RESOURCE)
        first = await bed.start("p", container("c", UNIT_RESOURCE))
        for each in cards:
            bed.rack.remove_card(each.address)
        await bed.offers(0, UNIT_RESOURCE)
        for each in reversed(cards):
            bed.rack.add_card(each)
        await bed.kubelet.until(lambda: bed.kubelet.capacity == {UNIT_RESOURCE: 2})
        await bed.offers(1, UNIT_RESOURCE)
        (why,) = (each.message for each in events if each.reason == "DeviceUnhealthy")
        given = f"container c of pod ns/p was given {bed.rack.root}/dev/dfl-port.0 for 5e:00.0"
        assert given in why
        await bed.kubelet.delete_pod(first)
        await bed.offers(2, UNIT_RESOURCE)


RESOURCE = "device.accelbind.dev/ve"
UID = "9b7c8f2e-0f0e-4a53-9d0b-3f1f6d1b7a11"


def device(*nodes: str) -> Device:
    return Device("0000-b1-00-0", RESOURCE, nodes=tuple(map(DeviceNode, nodes)))


class Setting:
    """A node with a kubelet's files; a container holds the device."""

    def __init__(self, folder: Path, mode: PluginMode = PluginMode.NONE) -> None:
        self.recorder = Recorder()
        self.checkpoint = folder / "device-plugins" / "kubelet_internal_checkpoint"
        self.checkpoint.parent.mkdir()
        (folder / "logs" / f"team_pod_{UID}").mkdir(parents=True)
        self.state = scanned()
        self.offer(device("ve0"))
        self.starts = Starts(
            mode,
            PluginSettings(node_name="n1", host_root=Path("/host"), enforce_mappings=Enforce.NEVER),
            state=self.state,
            files=KubeletFiles(folder, folder / "logs", BlockingCalls()),
            pods=None,
            regions=Mock(),
            cdi=None,
            events=self.recorder,
            on_hook_missing=Mock(),
        )

    def offer(self, *devices: Device) -> None:
        resources: dict[str, dict[str, Device]] = {}
        for each in devices:
            resources.setdefault(each.resource, {})[each.id] = each
        set_state(self.state, advertised=AdvertisedResources(resources, ()))

    def allocate(self, *paths: str, key: str = "0000-b1-00-0", resource: str = RESOURCE) -> None:
        answer = pb.ContainerAllocateResponse(
            devices=[pb.DeviceSpec(container_path=each, host_path=each) for each in paths]
        )
        entry = {
            "PodUID": UID,
            "ContainerName": "main",
            "ResourceName": resource,
            "DeviceIDs": {"-1": [key]},
            "AllocResp": base64.b64encode(answer.SerializeToString()).decode(),
        }
        self.checkpoint.write_text(json.dumps({"Data": {"PodDeviceEntries": [entry]}}))

    async def start(self) -> None:
        await self.starts.authorize_start(RESOURCE, ["0000-b1-00-0"])


LINK = Device("0000-b1-00-0", RESOURCE, nodes=(DeviceNode("zigbee", target="ttyUSB0"),))


@pytest.mark.parametrize(
    ("allocated", "today", "now"),
    [
        ("ve0", [device("ve0")], ""),
        ("ve0", [device("ve0", "dri/renderD128")], ""),
        ("ttyUSB0", [LINK], ""),
        ("zigbee", [LINK], ""),  # an earlier version's answer to `Allocate`
        ("ttyUSB1", [LINK], "now it is /host/dev/ttyUSB0"),
        ("ve0", [device("ve1")], "now it is /host/dev/ve1"),
        ("ve0", [device()], "now it has none"),
        ("ve0", [], "none"),
    ],
)
async def test_a_container_starts_while_its_device_has_the_node_that_it_was_allocated(
    tmp_path: Path, allocated: str, today: list[Device], now: str
) -> None:
    setting = Setting(tmp_path)
    setting.allocate(f"/host/dev/{allocated}")
    setting.offer(*today)
    if not now:
        await setting.start()
        assert setting.recorder.records == []
        return
    with pytest.raises(NotAllowed) as refused:
        await setting.start()
    text = str(refused.value)
    assert now in text
    assert f'container "main" was allocated /host/dev/{allocated} for 0000-b1-00-0 of' in text
    assert "the device has another node now" in text
    assert "delete the pod" in text
    (event,) = setting.recorder.records
    assert (event.reason, event.warning) == ("DeviceNodeChanged", True)
    assert (event.object.name, event.object.namespace) == ("pod", "team")


def fpga(key: str, resource: str, *nodes: str, reasons: tuple[Problem, ...] = ()) -> Device:
    return Device(key, resource, nodes=tuple(map(DeviceNode, nodes)), reasons=reasons)


AF, OTHER_AF = (f"{DOMAIN}/{function_name(A10_INTERFACE, each)}" for each in (NLB0, NLB3))
BEFORE_0_18 = f"{FUNCTION_PREFIX}{NLB0}"
REGION = f"{REGION_PREFIX}{A10_INTERFACE}"
HANGS = (Problem("card-hung", "it hangs"),)


@pytest.mark.parametrize(
    ("mode", "resource", "is_asked", "own"),
    [
        (PluginMode.AF, AF, True, [AF]),
        (PluginMode.REGION, REGION, True, [REGION]),
        (PluginMode.REGIONDEVEL, REGION, True, [REGION]),
        (PluginMode.BDF, UNIT_RESOURCE, True, []),
        (PluginMode.UNITS, UNIT_RESOURCE, False, []),
        (PluginMode.NONE, AF, False, []),
    ],
)
def test_the_kubelet_asks_where_a_node_or_function_may_change_also_without_devices(
    tmp_path: Path, mode: PluginMode, resource: str, own: list[str], *, is_asked: bool
) -> None:
    starts = Setting(tmp_path, mode).starts
    assert starts.decides(resource) is is_asked
    assert [*filter(starts.is_of_mode, (AF, REGION, UNIT_RESOURCE))] == own


@pytest.mark.parametrize(
    ("today", "is_refused"),
    [
        ([fpga("5e:00.0", UNIT_RESOURCE, "dfl-port.0")], False),
        ([fpga("5e:00.0", UNIT_RESOURCE, "dfl-port.1")], True),
        ([fpga("5e:00.0", UNIT_RESOURCE, reasons=HANGS)], False),
        # it can be read
        ([fpga("5e:00.0", UNIT_RESOURCE, "dfl-port.1", reasons=(Problem(HELD, ""),))], True),
        ([fpga("5e:00.0", UNIT_RESOURCE, "dfl-port.1", reasons=(Problem(RECOVERING, ""),))], True),
        ([fpga("5f:00.0", UNIT_RESOURCE, "dfl-port.1")], False),  # its card can't be read
        (
            [
                fpga("5e:00.0", UNIT_RESOURCE, "dfl-port.0", reasons=HANGS),
                fpga("5f:00.0", UNIT_RESOURCE, "dfl-port.0"),
            ],
            True,
        ),
        ([fpga("5f:00.0", UNIT_RESOURCE, "dfl-port.0")], True),
    ],
)
async def test_a_port_that_cannot_be_read_counts_as_another_ones_only_if_one_has_it(
    tmp_path: Path, today: list[Device], *, is_refused: bool
) -> None:
    setting = Setting(tmp_path, PluginMode.BDF)
    setting.allocate("/host/dev/dfl-port.0", key="5e:00.0", resource=UNIT_RESOURCE)
    setting.offer(*today)
    refused = pytest.raises(NotAllowed, match=r"was allocated /host/dev/dfl-port\.0 for 5e:00\.0")
    with refused if is_refused else nullcontext():
        await setting.starts.authorize_start(UNIT_RESOURCE, ["5e:00.0"])


async def test_a_container_does_not_start_on_a_port_that_has_another_function_by_now(
    tmp_path: Path,
) -> None:
    setting = Setting(tmp_path, PluginMode.AF)
    for own in (AF, RESOURCE):  # a device type may have the same id
        setting.offer(fpga("dfl-port.0", own), fpga("dfl-port.1", OTHER_AF))
        await setting.starts.authorize_start(AF, ["dfl-port.0"])
    setting.offer(fpga("dfl-port.0", OTHER_AF, "dfl-port.0"))
    await setting.starts.authorize_start(BEFORE_0_18, ["dfl-port.0"])
    with pytest.raises(NotAllowed, match=rf"dfl-port\.0 was allocated as {AF} and is {OTHER_AF}"):
        await setting.starts.authorize_start(AF, ["dfl-port.0"])


async def test_a_start_that_cannot_be_checked_is_allowed_and_logged_once(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    with capture_logs() as logs:
        for text in ("no checkpoint", "no checkpoint", '{"Data": {}}'):
            setting.checkpoint.write_text(text)
            await setting.start()
        setting.allocate("/host/dev/ve0")
        await setting.start()
    assert shown(logs) == [
        *["containers start without a check of their device nodes"] * 2,  # for two reasons
        "device nodes are checked again before containers start",
    ]


@pytest.mark.parametrize(
    ("node", "allowed"),
    [
        (DeviceNode("null", number=(1, 3)), True),
        (DeviceNode("null", number=(1, 4)), False),
        (DeviceNode("zero", number=(1, 3), target="null"), True),
        (DeviceNode("null", number=(1, 4), target="null"), False),
        (DeviceNode("null"), True),
        (DeviceNode("missing", number=(1, 4)), True),
        (DeviceNode("fd", number=(1, 4)), True),
    ],
)
def test_only_a_node_of_another_device_is_refused(node: DeviceNode, *, allowed: bool) -> None:
    if allowed:
        require_numbers(Path("/"), [node])
    else:
        with pytest.raises(NotAllowed, match="/dev/null is 1:3, and the device is 1:4"):
            require_numbers(Path("/"), [node])
