"""What the log says of a node's cards, and how often."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from services.devices.model import Card, Device, Inventory, PluginMode, Problem
from services.devices.resources import AdvertisedResources, OfferMemory, nothing_advertised
from services.node.change_log import log_advertised_changes, log_inventory_changes

OK = Device("p0", "d/r", healthy=True, card="c0")
EMPTY = Problem("afu-id-empty", "afu_id of p0 is empty")
HOT = Problem("ap1-event", "ap1_event of p0 reads 0x1")
NOTHING = nothing_advertised(PluginMode.AF)


def bad(*problems: Problem) -> Device:
    return replace(OK, healthy=False, reasons=problems)


def tree(*devices: Device) -> AdvertisedResources:
    placed = {device.id: device for device in devices if device.resource}
    not_offered = tuple(device for device in devices if not device.resource)
    return AdvertisedResources(
        {"d/r": placed} if placed else {}, not_offered, OfferMemory(PluginMode.AF)
    )


def events(before: AdvertisedResources, now: AdvertisedResources) -> list[tuple[str, str, str]]:
    with capture_logs() as logs:
        log_advertised_changes(before, now)
    return [(log["log_level"], log["event"], log.get("reason", "")) for log in logs]


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (NOTHING, tree(OK), [("info", "device found", "")]),
        (tree(OK), tree(OK), []),
        (tree(OK), NOTHING, [("warning", "device gone", "")]),
        (tree(OK), tree(bad(EMPTY)), [("warning", "device unhealthy", "afu-id-empty")]),
        (NOTHING, tree(bad(EMPTY)), [("warning", "device unhealthy", "afu-id-empty")]),
        (tree(bad(EMPTY)), tree(bad(EMPTY)), []),
        (tree(bad(EMPTY)), tree(bad(EMPTY, HOT)), [("warning", "device unhealthy", "ap1-event")]),
        (tree(bad(EMPTY)), tree(OK), [("info", "device healthy again", "")]),
        (tree(OK), tree(replace(OK, resource="d/q")), [("info", "device moved", "")]),
        (
            NOTHING,
            tree(replace(bad(EMPTY), resource="")),
            [("warning", "device can't be offered", "afu-id-empty")],
        ),
    ],
)
def test_each_change_of_a_device_is_said_once(
    before: AdvertisedResources, now: AdvertisedResources, said: list[tuple[str, str, str]]
) -> None:
    assert events(before, now) == said


def inventory_events(before: Inventory | None, now: Inventory) -> list[tuple[str, str]]:
    with capture_logs() as logs:
        log_inventory_changes(before, now)
    return [(log["event"], log.get("reason", "")) for log in logs]


def test_problems_of_the_node_and_remarks_on_cards_are_said_when_they_are_new() -> None:
    nothing = Inventory(problems=(Problem("no-driver", "m"),))
    other = Inventory(problems=(Problem("no-cards", "m"),))
    fine = Inventory((Card("dfl", "c0", None, None, problems=(Problem("x", "m"),)),))
    assert inventory_events(None, nothing) == [("problem of the node", "no-driver")]
    assert inventory_events(nothing, nothing) == []
    assert inventory_events(nothing, other) == [("problem of the node", "no-cards")]
    assert inventory_events(other, fine) == [
        ("remark on a card", "x"),
        ("problem of the node resolved", ""),
    ]
    assert inventory_events(fine, fine) == []
