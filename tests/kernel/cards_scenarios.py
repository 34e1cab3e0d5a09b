"""Cards of each kind under Linux's DFL driver: what accelbind finds, and what it calls them."""

import json

import pytest

from services.names import function_name
from simulator.registers.cards import D5005, INTEGRATED_A10, N3000, N6000, PAC_A10, TWO_PORTS
from tests.kernel.bed import Bed

CARDS = (PAC_A10, INTEGRATED_A10, N3000, D5005, TWO_PORTS, N6000)
OFS = CARDS.index(N6000)


@pytest.mark.parametrize("number", range(len(CARDS)))
def test_a_card_is_listed_with_its_ids(bed: Bed, number: int) -> None:
    value, address = CARDS[number], f"0000:00:{number:02x}.0"
    rows = [each for each in bed.listed() if each["pciAddress"] == address]
    assert [each["interfaceId"] for each in rows] == [value.interface_id] * len(rows)
    ports = [each for each in rows if each["kind"] == "port"]
    assert [each["afuId"] for each in ports] == [each or "" for each in value.afu_ids]
    assert [each["number"] for each in ports] == list(range(len(ports)))
    assert {each["numaNode"] for each in rows} == {None}
    reasons = [each["reason"] for row in rows for each in row["problems"]]
    assert reasons == (["afu-id-missing"] if number == OFS else [])


def test_ports_are_offered_by_the_functions_in_them(bed: Bed) -> None:
    done = bed.accelbind("devices", "--files", "-o", "json")
    devices = {each["device"]: each for each in json.loads(done.stdout)["devices"]}
    ports = [
        (value.interface_id, afu_id)
        for value in CARDS
        for afu_id in value.afu_ids
        if afu_id is not None
    ]
    assert {key: each["resource"] for key, each in devices.items() if each["resource"]} == {
        f"dfl-port.{number}": f"fpga.intel.com/{function_name(*ids)}"
        for number, ids in enumerate(ports)
    }
    reasons = [each["reason"] for each in devices[f"dfl-fme.{OFS}"]["reasons"]]
    assert reasons == ["no-virtual-functions"]
    done = bed.accelbind("devices", "--files", "--mode", "region", "-o", "json")
    assert '"programming-not-supported"' in done.stdout


def test_everything_of_a_port_is_shown(bed: Bed) -> None:
    done = bed.accelbind("fpga", "info", "dfl-port.0")
    assert (done.code, done.stderr) == (0, "")
    facts = dict(line.split("  ", 1) for line in done.stdout.splitlines())
    shown = {name: value.strip() for name, value in facts.items()}
    assert shown["node"] == "/dev/dfl-port.0"
    assert shown["problems"] == "none"
    assert "50 °C" in done.stdout
    assert "30 W" in done.stdout
