"""What a node's Events say, and when."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from plugin.device_plugin.face import ABSENCES, FAILURES, PluginEvents
from services.devices.model import Card, Device, Inventory, PluginMode
from services.devices.resources import AdvertisedResources
from services.devices.types.build import NOT_MATCHED
from services.node.events import changes
from services.node.ledger import RECOVERING, Ledger, Rules
from services.node.reading import report
from services.node.repairs import Attempt, Tried
from services.process.problem import Problem
from tests.services.node.support import Recorder

RESOURCE = "fpga.intel.com/af-x"
BAD = Problem("afu-id-empty", "afu_id of port.0 is empty")
NOTHING = Inventory()
HUNG = Problem("card-hung", "reading region0 hangs")


class Told:
    """Events, and what was told."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.happenings = self.recorder.records
        self.events = PluginEvents(self.recorder)
        self.known = Ledger()

    def look(
        self, *devices: Device, inventory: Inventory = NOTHING, mode: PluginMode = PluginMode.AF
    ) -> None:
        offered: dict[str, dict[str, Device]] = {}
        for each in devices:
            if each.resource:
                offered.setdefault(each.resource, {})[each.id] = each
        not_offered = tuple(each for each in devices if not each.resource)
        advertised = AdvertisedResources(offered, not_offered)
        known, rules = self.known, Rules(mode)
        if known.rules != rules:
            known = Ledger(rules)  # as a plugin that begins to serve in a mode
        offer = known.offer if advertised == known.offer else advertised
        self.known = replace(known, inventory=inventory, offer=offer)
        for change in changes(known, self.known):
            report(change, self.recorder)

    def take(self) -> list[tuple[str, str, bool]]:
        found = [(each.subject, each.reason, each.warning) for each in self.happenings]
        self.happenings.clear()
        return found


@pytest.fixture
def told() -> Told:
    return Told()


def device(*reasons: Problem, resource: str = RESOURCE) -> Device:
    return Device("port.0", resource, reasons=reasons, card="region0")


def card(failure: Problem | None = None) -> Inventory:
    return Inventory((Card("dfl", "region0", None, None, failure=failure),))


def test_a_device_is_told_when_it_turns_bad_for_another_reason_and_when_it_is_well(
    told: Told,
) -> None:
    bad = [("port.0", "DeviceUnhealthy", True)]
    told.look(device())
    assert told.take() == []
    for _ in range(3):
        told.look(device(BAD))
    assert told.happenings[0].message == f"port.0 of {RESOURCE} is Unhealthy: {BAD.text}"
    assert told.take() == bad
    told.look(device(Problem(BAD.code, "it reads 0x2")))
    assert told.take() == [], "another value is none"
    told.look(device(BAD, HUNG))
    assert told.take() == bad
    told.look(device(Problem(RECOVERING, "soon")))
    assert told.take() == []
    told.look(device())
    assert told.take() == [("port.0", "DeviceHealthy", False)]


def test_a_device_that_can_not_be_offered_or_is_gone_is_told(told: Told) -> None:
    told.look(device(BAD, resource=""))
    assert "is not offered" in told.happenings[0].message
    assert told.take() == [("port.0", "DeviceUnhealthy", True)]
    told.look()
    assert told.take() == [("port.0", "DeviceGone", True)]
    told.look(device(Problem(NOT_MATCHED, "it is bound to xclmgmt"), resource=""))
    assert told.happenings == [], "that is for who looks at a type"
    told.look(device())
    told.look(mode=PluginMode.REGION)
    assert told.take() == [], "those of another mode have not vanished"


def test_each_file_of_device_types_that_cannot_be_used_is_told(told: Told) -> None:
    bent = [Problem("device-type-invalid", f"{name}.yaml, line 1: no kind") for name in "ab"]
    told.look(inventory=Inventory(problems=(bent[0],)))
    told.look(inventory=Inventory(problems=tuple(bent)))
    assert [each.message for each in told.happenings] == [
        "a.yaml, line 1: no kind",
        "a.yaml, line 1: no kind; b.yaml, line 1: no kind",
    ]
    told.look(inventory=Inventory(problems=tuple(bent)))
    assert told.take() == [("node device-type-invalid", "DeviceTypeInvalid", True)] * 2
    told.look(inventory=Inventory())
    assert told.take() == [("node", "CardsFound", False)]


