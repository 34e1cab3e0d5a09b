"""What a node's Events say, and when."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from plugin.device_plugin.face import ABSENCES, FAILURES, PluginReports
from plugin.device_plugin.metrics import PluginMetrics
from services.devices.model import Card, Device, Inventory
from services.devices.resources import AdvertisedResources
from services.devices.types.build import NOT_MATCHED
from services.node.events import Change, changes
from services.node.kept_files import KeptFiles
from services.node.ledger import RECOVERING, Ledger
from services.node.metrics import NodeMetrics
from services.node.reading import report
from services.node.repairs import Attempt, Tried
from services.process.errors import KubeletAbsent, KubeletError
from services.process.problem import Problem
from tests.services.node.support import Recorder

RESOURCE = "fpga.intel.com/af-x"
Known: TypeAlias = Ledger | Inventory | Sequence[Device]
BAD = Problem("afu-id-empty", "afu_id of port.0 is empty")
HUNG = Problem("card-hung", "reading region0 hangs")
SOON = Problem(RECOVERING, "soon")
UNBOUND = Problem(NOT_MATCHED, "it is bound to xclmgmt")
NO_DRIVER = Problem("no-driver", "load the driver")
BENT, ALSO_BENT = (Problem("device-type-invalid", f"{each}.yaml, line 1: no kind") for each in "ab")


def device(*reasons: Problem, resource: str = RESOURCE) -> Device:
    return Device("port.0", resource, reasons=reasons, card="region0")


def card(failure: Problem | None = None, *remarks: Problem) -> Inventory:
    return Inventory((Card("dfl", "region0", None, None, failure=failure, problems=remarks),))


def problems(*of_the_node: Problem) -> Inventory:
    return Inventory(problems=of_the_node)


def ledger(known: Known) -> Ledger:
    """A ledger with devices, and cards or problems of the node."""
    if isinstance(known, Ledger):
        return known
    if isinstance(known, Inventory):
        return Ledger(inventory=known)
    offered = {each.resource: {each.id: each} for each in known if each.resource}
    rest = tuple(each for each in known if not each.resource)
    return Ledger(offer=AdvertisedResources(offered, rest))


def tried(attempt: Attempt, outcome: Tried) -> Ledger:
    """A ledger after an attempt to repair."""
    return Ledger(latest={attempt: outcome}, tried={attempt: outcome})


CLEARING: Attempt = ("0000:5e:00.0", "port.0", 0x40)
ENABLING: Attempt = ("0000:5e:00.0", "", 0)
DONE, FAILED = Tried("port.0", done=True), Tried("port.0", error="no")
OK, NOT_OFFERED = device(), device(BAD, resource="")


def found(before: Ledger, now: Ledger) -> list[str]:
    """The changes: of what, what, and with which Event."""
    assert [*changes(now, now)] == [], "each is told once"
    return [
        f"{'warning' if each.warning else 'info'}: {each.subject}: {each.what}"
        + (f", {each.event}" if each.event else "")
        for each in changes(before, now)
    ]


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ([], [OK], "info: port.0: device found"),
        ([OK], [], "warning: port.0: device gone, DeviceGone"),
        ([], [device(BAD)], "warning: port.0: device unhealthy, DeviceUnhealthy"),
        ([device(BAD)], [device(Problem(BAD.code, "it reads 0x2"))], ""),
        ([device(BAD)], [device(BAD, HUNG)], "warning: port.0: device unhealthy, DeviceUnhealthy"),
        ([device(BAD)], [device(SOON)], "warning: port.0: device unhealthy"),
        ([device(SOON)], [OK], "info: port.0: device healthy again, DeviceHealthy"),
        ([OK], [device(resource="d/q")], "info: port.0: device moved"),
        ([], [NOT_OFFERED], "warning: port.0: device can't be offered, DeviceUnhealthy"),
        ([NOT_OFFERED], [], "warning: port.0: device gone, DeviceGone"),
        ([], [device(UNBOUND, resource="")], ""),  # that is for who looks at a type
        (card(), problems(NO_DRIVER), "warning: node no-driver: problem of the node, NoDriver"),
        (problems(NO_DRIVER), card(), "info: node: problem of the node resolved, CardsFound"),
        (
            problems(BENT),
            problems(BENT, ALSO_BENT),
            "warning: node device-type-invalid: problem of the node, DeviceTypeInvalid",
        ),
        (problems(BENT, ALSO_BENT), problems(BENT), ""),
        (card(), card(HUNG), "warning: card region0: card can't be read, CardHung"),
        (card(HUNG), card(), "info: card region0: card readable, CardReadable"),
        (card(), card(None, BAD), "info: card region0: remark on a card"),
        ([], tried(CLEARING, DONE), "info: errors of port.0: errors cleared, ErrorsCleared"),
        (
            [],
            tried(CLEARING, FAILED),
            "warning: errors of port.0: errors not cleared, ErrorsNotCleared",
        ),
        ([], tried(ENABLING, DONE), "warning: port.0: driver rebound"),
        ([], tried(ENABLING, FAILED), "warning: port.0: a disabled port stays disabled"),
        ([], tried(ENABLING, Tried("port.0")), ""),
    ],
)
def test_each_change_is_told_once(before: Known, now: Known, told: str) -> None:
    assert found(ledger(before), ledger(now)) == ([told] if told else [])


def test_a_card_that_hangs_speaks_for_its_devices() -> None:
    well = replace(ledger([OK]), inventory=card())
    ill = replace(ledger([device(HUNG)]), inventory=card(HUNG))
    assert found(well, ill)[1:] == ["warning: port.0: device unhealthy"]
    assert found(ill, well)[1:] == ["info: port.0: device healthy again, DeviceHealthy"]


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (ledger([device(BAD)]), f"port.0 of {RESOURCE} is Unhealthy: {BAD.text}"),
        (ledger([NOT_OFFERED]), f"port.0 is not offered: {BAD.text}"),
        (ledger(problems(BENT, ALSO_BENT)), f"{BENT.text}; {ALSO_BENT.text}"),
    ],
)
def test_a_change_is_told_with_all_that_is_wrong(now: Ledger, message: str) -> None:
    assert next(changes(Ledger(), now)).message == message


@pytest.mark.parametrize(
    ("change", "level", "events"),
    [
        (Change("found", "port.0", "text"), "info", []),
        (Change("bad", "port.0", "text", warning=True, event="E"), "warning", [("E", True)]),
        (Change("good", "port.0", "text", event="E"), "info", [("E", False)]),
    ],
)
def test_a_change_is_logged_and_is_an_event_if_it_has_a_reason(
    change: Change, level: str, events: list[tuple[str, bool]]
) -> None:
    recorder = Recorder()
    with capture_logs() as logs:
        report(change, recorder)
    assert [(line["log_level"], line["event"]) for line in logs] == [(level, change.what)]
    assert [(each.reason, each.warning) for each in recorder.records] == events
    assert {(each.subject, each.message) for each in recorder.records} <= {("port.0", "text")}


@pytest.mark.parametrize(
    ("trouble", "after"),
    [(KubeletError("refused"), FAILURES), (KubeletAbsent("away"), ABSENCES)],
)
def test_registrations_are_told_once_they_keep_failing(trouble: KubeletError, after: int) -> None:
    recorder = Recorder()
    registry = CollectorRegistry()
    files = KeptFiles(NodeMetrics(registry).files)
    reports = PluginReports(PluginMetrics(registry), recorder, files)
    for _ in range(after - 1):
        reports.attempted(RESOURCE, trouble)
    assert recorder.records == []
    for error in (*[trouble] * 5, None, None):
        reports.attempted(RESOURCE, error)
    assert [(each.subject, each.reason, each.warning) for each in recorder.records] == [
        (RESOURCE, "RegistrationFailed", True),
        (RESOURCE, "Registered", False),
    ]
