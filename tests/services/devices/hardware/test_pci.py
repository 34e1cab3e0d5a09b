from pathlib import Path

import pytest

from services.devices.hardware.pci import address_in, read_function
from services.devices.hardware.sysfs import Sysfs
from services.devices.model import PciFunction

FOLDER = "/sys/devices/pci0000:5d/0000:5d:00.0/0000:5e:00.0"


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("/sys/devices/pci0000:5d/0000:5d:00.0/0000:5e:00.0/fpga/dev", "0000:5e:00.0"),
        ("../../../0000:5e:00.0", "0000:5e:00.0"),
        ("10000:01:00.7", "10000:01:00.7"),
        ("/sys/devices/platform/dfl-pci/0000:5e:00.8/x", ""),
        ("0000:5E:00.0", ""),
        ("", ""),
    ],
)
def test_the_innermost_address_of_a_path_is_found(path: str, address: str) -> None:
    assert address_in(path)[0] == address


@pytest.mark.parametrize(
    ("text", "node"), [("1\n", 1), ("-1\n", None), ("", None), ("x", None), ("1" * 7, None)]
)
def test_a_function_has_its_ids_and_names_its_physical_one(
    tmp_path: Path, text: str, node: int | None
) -> None:
    folder = tmp_path / FOLDER[1:]
    folder.mkdir(parents=True)
    for name, content in (("numa_node", text), ("vendor", "0x8086\n"), ("device", "0x09c4\n")):
        (folder / name).write_text(content)
    (folder / "physfn").symlink_to("../0000:5e:00.1")
    expected = PciFunction("0000:5e:00.0", node, "0000:5e:00.1", "8086", "09c4", "pci0000:5d")
    assert read_function(Sysfs(tmp_path), "0000:5e:00.0", FOLDER) == expected


def test_a_function_that_is_not_on_the_bus_has_only_its_address(tmp_path: Path) -> None:
    assert read_function(Sysfs(tmp_path), "0000:5e:00.0") == PciFunction("0000:5e:00.0")
