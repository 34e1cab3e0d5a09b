import errno
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from services.devices.hardware.scan import scan
from services.process.errors import (
    DeviceBusy,
    DeviceGone,
    DeviceRefused,
    HardwareError,
    InvalidSettings,
)
from services.process.problem import Problem
from services.programming.ioctls import KERNEL, holders_of
from services.programming.port import (
    DeviceFiles,
    PortPlace,
    find_device,
    find_engine,
    find_port,
    port_meant,
    port_session,
    translated,
)
from simulator.card_faults import Fault
from simulator.cards import CardSpec, Rack
from tests.support import holding

PORTS = {"opae": "intel-fpga-port.0", "dfl": "dfl-port.0"}
FMES = {"opae": "intel-fpga-fme.0", "dfl": "dfl-fme.0"}


def place_of(rack: Rack, driver: str) -> PortPlace:
    return find_port(scan(rack.root), PORTS[driver])


def test_a_port_is_opened_alone_and_who_has_it_is_asked_for(
    rack: Rack, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rack.add_card(CardSpec(driver))
    place, alone = place_of(rack, driver), os.O_RDWR | os.O_EXCL

    def refuse(_: object, flags: int) -> int:
        assert flags & alone == alone
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(os, "open", refuse)
    refused = pytest.raises(DeviceBusy, match=f"{place.name} is in use by another process, which")
    with refused, port_session(rack.root, place, KERNEL):
        pytest.fail("two have it")


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (errno.EACCES, HardwareError, "may not"),
        (errno.ENXIO, DeviceGone, "the device is gone"),
        (errno.ETIMEDOUT, DeviceRefused, "timed out"),
        (errno.EBUSY, DeviceBusy, "the device is in use"),
    ],
)
def test_errors_of_the_system_become_ours(code: int, kind: type[HardwareError], words: str) -> None:
    told = translated(OSError(code, os.strerror(code)), "x can't be opened")
    assert type(told) is kind
    assert re.match(rf"x can't be opened: .*{words}", str(told), re.IGNORECASE)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "x"), DeviceRefused("x")])
def test_every_error_of_a_removed_port_says_that_it_is_gone(
    rack: Rack, driver: str, error: Exception
) -> None:
    address = rack.add_card(CardSpec(driver))
    place = place_of(rack, driver)
    gone = pytest.raises(DeviceGone, match=f"{place.name} has vanished while it was worked on")
    with gone, port_session(rack.root, place, KERNEL):
        rack.remove_card(address)
        raise error


def test_a_card_that_was_replaced_is_not_the_one_that_was_meant(rack: Rack, driver: str) -> None:
    address = rack.add_card(CardSpec(driver))
    files = DeviceFiles(rack.root, place_of(rack, driver))
    assert files.is_there
    keep = rack.root / "sys" / "kept"
    (rack.root / files.folder.lstrip("/")).rename(keep)  # so that its inode isn't used again
    rack.remove_card(address)
    rack.add_card(CardSpec(driver, address=address))
    assert not files.is_there


def test_devices_are_found_by_name_by_their_cards_address_and_in_sysfs(
    rack: Rack, driver: str
) -> None:
    address = rack.add_card(CardSpec(driver, ports=2))
    virtual = rack.move_to_vf(address, 1)
    inventory = scan(rack.root)
    first, second = (port.name for card in inventory.cards for port in card.ports)
    card = inventory.cards[0].name
    for shown in (address, address.upper().removeprefix("0000:"), f"/sys/bus/x/{address}/", card):
        assert find_device(inventory, shown).name == find_engine(inventory, shown).name
        assert port_meant(inventory, shown) == first
    assert find_device(inventory, virtual).name == port_meant(inventory, virtual) == second
    assert find_engine(inventory, virtual).name == FMES[driver]
    for shown in (second, f"/dev/{second}", f"/sys/class/x/{second}"):
        assert find_device(inventory, shown).name == second
    for wrong in ("a b", "", "/", "x" * 65):
        with pytest.raises(DeviceGone, match="is not an FPGA device"):
            find_device(inventory, wrong)
    with pytest.raises(InvalidSettings, match=f"{FMES[driver]} has .* and one is needed"):
        port_meant(inventory, FMES[driver])
    for absent in ("0000:ff:00.0", "region9"):
        with pytest.raises(DeviceGone, match=f"there is no port {absent} on this node; its ports"):
            find_device(inventory, absent)
    with pytest.raises(DeviceGone, match=f"its FMEs are {FMES[driver]}"):
        find_engine(inventory, "dfl-fme.9")


def test_a_missing_devices_error_shows_the_cards_that_were_not_read(rack: Rack) -> None:
    for _ in range(2):
        rack.add_card(CardSpec("dfl"))
    whole = scan(rack.root)
    hung = Problem("card-hung", "reading region0 hangs")
    first = replace(whole.cards[0], fme=None, ports=(), failure=hung)
    with pytest.raises(DeviceGone, match=r"its ports are dfl-port\.1: reading region0 hangs"):
        find_port(replace(whole, cards=(first, *whole.cards[1:])), "dfl-port.0")


def test_where_nothing_is_the_reason_is_told(rack: Rack) -> None:
    with pytest.raises(DeviceGone, match=r"no port dfl-port\.0 on this node: neither"):
        find_port(scan(rack.root), "dfl-port.0")


def test_the_port_of_a_virtual_function_has_the_physical_ones_engine(
    rack: Rack, driver: str
) -> None:
    address = rack.add_card(CardSpec(driver, ports=2))
    rack.move_to_vf(address, 0)
    place = place_of(rack, driver)
    assert place.engine is not None
    assert place.engine.card.place == place.card.lock == address != place.card.address
    rack.break_(address, Fault.FME_MISSING)
    assert place_of(rack, driver).engine is None


# Who has a node ----------------------------------------------------------------------------------


def test_another_process_with_a_file_open_is_found_and_this_one_is_not(tmp_path: Path) -> None:
    node = tmp_path / "node"
    node.write_text("")
    with node.open():
        assert holders_of(node) == []
        with holding(node) as pid:
            (found,) = holders_of(node)
    assert re.match(rf"process {pid} \(python", found)
    node.unlink()
    assert holders_of(node) == []


def test_a_device_is_known_by_its_number_whatever_its_path(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/full")
    with holding(tmp_path / "link") as pid:
        assert f"process {pid} (" in str(holders_of(Path("/dev/full")))
