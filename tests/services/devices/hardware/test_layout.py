"""What is remembered of where on a card what is, and when it is looked for again."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from services.devices.hardware import layout
from services.devices.hardware.scan import Scanner
from services.devices.model import Card
from simulator.cards import NLB0, NLB3, CardSpec, Rack, lay_out

DRIVERS = ["opae", "dfl"]
LONG = 1000
LONG_AGO = 10**18


@pytest.fixture(autouse=True)
def believed_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "BELIEVED", LONG)


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders of cards that are listed from now on."""
    seen: list[str] = []
    for name in ("listdir", "scandir"):
        call = getattr(os, name)

        def noted(path: str | int, call: Callable[[str | int], object] = call) -> object:
            shown = f"/proc/self/fd/{path}" if isinstance(path, int) else path
            where = os.path.realpath(shown)
            if "/devices/" in where:
                seen.append(where)
            return call(path)

        monkeypatch.setattr(f"services.devices.hardware.sysfs.os.{name}", noted)
    return seen


def settle(root: Path) -> None:
    """Has all folders changed long ago, as sysfs shows them: their time never changes."""
    for folder, _, _ in os.walk(root / "sys"):
        os.utime(folder, ns=(LONG_AGO, LONG_AGO))


def settled(rack: Rack) -> Scanner:
    settle(rack.root)
    scanner = Scanner(rack.root)
    scanner.scan()
    return scanner


def the_card(scanner: Scanner) -> Card:
    (card,) = scanner.scan().cards
    return card


def entry(rack: Rack) -> Path:
    names = rack._names(rack.addresses[0], 0)
    return rack.root / names["entry"]


@pytest.mark.parametrize("driver", DRIVERS)
def test_folders_are_listed_once_and_files_read_each_time(
    tmp_path: Path, listed: list[str], driver: str
) -> None:
    rack = lay_out(tmp_path, [CardSpec(driver, ports=2)])
    scanner = settled(rack)
    assert listed
    rack.set_afu(rack.addresses[0], NLB3, 1)
    settle(tmp_path)
    listed.clear()
    assert [port.afu_id for port in the_card(scanner).ports] == [NLB0, NLB3]
    assert listed == []


def test_a_card_that_says_the_same_is_the_same_card(tmp_path: Path) -> None:
    scanner = settled(lay_out(tmp_path, [CardSpec("dfl")]))
    assert the_card(scanner) is the_card(scanner)


@pytest.mark.parametrize("driver", DRIVERS)
def test_what_has_just_changed_is_not_believed(
    tmp_path: Path, listed: list[str], monkeypatch: pytest.MonkeyPatch, driver: str
) -> None:
    monkeypatch.setattr(layout, "RECENT_NS", 10**18)
    lay_out(tmp_path, [CardSpec(driver)])
    scanner = Scanner(tmp_path)
    first = scanner.scan()
    listed.clear()
    assert scanner.scan() == first
    assert listed


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_port_that_goes_while_another_comes_is_seen(tmp_path: Path, driver: str) -> None:
    rack = lay_out(tmp_path, [CardSpec(driver, ports=2)])
    scanner = settled(rack)
    old = rack.ports(rack.addresses[0])[1]
    new = old.replace(".1", ".7")
    (entry(rack) / old).rename(entry(rack) / new)
    (tmp_path / "dev" / old).rename(tmp_path / "dev" / new)
    settle(tmp_path)
    ports = the_card(scanner).ports
    assert [(port.name, port.problems) for port in ports][1] == (new, ())


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_port_that_comes_and_one_that_goes_are_seen(tmp_path: Path, driver: str) -> None:
    rack = lay_out(tmp_path, [CardSpec(driver, ports=2)])
    scanner = settled(rack)
    port = rack.ports(rack.addresses[0])[1]
    away = tmp_path / port
    (entry(rack) / port).rename(away)
    settle(tmp_path)
    assert len(the_card(scanner).ports) == 1
    away.rename(entry(rack) / port)
    settle(tmp_path)
    assert len(the_card(scanner).ports) == 2


