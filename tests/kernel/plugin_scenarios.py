"""The device plugin on the driver: cards that come and go, and a port that is healed."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from simulator.driver import raw_bitstream
from simulator.registers.cards import D5005, PAC_A10, DflCard
from tests.kernel.bed import DRIVER, Bed
from tests.support import eventually

CARDS = (PAC_A10, D5005)

PCI = "/sys/bus/pci"
FIRST = f"{PCI}/devices/0000:00:00.0"
NODE = (
    *("--kubelet-dir", "/run/k", "--pod-logs-dir", "/run/k/pod-logs", "--state-dir", "/run/state"),
    *("--node-name", "n1", "--metrics-host", "127.0.0.1", "--healthy-after", "1"),
)
SECONDS = 60.0


@contextlib.contextmanager
def plugin(bed: Bed, mode: str, interval: str) -> Iterator[None]:
    """A kubelet and a plugin in a mode, until its devices are known."""
    kubelet = bed.call("start", "kubelet", "--dir", "/run/k", "--node-name", "n1")
    bed.call("wait_for_path", "/run/k/device-plugins/kubelet.sock")
    flags = ("--mode", mode, "--scan-interval", interval, *NODE)
    process = bed.call("start", "plugin", *flags)
    try:
        eventually(lambda: len(devices(bed)) == len(CARDS), timeout=SECONDS)
        yield
    finally:
        code = bed.call("end", process)
        bed.call("end", kubelet)
    assert code == 0, bed.call("read", "/run/bed/plugin.log")


def devices(bed: Bed) -> dict[str, list[str]]:
    """The devices that the plugin offers, with the reasons why one is unhealthy."""
    done = bed.accelbind("devices", "-o", "json")
    table: dict[str, Any] = json.loads(done.stdout)
    assert "files" not in done.stdout, done.stdout  # it was the plugin that answered
    rows = [each for each in table["devices"] if each["resource"]]
    return {each["device"]: [reason["reason"] for reason in each["reasons"]] for each in rows}


def test_cards_that_go_and_come_are_seen_at_once(bed: Bed, card: DflCard) -> None:
    with plugin(bed, "af", "600"):
        assert bed.call("write", f"{FIRST}/remove", "1") == 0
        eventually(lambda: devices(bed).get("dfl-port.0") != [], timeout=SECONDS)
        assert devices(bed)["dfl-port.1"] == []
        assert bed.call("write", f"{PCI}/rescan", "1") == 0
        eventually(lambda: devices(bed).get("dfl-port.0") == [], timeout=SECONDS)
        assert bed.call("write", f"{DRIVER}/unbind", "0000:00:01.0") == 0
        eventually(lambda: devices(bed).get("dfl-port.1") != [], timeout=SECONDS)
        assert bed.call("write", f"{DRIVER}/bind", "0000:00:01.0") == 0
        eventually(lambda: devices(bed).get("dfl-port.1") == [], timeout=SECONDS)
    assert card.ports[0].resets


@pytest.mark.usefixtures("card")
def test_errors_show_with_the_next_scan(bed: Bed) -> None:
    with plugin(bed, "af", "0.5"):
        bed.cards[0].errors.report("fme_errors", 2)
        eventually(lambda: devices(bed).get("dfl-port.0") == ["fme-errors"], timeout=SECONDS)
        bed.cards[0].errors.report("fme_errors", 0)
        eventually(lambda: devices(bed).get("dfl-port.0") == [], timeout=SECONDS)


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize("mode", ["af", "region"])
def test_only_in_mode_region_a_disabled_port_is_enabled_without_a_person(
    bed: Bed, mode: str
) -> None:
    device = {"af": "dfl-port.0", "region": "dfl-fme.0"}[mode]
    with plugin(bed, mode, "0.5"):
        held = bed.call("hold", "/dev/dfl-port.0")
        assert bed.call("program", "/dev/dfl-fme.0", 0, b"no bitstream at all.") == -5
        eventually(lambda: devices(bed).get(device) == ["port-disabled"], timeout=SECONDS)
        bed.call("let_go", held)
        if mode == "region":
            eventually(lambda: devices(bed).get(device) == [], timeout=SECONDS)
            assert bed.call("program", "/dev/dfl-fme.0", 0, raw_bitstream("1" * 32)) == 0
            assert bed.call("read", "/sys/class/fpga_region/region0/dfl-port.0/afu_id") == "1" * 32
        else:
            assert devices(bed)[device] == ["port-disabled"]
