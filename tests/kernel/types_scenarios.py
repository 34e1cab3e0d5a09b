"""Device types on Linux's drivers: USB, terminals, DRM, GPIO, UIO, CUSE, VFIO, denied classes."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

import pytest

from simulator.registers.cards import PAC_A10
from tests.kernel.bed import DRIVER, Bed
from tests.kernel.peripherals import (
    CHIPS,
    SLOT,
    TTY,
    TYPES,
    USB,
    Json,
    adapter,
    bind,
    unplug,
    write_type,
)
from tests.support import eventually

CARDS = (PAC_A10,)

UNSAFE: Final = "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode"
END: Final = f"""\
rm -f /dev/link
{unplug("a", "b")}
echo 0 >{CHIPS}/c/live
echo 0 >{UNSAFE}
{bind("")}
"""
"""Takes away whatever a case has made."""


def listed(bed: Bed, *flags: str) -> dict[str, Any]:
    """The devices of types: the nodes of each, or why it has none."""
    done = bed.accelbind("devices", "--device-types", TYPES, "--mode", "none", "-o", "json", *flags)
    assert done.code == 0, done.stderr
    rows = json.loads(done.stdout)["devices"]
    return {
        each["device"]: each["nodes"]
        if each["resource"] and not each["reasons"]
        else [f"{why['reason']}: {why['message']}" for why in each["reasons"]]
        for each in rows
    }


class Case(NamedTuple):
    """Devices, a type, and what is offered: patterns of nodes or of the reason, by id."""

    make: str | Callable[[Bed], int]
    match: Json
    expected: Mapping[str, Sequence[str]]
    nodes: tuple[Json, ...] = ()
    each: str = "device"
    flags: tuple[str, ...] = ()


CASES: Final[Mapping[str, Case]] = {
    "a serial adapter": Case(adapter("a", 0), USB, {"1-1": ["/dev/ttyACM0"]}, (TTY,)),
    "a USB device's own node": Case(adapter("a", 1), USB, {"2-1": ["/dev/bus/usb/002/*"]}),
    "an adapter by its terminal": Case(
        adapter("a", 0), {"class": {"name": "tty", "entry": ["ttyACM*"]}}, {"1-1": ["/dev/ttyACM0"]}
    ),
    "an adapter by driver": Case(
        adapter("a", 0),
        {"class": {"name": "tty", "driver": ["cdc_acm"]}},
        {"1-1": ["/dev/ttyACM0"]},
    ),
    "an adapter by a path": Case(
        adapter("a", 0), {"path": ["/dev/ttyACM*"]}, {"1-1": ["/dev/ttyACM0"]}
    ),
    "an adapter by a link": Case(
        adapter("a", 0) + "; ln -s ttyACM0 /dev/link",
        {"path": ["/dev/link"]},
        {"1-1": ["/dev/ttyACM0"]},
    ),
    "two equal adapters": Case(
        adapter("a", 0) + "\n" + adapter("b", 1),
        USB,
        {"1-1": ["/dev/ttyACM0"], "2-1": ["/dev/ttyACM1"]},
        (TTY,),
    ),
    "two adapters of one serial number": Case(
        adapter("a", 0, serial="X") + "\n" + adapter("b", 1, serial="X"),
        {"usb": USB["usb"] | {"serial": ["X"]}},
        {"1-1": ["/dev/ttyACM0"], "2-1": ["/dev/ttyACM1"]},
        (TTY,),
    ),
    "one of two by its serial number": Case(
        adapter("a", 0, serial="A-1") + "\n" + adapter("b", 1, serial="B-1"),
        {"usb": USB["usb"] | {"serial": ["B-*"]}},
        {
            "1-1": ['not-matched: its serial number is "A-1", not B-*'],
            "2-1": ["/dev/ttyACM1"],
        },
        (TTY,),
    ),
    "two, one without a serial number": Case(
        adapter("a", 0) + "\n" + adapter("b", 1, serial="B-1"),
        {"usb": USB["usb"] | {"serial": ["?*"]}},
        {
            "1-1": ["not-matched: its serial number is none, not ?*"],
            "2-1": ["/dev/ttyACM1"],
        },
        (TTY,),
    ),
    "an adapter with two terminals": Case(
        adapter("a", 0, kinds=("acm.a", "acm.b")),
        USB,
        {"1-1": ["/dev/ttyACM0", "/dev/ttyACM1"]},
        (TTY,),
    ),
    "each terminal of an adapter": Case(
        adapter("a", 0, kinds=("acm.a", "acm.b")),
        USB,
        {"1-1--ttyacm0": ["/dev/ttyACM0"], "1-1--ttyacm1": ["/dev/ttyACM1"]},
        (TTY,),
        each="node",
    ),
    "an adapter whose terminals would have one path": Case(
        adapter("a", 0, kinds=("acm.a", "acm.b")),
        USB,
        {"1-1": ["node-path-twice: /dev/ttyACM0 and /dev/ttyACM1 would both be /dev/modem0 *"]},
        (TTY | {"as": "/dev/modem0"},),
    ),
    "a USB device without a driver": Case(
        adapter("a", 0, kinds=("gser.a",)),
        USB,
        {"1-1": ["node-missing: it has no node of class tty"]},
        (TTY,),
    ),
    "render nodes": Case(
        "",
        {"class": {"name": "drm"}},
        {
            "vgem": ["/dev/dri/renderD128"],
            "vkms": ["node-missing: it has no node of class drm, render"],
        },
        ({"class": "drm", "kind": "render"},),
    ),
    "all nodes of GPUs": Case(
        "",
        {"class": {"name": "drm"}},
        {"vgem": ["/dev/dri/card0", "/dev/dri/renderD128"], "vkms": ["/dev/dri/card1"]},
    ),
    "GPIO chips": Case(
        f"mkdir -p {CHIPS}/c/bank; echo 1 >{CHIPS}/c/live",
        {"path": ["/dev/gpiochip*"]},
        {"gpio-sim-0": ["/dev/gpiochip0"]},
    ),
    "UIO": Case(
        bind("uio_pci_generic") + "; ln -s uio0 /dev/link",
        {"path": ["/dev/link"]},
        {"0000-00-00-0": ["node-denied: /dev/uio0: nodes of uio are never handed out: *"]},
    ),
    "UIO, and the driver of FPGAs": Case(
        bind("dfl-pci"),
        {"pci": {"vendor": ["8086"], "driver": ["uio_pci_generic"]}},
        {"0000-00-00-0": ["not-matched: it is bound to dfl-pci, not to uio_pci_generic"]},
        ({"class": "accel"},),
    ),
    "a program's device": Case(
        lambda bed: bed.call("create_character_device", "voice"),
        {"path": ["/dev/voice"]},
        {"voice": ["node-denied: /dev/voice: nodes of cuse are never handed out: *"]},
    ),
    "a program's device with a disk's name": Case(
        lambda bed: bed.call("create_character_device", "sdz"),
        {"path": ["/dev/*dz"]},
        {"sdz": ["node-denied: /dev/sdz: nodes of cuse are never handed out: *"]},
    ),
    "VFIO without an IOMMU": Case(
        f"echo 1 >{UNSAFE}; {bind('vfio-pci')}",
        {"pci": {"vendor": ["8086"], "device": ["09c4"]}},
        {"0000-00-00-0": ["vfio-no-group: group 0 has no IOMMU, so it isolates nothing"]},
        ({"vfio": True},),
    ),
    "VFIO that has not the function": Case(
        bind("vfio-pci"),
        {"pci": {"vendor": ["8086"], "device": ["09c4"]}},
        {"0000-00-00-0": [f"vfio-no-group: {SLOT} has no IOMMU group: *"]},
        ({"vfio": True},),
    ),
    "the watchdog by a link": Case(
        "ln -s watchdog0 /dev/link",
        {"path": ["/dev/link"]},
        {"watchdog0": ["node-denied: /dev/watchdog0: nodes of watchdog are never handed out: *"]},
    ),
    "the watchdog's other node": Case(
        "",
        {"class": {"name": "misc", "entry": ["watchdog"]}},
        {"watchdog": ["node-denied: /dev/watchdog: nodes 10:130 are never handed out: *"]},
    ),
    "the TPM by a link": Case(
        lambda bed: bed.call("shell", "ln -s tpm0 /dev/link") or bed.call("create_tpm"),
        {"path": ["/dev/link"]},
        {"*tpm*": ["node-denied: /dev/tpm0: nodes of tpm are handed out with --allow-nodes=tpm *"]},
    ),
    "an input device by a link": Case(
        lambda bed: bed.call("shell", "ln -s input/event0 /dev/link") or bed.call("create_input"),
        {"path": ["/dev/link"]},
        {"*": ["node-denied: /dev/input/event0: nodes of input are handed out with *"]},
    ),
    "an input device by its event": Case(
        lambda bed: bed.call("create_input"),
        {"class": {"name": "input", "entry": ["event*"]}},
        {"*": ["/dev/input/event0"]},
        flags=("--allow-nodes", "input"),
    ),
    "what makes devices": Case(
        "",
        {"class": {"name": "misc", "entry": ["uinput", "cuse", "vtpmx"]}},
        {
            each: [f"node-denied: /dev/{each}: nodes * are never handed out: *"]
            for each in ("cuse", "uinput", "vtpmx")
        },
    ),
}


@pytest.fixture
def made(bed: Bed, request: pytest.FixtureRequest) -> Iterator[Case]:
    """A case whose devices are there."""
    case: Case = request.param
    if callable(case.make):
        held = case.make(bed)
        yield case
        bed.call("let_go", held)
    else:
        assert bed.call("shell", case.make) == ""
        yield case
    bed.call("shell", END)
    bed.call("write", f"{DRIVER}/bind", SLOT)


@pytest.mark.parametrize("made", CASES.values(), ids=CASES, indirect=True)
def test_a_type_offers_the_devices_that_linux_has(bed: Bed, made: Case) -> None:
    write_type(bed, [made.match], *made.nodes, each=made.each)

    def same() -> bool:
        found = dict(sorted(listed(bed, *made.flags).items()))
        expected = dict(sorted(made.expected.items()))
        assert [*map(len, found.values())] == [*map(len, expected.values())], found
        pairs = zip(found.items(), expected.items(), strict=True)
        assert all(
            fnmatchcase(text, pattern)
            for (key, texts), (id_, patterns) in pairs
            for text, pattern in zip((key, *texts), (id_, *patterns), strict=True)
        ), found
        return True

    eventually(same, timeout=5)
