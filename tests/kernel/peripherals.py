"""Devices other than FPGAs that Linux makes for itself, as commands, and device types for them."""

import json
from collections.abc import Sequence
from typing import Any, Final

from tests.kernel.bed import Bed

TYPES: Final = "/run/types"
SLOT: Final = "0000:00:00.0"
FUNCTION: Final = f"/sys/bus/pci/devices/{SLOT}"
GADGETS: Final = "/sys/kernel/config/usb_gadget"
CHIPS: Final = "/sys/kernel/config/gpio-sim"

Json = dict[str, Any]
USB: Final[Json] = {"usb": {"vendor": ["0525"], "product": ["a4a7"]}}
TTY: Final[Json] = {"class": "tty"}


def adapter(name: str, port: int, *, serial: str = "", kinds: Sequence[str] = ("acm.a",)) -> str:
    """Commands that make a USB device with these functions, and plug it into a port."""
    at = f"{GADGETS}/{name}"
    return "\n".join(
        (
            f"[ ! -d {at}/configs/c.1 ] || find {at}/configs/c.1 -type l -delete",
            f"mkdir -p {at}/configs/c.1 {at}/strings/0x409",
            f"echo 0x0525 >{at}/idVendor; echo 0xa4a7 >{at}/idProduct",
            f"echo '{serial}' >{at}/strings/0x409/serialnumber",
            *(f"mkdir -p {at}/functions/{each}" for each in kinds),
            *(f"ln -s {at}/functions/{each} {at}/configs/c.1" for each in kinds),
            plug(name, port),
        )
    )


def plug(name: str, port: int) -> str:
    """Commands that plug a USB device into a port, of a bus with that port only.

    They return when the drivers have it: buses are enumerated side by side, and the first terminal
    gets the first number.
    """
    settled = f"/sys/bus/usb/devices/{port + 1}-1/port"
    return (
        f"echo dummy_udc.{port} >{GADGETS}/{name}/UDC\n"
        f"timeout 5 sh -c 'until [ -e {settled} ]; do sleep 0.05; done'"
    )


def unplug(*names: str) -> str:
    """Commands that unplug USB devices."""
    return "\n".join(f"echo >{GADGETS}/{each}/UDC" for each in names)


def bind(driver: str) -> str:
    """Commands that bind the card to a driver, if there is a name."""
    return "\n".join(
        (
            f"[ ! -e {FUNCTION}/driver ] || echo {SLOT} >{FUNCTION}/driver/unbind",
            f"echo {driver} >{FUNCTION}/driver_override",
            f"echo {SLOT} >/sys/bus/pci/drivers_probe" if driver else "",
        )
    )


def write_type(
    bed: Bed, match: Sequence[Json], *nodes: Json, name: str = "t", each: str = "device"
) -> None:
    """Write a device type with the resource `device.accelbind.dev/NAME`."""
    resource = {"domain": "device.accelbind.dev", "name": name}
    spec = {"match": match, "resource": resource, "each": each} | (
        {"nodes": nodes} if nodes else {}
    )
    kind = {"apiVersion": "accelbind.dev/v1alpha1", "kind": "DeviceType"}
    content = kind | {"metadata": {"name": name}, "spec": spec}
    bed.call("create", f"{TYPES}/{name}.yaml", json.dumps(content).encode())
