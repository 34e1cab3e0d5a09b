"""A node with devices of five shipped types, between as many PCI functions of other kinds."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from simulator.devices import DEVICES, DeviceTree

TYPES = ("coral-usb", "gpu-render", "intel-npu", "nec-vector-engine", "t4-vfio")
SHIPPED = Path(__file__).parents[2] / "manifests" / "device-types"


@dataclass(frozen=True, slots=True)
class Devices:
    tree: DeviceTree
    types: Path
    """The folder of their types."""
    ids: tuple[str, ...]
    """Those of the first type."""

    def add(self) -> Callable[[], None]:
        """Plug another one of the first type in; what is returned unplugs it."""
        return partial(DEVICES[TYPES[0]](self.tree, 99).remove, self.tree)


def lay_out_devices(root: Path, count: int) -> Devices:
    """Lay out devices of the types in turn."""
    tree, types = DeviceTree(root), root / "types"
    types.mkdir()
    for name in TYPES:
        (types / f"{name}.yaml").write_bytes((SHIPPED / f"{name}.yaml").read_bytes())
    made = [DEVICES[TYPES[number % len(TYPES)]](tree, number) for number in range(count)]
    for number in range(count):
        tree.pci(f"0001:{number:02x}:00.0", "8086:0b0b")
    return Devices(tree, types, tuple(device.id for device in made[:: len(TYPES)]))