def test_an_engine_that_goes_and_comes_is_seen(tmp_path: Path) -> None:
    rack = lay_out(tmp_path, [CardSpec("dfl")])
    scanner = settled(rack)
    engine = entry(rack) / "dfl-fme.0"
    engine.rename(tmp_path / "engine")
    settle(tmp_path)
    assert the_card(scanner).fme is None
    (tmp_path / "engine").rename(engine)
    settle(tmp_path)
    assert the_card(scanner).fme is not None


def test_a_card_whose_port_has_no_id_is_not_listed_for_that(
    tmp_path: Path, listed: list[str]
) -> None:
    rack = lay_out(tmp_path, [CardSpec("dfl")])
    (entry(rack) / "dfl-port.0/afu_id").unlink()
    scanner = settled(rack)
    listed.clear()
    for _ in range(3):
        assert [each.reason for each in the_card(scanner).ports[0].problems] == ["afu-id-missing"]
    assert listed == []
    shutil.rmtree(entry(rack) / "dfl-port.0")
    (entry(rack) / "other").mkdir()
    settle(tmp_path)
    assert the_card(scanner).ports == ()


def test_a_region_and_a_sensor_that_come_late_are_seen(tmp_path: Path) -> None:
    rack = lay_out(tmp_path, [CardSpec("dfl")])
    engine = entry(rack) / "dfl-fme.0"
    for late in ("dfl-fme-region.0", "hwmon"):
        (engine / late).rename(tmp_path / late)
    scanner = settled(rack)
    fme = the_card(scanner).fme
    assert fme is not None
    assert [each.reason for each in fme.problems] == ["interface-id-missing"]
    for late in ("dfl-fme-region.0", "hwmon"):
        (tmp_path / late).rename(engine / late)
    (engine / "hwmon/hwmon0/temp1_crit_alarm").write_text("1\n")
    settle(tmp_path)
    fme = the_card(scanner).fme
    assert fme is not None
    assert [each.reason for each in fme.problems] == ["overheated"]


def test_an_older_driver_tells_of_heat_beside_the_other_registers(tmp_path: Path) -> None:
    rack = lay_out(tmp_path, [CardSpec("dfl")])
    thermal = entry(rack) / "dfl-fme.0/thermal_mgmt"
    thermal.mkdir()
    (thermal / "threshold2_reached").write_text("1\n")
    fme = the_card(settled(rack)).fme
    assert fme is not None
    assert [each.reason for each in fme.problems] == ["overheated"]


@pytest.mark.parametrize("driver", DRIVERS)
def test_after_some_looks_all_is_listed_again(
    tmp_path: Path, listed: list[str], monkeypatch: pytest.MonkeyPatch, driver: str
) -> None:
    monkeypatch.setattr(layout, "BELIEVED", 3)
    rack = lay_out(tmp_path, [CardSpec(driver)] * 4)
    scanner = settled(rack)
    listed.clear()
    for _ in range(3):
        scanner.scan()
    assert listed == []
    for _ in range(3):
        scanner.scan()
    assert {path.partition("/fpga")[0] for path in listed} == {
        f"{tmp_path}/sys/devices/pci{address[:7]}/{address}" for address in rack.addresses
    }


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_card_that_comes_again_in_the_same_place_is_read_anew(
    tmp_path: Path, driver: str
) -> None:
    rack = lay_out(tmp_path, [CardSpec(driver, ports=2, numa_node=0, address="0000:5e:00.0")])
    scanner = settled(rack)
    rack.remove_card("0000:5e:00.0")
    rack.add_card(CardSpec(driver, afu_ids=(NLB3,), numa_node=1, address="0000:5e:00.0"))
    settle(tmp_path)
    card = the_card(scanner)
    assert card.pci is not None
    assert (card.pci.numa_node, [port.afu_id for port in card.ports]) == (1, [NLB3])


def test_a_numa_node_that_is_corrected_is_seen(tmp_path: Path) -> None:
    rack = lay_out(tmp_path, [CardSpec("dfl", numa_node=0)])
    scanner = settled(rack)
    (rack.root / rack._names(rack.addresses[0], 0)["function"] / "numa_node").write_text("1\n")
    card = the_card(scanner)
    assert card.pci is not None
    assert card.pci.numa_node == 1
    assert card.ports[0].pci == card.pci
