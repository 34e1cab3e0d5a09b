"""The device types that are shipped, each on a tree as its driver makes it."""

from pathlib import Path

import pytest

from simulator.devices import DEVICES, DeviceTree
from tests.services.devices.types.making import Types
from tests.support import REPOSITORY

FOLDER = REPOSITORY / "manifests" / "device-types"


def test_each_type_is_short_and_has_a_simulated_device() -> None:
    lengths = {path.stem: len(path.read_text().splitlines()) for path in FOLDER.glob("*.yaml")}
    assert lengths.keys() == DEVICES.keys()
    assert {name: lines for name, lines in lengths.items() if lines > 20} == {}


@pytest.mark.parametrize("name", DEVICES)
def test_each_type_serves_its_device(tmp_path: Path, name: str) -> None:
    tree = DeviceTree(tmp_path / "root")
    made = {other: make(tree, number) for number, (other, make) in enumerate(DEVICES.items())}
    tree.entry("", "mic", "scif", "239:1", "mic/scif")
    own = made[name]
    types = Types(tmp_path / "types", tree.root)
    types.write(f"{name}.yaml", (FOLDER / f"{name}.yaml").read_text())
    found = types.scan()
    assert found.problems == ()
    (device,) = [each for each in found.devices if each.resource]
    assert (device.id, device.healthy, device.type) == (own.id, True, name)
    assert tuple(each.name for each in device.nodes) == own.nodes
    if own.state:
        tree.file(own.state, own.bad)
        assert types.reasons()[own.id] == [own.reason]
        tree.file(own.state, own.good)
        assert types.reasons()[own.id] == []
    own.remove(tree)
    assert own.id not in types.reasons()