def test_a_card_that_hangs_speaks_for_its_devices_and_a_node_for_its_cards(told: Told) -> None:
    none = Inventory(problems=(Problem("no-driver", "load the driver"),))
    for _ in range(2):
        told.look(inventory=none)
    assert told.take() == [("node no-driver", "NoDriver", True)]
    told.look(device(), inventory=card())
    assert told.take() == [("node", "CardsFound", False)]
    told.look(device(HUNG), inventory=card(HUNG))
    assert told.take() == [("card region0", "CardHung", True)]
    told.look(device(), inventory=card())
    assert told.take() == [
        ("card region0", "CardReadable", False),
        ("port.0", "DeviceHealthy", False),
    ]


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ([], [device()], [("info", "device found")]),
        ([device()], [], [("warning", "device gone")]),
        ([], [device(BAD)], [("warning", "device unhealthy")]),
        ([device(BAD)], [device(BAD, HUNG)], [("warning", "device unhealthy")]),
        ([device(BAD)], [device()], [("info", "device healthy again")]),
        ([device()], [device(resource="d/q")], [("info", "device moved")]),
        ([], [device(BAD, resource="")], [("warning", "device can't be offered")]),
    ],
)
def test_each_change_of_a_device_is_logged_once(
    told: Told, before: list[Device], now: list[Device], said: list[tuple[str, str]]
) -> None:
    told.look(*before)
    with capture_logs() as logs:
        told.look(*now)
        told.look(*now)
    assert [(line["log_level"], line["event"]) for line in logs] == said


def test_a_remark_on_a_card_is_logged_when_it_is_new(told: Told) -> None:
    remarked = Inventory((Card("dfl", "region0", None, None, problems=(BAD,)),))
    with capture_logs() as logs:
        for _ in range(2):
            told.look(inventory=remarked)
    assert [line["event"] for line in logs] == ["remark on a card"]
    assert told.take() == []


@pytest.mark.parametrize(
    ("trouble", "after"),
    [("the kubelet does not accept it", FAILURES), ("nothing answers on k", ABSENCES)],
)
def test_registrations_are_told_once_they_keep_failing(
    told: Told, trouble: str, after: int
) -> None:
    for _ in range(after - 1):
        told.events.registered(RESOURCE, trouble)
    assert told.take() == []
    for _ in range(5):
        told.events.registered(RESOURCE, trouble)
    assert told.take() == [(RESOURCE, "RegistrationFailed", True)]
    told.events.registered(RESOURCE, "")
    assert told.take() == [(RESOURCE, "Registered", False)]
    told.events.registered(RESOURCE, "")
    assert told.take() == []


CLEARING: Attempt = ("0000:5e:00.0", "port.0", 0x40)
ENABLING: Attempt = ("0000:5e:00.0", "", 0)


@pytest.mark.parametrize(
    ("attempt", "tried", "said", "event"),
    [
        (CLEARING, Tried("port.0", done=True), "errors cleared", "ErrorsCleared"),
        (CLEARING, Tried("port.0", error="no"), "errors not cleared", "ErrorsNotCleared"),
        (ENABLING, Tried("port.0", done=True), "driver bound anew", None),
        (ENABLING, Tried("port.0", error="no"), "a disabled port stays disabled", None),
        (ENABLING, Tried("port.0"), None, None),
    ],
)
def test_each_outcome_of_a_repair_is_told_once(
    told: Told, attempt: Attempt, tried: Tried, said: str | None, event: str | None
) -> None:
    before, outcome = Ledger(), {attempt: tried}
    now = replace(before, latest=outcome, tried=outcome)
    with capture_logs() as logs:
        for change in (*changes(before, now), *changes(now, now)):
            report(change, told.recorder)
    assert [line["event"] for line in logs] == ([said] if said else [])
    assert [reason for _, reason, _ in told.take()] == ([event] if event else [])
