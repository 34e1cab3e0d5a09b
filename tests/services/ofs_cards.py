"""OFS cards for tests: synthetic ones, and virtual functions bound to vfio-pci as on a node."""

import struct
from pathlib import Path

from simulator.devices import DeviceTree

N6001, C6100 = "1771", "17d4"
INTERFACE = "ce3139c959cf528ca27751c50829797a"
HE_MEM = "8568ab4e6ba54616bb652a578330a8eb"
HE_HSSI = "823c334c98bf11eabb370242ac130002"
MEM_TG = "4dadea342c7848cba3dc5b831f5cecbb"
"""What Intel's guide for the N6001 lists behind its first three virtual functions."""
AFUS = (HE_MEM, HE_HSSI, MEM_TG)
AFU_HEADER = 1 << 60 | 1 << 40
MAJOR = 242


class OfsNode:
    """A tree with OFS cards, of which `functions` are the folders of their virtual functions."""

    def __init__(self, root: Path) -> None:
        self.tree = DeviceTree(root)
        self.root = root

    def add_card(
        self, shell: str = N6001, *, functions: int = 3, interface: str = INTERFACE
    ) -> None:
        """A card with its engine, a port that reaches no AFU, and virtual functions."""
        tree, index = self.tree, len(list(self.root.glob("sys/class/fpga_region/*")))
        ids = {"subsystem_vendor": "0x8086", "subsystem_device": f"0x{shell}", "numa_node": 1}
        folder = tree.pci("0000:b1:00.0", "8086:bcce", **ids)
        region = f"{folder}/fpga_region/region{index}"
        if interface:
            inner = f"{region}/dfl-fme.{index}/dfl-fme-region.1/fpga_region/region9"
            tree.file(f"{inner}/compat_id", interface)
        for part in (f"dfl-fme.{index}", f"dfl-port.{index}"):
            tree.file(f"{region}/{part}/id", 0)
            tree.file(f"dev/{part}", "")
        tree.link(f"sys/class/fpga_region/region{index}", region)
        for number in range(functions):
            address = f"0000:b1:00.{number + 5}"
            virtual = tree.pci(address, "8086:bccf", **ids)
            tree.link(f"{virtual}/physfn", folder)
            tree.link(f"{folder}/virtfn{number}", virtual)
            tree.group(virtual, 0xB1 * 10 + number)

    def folder(self, address: str) -> Path:
        return (self.root / "sys/bus/pci/devices" / address).resolve()

    def path(self, address: str) -> str:
        """The folder of a function, below the root."""
        return str(self.folder(address).relative_to(self.root.resolve()))

    def bind(self, address: str, afu_id: str = "", driver: str = "vfio-pci") -> None:
        """Bind a function, with an AFU behind it, and the nodes of its group."""
        self.tree.bind(self.path(address), driver)
        group = (self.folder(address) / "iommu_group").readlink().name
        self.tree.entry("", "vfio", group, f"{MAJOR}:{group}", f"vfio/{group}")
        if not (self.root / "sys/class/misc/vfio").exists():
            self.tree.entry("", "misc", "vfio", "10:196", "vfio/vfio")
        if afu_id:
            self.write_bar(address, afu_id)

    def unbind(self, address: str) -> None:
        (self.folder(address) / "driver").unlink()

    def write_bar(self, address: str, afu_id: str) -> None:
        """Put the header and GUID of an AFU at the start of a function's BAR0."""
        words = struct.pack("<3Q", AFU_HEADER, int(afu_id[16:], 16), int(afu_id[:16], 16))
        (self.folder(address) / "resource0").write_bytes(words.ljust(4096, b"\0"))
