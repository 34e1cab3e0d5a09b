"""Device types and trees of sysfs for tests."""

from pathlib import Path
from typing import Any

from services.devices.model import Device
from services.devices.provider import Found
from services.devices.types.model import DeviceType, parse
from services.devices.types.provider import DeviceTypes
from services.process.blocking import BlockingCalls

ENGINE = """\
apiVersion: accelbind.dev/v1alpha1
kind: DeviceType
metadata: {name: vector-engine}
spec:
  match: [{pci: {vendor: ["1bcf"], device: ["001c"]}}]
  attributes:
    - {name: state, file: "ve/ve*/ve_state", type: int}
    - {name: osState, file: "ve/ve*/os_state", type: int}
  health:
    - {attribute: state, equals: 1, reason: not-online}
    - {attribute: osState, equals: 0, reason: os-not-online}
  nodes: [{class: ve}]
  resource: {domain: device.accelbind.dev, name: ve}
  env: [{name: VE_NODE, attribute: numaNode}]
"""


def type_of(spec: dict[str, Any], name: str = "t") -> DeviceType:
    """A type with this spec, and a resource of its name."""
    return parse(document(spec, name))


def document(spec: dict[str, Any], name: str = "t") -> dict[str, Any]:
    resource = {"domain": "device.accelbind.dev", "name": name}
    return {
        "apiVersion": "accelbind.dev/v1alpha1",
        "kind": "DeviceType",
        "metadata": {"name": name},
        "spec": {"resource": resource} | spec,
    }


class Tree:
    """Files below a root, as sysfs has them; device nodes are regular files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "dev").mkdir(parents=True, exist_ok=True)

    def file(self, path: str, text: object) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{text}\n")

    def link(self, path: str, target: str) -> None:
        """A link below the root to a path below the root."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(Path(*[".."] * path.count("/")) / target)

    def pci(self, address: str, ids: str, **files: object) -> str:
        """A PCI function with `vendor:device`; its folder."""
        folder = f"sys/devices/pci{address[:7]}/{address}"
        vendor, device = ids.split(":")
        known = {"vendor": f"0x{vendor}", "device": f"0x{device}", "class": "0x120000"}
        for name, text in (known | {"numa_node": -1} | files).items():
            self.file(f"{folder}/{name}", text)
        self.link(f"sys/bus/pci/devices/{address}", folder)
        return folder

    def bind(self, folder: str, driver: str, bus: str = "pci") -> None:
        self.link(f"{folder}/driver", f"sys/bus/{bus}/drivers/{driver}")

    def group(self, folder: str, group: int) -> None:
        self.link(f"{folder}/iommu_group", f"sys/kernel/iommu_groups/{group}")

    def usb(self, port: str, ids: str, node: str, number: str, **files: object) -> str:
        """A USB device, with the node that the bus gives it."""
        folder = f"sys/devices/pci0000:00/0000:00:14.0/usb{port[0]}/{port}"
        vendor, product = ids.split(":")
        for name, text in ({"idVendor": vendor, "idProduct": product} | files).items():
            self.file(f"{folder}/{name}", text)
        self.uevent(folder, node, number)
        self.link(f"sys/bus/usb/devices/{port}", folder)
        return folder

    def entry(self, parent: str, cls: str, name: str, number: str, node: str = "") -> str:
        """A class entry of a device with its node; its folder. Without a parent it is virtual."""
        folder = f"{parent or 'sys/devices/virtual'}/{cls}/{name}"
        self.uevent(folder, node or name, number)
        self.link(f"{folder}/subsystem", f"sys/class/{cls}")
        if parent:
            self.link(f"{folder}/device", parent)
        self.link(f"sys/class/{cls}/{name}", folder)
        return folder

    def uevent(self, folder: str, node: str, number: str) -> None:
        major, minor = number.split(":")
        self.file(f"{folder}/uevent", f"MAJOR={major}\nMINOR={minor}\nDEVNAME={node}")
        self.file(f"dev/{node}", "")


class Types:
    """A folder of types, served from a root."""

    def __init__(self, folder: Path, root: Path, **options: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.provider = DeviceTypes(folder, root, BlockingCalls(), **options)
        self.last: dict[str, Device] = {}

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def scan(self) -> Found:
        found = self.provider.devices_sync(self.last)
        self.last = {each.id: each for each in found.devices if each.resource}
        return found

    def reasons(self) -> dict[str, list[str]]:
        """The reasons of each device, by id."""
        return {each.id: [reason.reason for reason in each.reasons] for each in self.scan().devices}
