import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from services.devices.hardware.scan import scan
from services.devices.hardware.sensor_reader import SensorReader
from services.devices.sensors import BusErrors, CardSensors, ErrorRegister, Gauge
from services.process.blocking import BlockingCalls
from services.process.problem import Problem
from simulator.cards import CardSpec, Rack, lay_out
from tests.services.devices.hardware.blocking import Barrier

DRIVERS = ["opae", "dfl"]


def read(root: Path) -> tuple[CardSensors, ...]:
    return asyncio.run(SensorReader(root, BlockingCalls()).read(scan(root).cards, seconds=20))


def the_one(root: Path) -> CardSensors:
    (found,) = read(root)
    return found


def engine_of(rack: Rack) -> Path:
    names = rack.places(rack.addresses[0])
    return rack.root / names["entry"] / names["fme"]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


# Synthetic cards


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_card_tells_its_temperature_its_power_and_its_errors(tmp_path: Path, driver: str) -> None:
    lay_out(tmp_path, [CardSpec(driver, ports=2, address="0000:5e:00.0")])
    prefix, name, labels = {
        "opae": ("intel-fpga", "intel-fpga-dev.0", ("thermal_mgmt", "power_mgmt")),
        "dfl": ("dfl", "region0", ("dfl_fme_thermal temp1", "dfl_fme_power power1")),
    }[driver]
    found = the_one(tmp_path)
    assert (found.card, found.address) == (name, "0000:5e:00.0")
    assert found.temperatures == (Gauge(labels[0], 38.0),)
    assert found.powers == (Gauge(labels[1], 23.0),)
    assert {(each.part, each.name, each.value) for each in found.registers} == {
        *(
            (f"{prefix}-fme.0", f"{kind}_errors", 0)
            for kind in ("fme", "catfatal", "nonfatal", "pcie0", "pcie1")
        ),
        (f"{prefix}-port.0", "port_errors", 0),
        (f"{prefix}-port.1", "port_errors", 0),
    }
    assert found.bus_errors == BusErrors(0, 0, 0)


@pytest.mark.parametrize("driver", DRIVERS)
def test_missing_and_garbled_sensors_are_left_out(tmp_path: Path, driver: str) -> None:
    rack = lay_out(tmp_path, [CardSpec(driver)])
    names, engine = rack.places(rack.addresses[0]), engine_of(rack)
    write(engine / names["temperature_file"], "\0" * 4096)
    write(engine / "errors/pcie0_errors", "many\n")
    (engine / "errors/pcie1_errors").unlink()
    shutil.rmtree(engine / ("power_mgmt" if driver == "opae" else "hwmon/hwmon1"))
    shutil.rmtree(rack.root / names["entry"] / names["port"] / "errors")
    (rack.root / names["function"] / "aer_dev_fatal").unlink()
    write(rack.root / names["function"] / "aer_dev_nonfatal", "\n")
    found = the_one(tmp_path)
    assert (found.temperatures, found.powers) == ((), ())
    left = {f"{kind}_errors" for kind in ("fme", "catfatal", "nonfatal")}
    assert {each.name for each in found.registers} == left
    assert found.bus_errors == BusErrors(correctable=0)
    shutil.rmtree(engine / "errors")
    assert the_one(tmp_path).registers == ()


def test_a_virtual_function_tells_the_errors_of_its_ports(tmp_path: Path) -> None:
    rack = lay_out(tmp_path, [CardSpec("dfl", ports=2, address="0000:5e:00.0")])
    virtual = rack.move_to_vf("0000:5e:00.0", 1)
    physical, split = read(tmp_path)
    assert [each.value for each in physical.temperatures] == [38.0]
    assert (split.temperatures, split.address) == ((), virtual)
    assert split.registers == (ErrorRegister("dfl-port.1", "port_errors", 0),)
    assert split.bus_errors == BusErrors(0, 0, 0)


def test_only_cards_that_answer_in_time_are_measured(tmp_path: Path) -> None:
    rack = lay_out(tmp_path, [CardSpec("dfl"), CardSpec("dfl"), CardSpec("dfl"), CardSpec("opae")])
    third, first, second, hanging = scan(tmp_path).cards
    cards = (first, replace(second, failure=Problem("card-hung", "hangs")), third, hanging)
    rack.remove_card(rack.addresses[0])
    barrier = Barrier()
    barrier.hang(hanging.name)
    reader = SensorReader(tmp_path, BlockingCalls(), files=barrier.files)
    found = asyncio.run(reader.read(cards, seconds=0.5))
    barrier.release_all()
    assert [each.card for each in found] == [third.name]


# Where sensors are


N3000 = "dfl_dev.6/subdev_spi.3.auto/spi_master/spi4/spi4.0/n3000bmc-hwmon.6.auto/hwmon/hwmon6"


def test_sensors_of_a_boards_controller_are_found_however_deep_they_are(tmp_path: Path) -> None:
    rack = lay_out(tmp_path, [CardSpec("dfl")])
    monitor = engine_of(rack) / N3000
    for name, text in {
        "name": "n3000bmc_hwmon",
        "temp1_input": "35000",
        "temp1_label": "Board Temperature",
        "temp10_input": "36500",
        "temp2_input": "50000",
        "temp2_label": "FPGA Die Temperature",
        "temp3_input": "",
        "in0_input": "3300",
        "power1_input": "64709000",
        "power1_average": "1000000",
        "power1_label": "Board Power",
        "power2_average": "77593",  # in mW, as some drivers write it
    }.items():
        write(monitor / name, f"{text}\n")
    found = the_one(tmp_path)
    assert found.temperatures == (
        Gauge("dfl_fme_thermal temp1", 38.0),
        Gauge("Board Temperature", 35.0),
        Gauge("FPGA Die Temperature", 50.0),
        Gauge("n3000bmc_hwmon temp10", 36.5),
    )
    assert found.powers == (
        Gauge("dfl_fme_power power1", 23.0),
        Gauge("Board Power", 64.709),
        Gauge("n3000bmc_hwmon power2", 77.593),
    )


def test_sensors_of_a_controller_under_the_out_of_tree_driver_are_found(tmp_path: Path) -> None:
    rack = lay_out(tmp_path, [CardSpec("opae")])
    bus = engine_of(rack) / "spi-altera.0.auto/spi_master/spi0/spi0.0"
    for number, (name, kind, value) in enumerate(
        [
            ("Board Temperature", "Temperature", "33500"),
            ("Board Power", "Power", "58900"),
            ("12V AUX", "Voltage", "12000"),
            ("", "Temperature", "40000"),
            ("Gone", "Power", ""),
        ]
    ):
        write(bus / f"sensor{number}/name", f"{name}\n")
        write(bus / f"sensor{number}/type", f"{kind}\n")
        write(bus / f"sensor{number}/value", f"{value}\n")
    found = the_one(tmp_path)
    board = Gauge("Board Temperature", 33.5)
    assert found.temperatures == (Gauge("thermal_mgmt", 38.0), board, Gauge("sensor3", 40.0))
    assert found.powers == (Gauge("power_mgmt", 23.0), Gauge("Board Power", 58.9))
