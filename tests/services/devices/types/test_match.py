"""Whether a device is of a type, and how near it comes."""

from typing import Any

import pytest

from services.devices.model import Value
from services.devices.types.match import Mismatch, is_named, mismatch
from tests.services.devices.types.making import type_of

CARD: dict[str, Value] = {
    "class": "pci",
    "kernelName": "0000:b1:00.5",
    "vendorID": "8086",
    "deviceID": "bccf",
    "subsystemID": "8086:1771",
    "pciClass": "120000",
    "kernelDriver": "vfio-pci",
    "virtualFunction": True,
    "numaNode": 1,
}
ACCEL: dict[str, Value] = CARD | {"class": "accel", "kernelName": "accel0"}
CORAL: dict[str, Value] = {"vendorID": "18d1", "deviceID": "9302", "usbSerial": "A-1"}
PCI = {"vendor": ["8086"]}


def terms(*match: dict[str, Any]) -> Any:
    vfio = {"nodes": [{"vfio": True}]} if all("pci" in x and len(x) < 3 for x in match) else {}
    plain = {} if any("class" in x or "usb" in x for x in match) else vfio
    return type_of({"match": match} | plain).spec.match


@pytest.mark.parametrize(
    ("match", "facts", "message"),
    [
        ({"pci": PCI | {"device": ["ffff", "bccf"]}}, CARD, ""),
        ({"pci": PCI | {"device": ["ffff"]}}, CARD, 'deviceID is "bccf"'),
        ({"pci": PCI | {"subsystem": ["8086:1771"]}}, CARD, ""),
        ({"pci": PCI | {"subsystem": ["8086:1770"]}}, CARD, 'subsystemID is "8086:1771"'),
        ({"pci": {"class": ["12"]}}, CARD, ""),
        ({"pci": {"class": ["0604", "0300"]}}, CARD, 'pciClass is "120000"'),
        ({"pci": PCI | {"virtualFunction": True}}, CARD, ""),
        ({"pci": PCI | {"virtualFunction": False}}, CARD, "it is a virtual function"),
        ({"pci": PCI | {"virtualFunction": True}}, {"vendorID": "8086"}, "it is no virtual"),
        ({"class": {"name": "accel", "entry": ["accel*"]}, "pci": PCI}, ACCEL, ""),
        ({"class": {"name": "accel", "entry": ["card*"]}}, ACCEL, 'kernelName is "accel0"'),
        ({"class": {"name": "drm"}}, ACCEL, 'class is "accel"'),
        ({"usb": {"vendor": ["18d1"], "product": ["9302"], "serial": ["A-*"]}}, CORAL, ""),
        ({"usb": {"vendor": ["18d1"], "serial": ["B*"]}}, CORAL, 'usbSerial is "A-1"'),
        ({"path": ["/dev/ami0"]}, {}, ""),
    ],
)
def test_every_field_of_a_term_holds(
    match: dict[str, Any], facts: dict[str, Value], message: str
) -> None:
    found = mismatch(terms(match), facts.get)
    # A serial number is read of one device after the other.
    assert is_named(terms(match)[0], facts.get) is (not message or message.startswith("usbSerial"))
    assert (found.message if found else "").startswith(message)
    assert bool(found) is bool(message)
    assert not found or not found.is_near


@pytest.mark.parametrize(
    ("match", "message"),
    [
        ({"pci": PCI | {"driver": ["vfio-*", "x"]}}, ""),
        (
            {"pci": PCI | {"driver": ["dfl-pci", "uio"]}},
            "it is bound to vfio-pci, not to dfl-pci or uio",
        ),
        ({"pci": PCI, "where": [{"attribute": "numaNode", "equals": 1}]}, ""),
        (
            {"pci": PCI, "where": [{"attribute": "numaNode", "oneOf": [0, 2]}]},
            "numaNode is 1, not 0 or 2",
        ),
        ({"pci": PCI, "where": [{"attribute": "pciClass", "glob": "12*"}]}, ""),
        (
            {"pci": PCI, "where": [{"attribute": "pciClass", "glob": "03*"}]},
            'pciClass is "120000", not 03*',
        ),
        (
            {"pci": PCI, "where": [{"attribute": "virtualFunction", "equals": False}]},
            "virtualFunction is true, not false",
        ),
        (
            {"pci": PCI, "where": [{"attribute": "usbSerial", "equals": "a"}]},
            'usbSerial is missing, not "a"',
        ),
    ],
)
def test_a_device_with_another_driver_or_state_is_near(match: dict[str, Any], message: str) -> None:
    assert is_named(terms(match)[0], CARD.get)
    found = mismatch(terms(match), CARD.get)
    assert found == (Mismatch(message, is_near=True) if message else None)


def test_terms_are_alternatives_and_the_nearest_is_named() -> None:
    away, near, right = {"vendor": ["10ee"]}, PCI | {"driver": ["no"]}, PCI
    assert mismatch(terms({"pci": away}, {"pci": right}, {"pci": near}), CARD.get) is None
    found = mismatch(terms({"pci": away}, {"pci": near}, {"pci": away}), CARD.get)
    assert found == Mismatch("it is bound to vfio-pci, not to no", is_near=True)
    unbound = {"vendorID": "8086"}
    found = mismatch(terms({"pci": near}), unbound.get)
    assert found == Mismatch("it is bound to no driver, not to no", is_near=True)
