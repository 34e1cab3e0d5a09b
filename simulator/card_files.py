"""Contents of a synthetic card's files: the layout of sysfs under both FPGA drivers.

Taken from sysfs of real cards and from the drivers' documentation in the kernel
(`Documentation/ABI/testing/sysfs-platform-dfl-fme`, `…-dfl-port`, `sysfs-bus-pci`). Names, places
and formats are those of the drivers; values are those of an idle, healthy card. Of the files, those
that accelbind reads.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

Content = tuple[str, str]
"""A file's path below a folder, and its text."""


@dataclass(frozen=True)
class DriverNames:
    """The names that a driver uses; the number at their end is not part of them here."""

    class_folder: str
    entry: str
    fme: str
    port: str
    pci_device: str
    errors: str
    """Below the engine's folder, as the temperature's files."""
    temperature: str
    overheated: str


DRIVERS = {
    "opae": DriverNames(
        class_folder="fpga",
        entry="intel-fpga-dev.",
        fme="intel-fpga-fme.",
        port="intel-fpga-port.",
        pci_device="0x09c4",
        errors="errors/fme-errors/errors",
        temperature="thermal_mgmt/temperature",
        overheated="thermal_mgmt/threshold2_reached",
    ),
    "dfl": DriverNames(
        class_folder="fpga_region",
        entry="region",
        fme="dfl-fme.",
        port="dfl-port.",
        pci_device="0x0b30",
        errors="errors/fme_errors",
        temperature="hwmon/hwmon{}/temp1_input",
        overheated="hwmon/hwmon{}/temp1_crit_alarm",
    ),
}


@dataclass
class SyntheticPort:
    number: int
    """Within the card."""
    serial: int
    """The number in its name, unique among the ports of its driver."""
    afu_id: str


@dataclass
class Function:
    """A PCI function that is laid out: a card, or a virtual function split from one."""

    address: str
    driver: str
    entry: int
    """Number of its class entry."""
    interface_id: str
    numa_node: int | None
    """None for no such file."""
    fme: int | None
    """The number in its engine's name; None on a virtual function."""
    inner: int | None = None
    """Number of the partial-reconfiguration region's own class entry (`dfl` only)."""
    physfn: str | None = None
    """Address of the physical function, on a virtual one."""
    ports: list[SyntheticPort] = field(default_factory=list)
    virtual: list[str] = field(default_factory=list)
    """Addresses of the virtual functions split from it."""

    def __post_init__(self) -> None:
        self.names = DRIVERS[self.driver]
        self.entry_name = f"{self.names.entry}{self.entry}"
        self.fme_name = None if self.fme is None else f"{self.names.fme}{self.fme}"
        self.folder = f"devices/pci{self.address[:7]}/{self.address}"
        """Below `sys`: virtual functions stand beside their physical one."""
        self.entry_folder = f"{self.folder}/{self.names.class_folder}/{self.entry_name}"
        self.inner_folder = (
            None
            if self.inner is None
            else f"{self.fme_name}/dfl-fme-region.0/fpga_region/region{self.inner}"
        )
        """The region inside of its engine, below its entry (`dfl` only)."""

    def port_name(self, port: SyntheticPort) -> str:
        return f"{self.names.port}{port.serial}"

    @property
    def interface_file(self) -> str:
        """The file with the interface id, below its entry; empty on a virtual function."""
        if self.fme is None:
            return ""
        return (
            f"{self.inner_folder}/compat_id"
            if self.inner_folder
            else f"{self.fme_name}/pr/interface_id"
        )

    def places(self, port: int) -> dict[str, str]:
        """The values of the names in the place of a `Fault`, at one of its ports.

        On a virtual function, `fme` is what its engine would be called.
        """
        names, monitor = self.names, 2 * (self.fme or 0)
        return {
            "function": f"sys/{self.folder}",
            "entry": f"sys/{self.entry_folder}",
            "link": f"sys/class/{names.class_folder}/{self.entry_name}",
            "fme": self.fme_name or f"{names.fme}{self.entry}",
            "port": self.port_name(self.ports[port]) if self.ports else "",
            "interface_file": self.interface_file,
            "errors_file": names.errors,
            "heat_file": names.overheated.format(monitor),
            "temperature_file": names.temperature.format(monitor),
        }


_MAJORS = {"fme": 245, "port": 244}


def files(function: Function) -> Iterator[Content]:
    """The files of a function, below `sys`."""
    for folder, found in (
        (function.folder, _function_files(function)),
        (function.entry_folder, _entry_files(function)),
    ):
        for path, text in found:
            yield f"{folder}/{path}", text


def _function_files(function: Function) -> Iterator[Content]:
    """The files of the PCI function itself, below its folder."""
    yield from (
        ("vendor", "0x8086\n"),
        ("device", f"{function.names.pci_device}\n"),
        ("class", "0x120000\n"),
        ("uevent", f"DRIVER=dfl-pci\nPCI_CLASS=120000\nPCI_SLOT_NAME={function.address}\n"),
    )
    for kind, total in (("correctable", "COR"), ("nonfatal", "NONFATAL"), ("fatal", "FATAL")):
        yield f"aer_dev_{kind}", f"Undefined 0\nTOTAL_ERR_{total} 0\n"
    if function.numa_node is not None:
        yield "numa_node", f"{function.numa_node}\n"
    if function.physfn is None:
        yield "sriov_numvfs", f"{len(function.virtual)}\n"


def links(function: Function) -> Iterator[tuple[str, str]]:
    """The links that make a function what it is, below `sys`, the class entry last."""
    entry, name = function.entry_folder, function.entry_name
    folder = f"class/{function.names.class_folder}"
    yield f"{entry}/device", f"../../../{function.address}"
    yield f"{entry}/subsystem", f"../../../../../{folder}"
    if function.physfn is not None:
        yield f"{function.folder}/physfn", f"../{function.physfn}"
    yield f"bus/pci/devices/{function.address}", f"../../../{function.folder}"
    inner = function.inner_folder
    if inner is not None:
        yield f"{entry}/{inner}/device", "../../../dfl-fme-region.0"
        yield f"{folder}/region{function.inner}", f"../../{entry}/{inner}"
    yield f"{folder}/{name}", f"../../{entry}"


def _entry_files(function: Function) -> Iterator[Content]:
    """The files of a card, below its class entry."""
    yield "uevent", ""
    if function.driver == "dfl":
        yield "compat_id", ""
    if function.fme is not None:
        for path, text in _fme_files(function):
            yield f"{function.fme_name}/{path}", text
        yield function.interface_file, f"{function.interface_id}\n"
    for port in function.ports:
        for path, text in port_files(function, port):
            yield f"{function.port_name(port)}/{path}", text


def port_files(function: Function, port: SyntheticPort) -> Iterator[Content]:
    """The files of a port, below its folder."""
    name = function.port_name(port)
    yield from (
        ("afu_id", f"{port.afu_id}\n"),
        ("id", f"{port.number}\n"),
        ("dev", f"{_MAJORS['port']}:{port.serial}\n"),
        ("uevent", _uevent(name, _MAJORS["port"], port.serial)),
        ("ap1_event", "0\n"),
        ("ap2_event", "0\n"),
        ("power_state", "0x0\n"),
        ("errors/errors", "0x0\n"),
        ("errors/first_error", "0x0\n"),
        ("userclk_freqcntrcmd", "0x0\n"),
        ("userclk_freqcntrsts", "0x3000000000003ce3\n"),
    )
    if function.driver == "opae":
        yield "errors/clear", ""


def _uevent(name: str, major: int, minor: int) -> str:
    return f"MAJOR={major}\nMINOR={minor}\nDEVNAME={name}\n"


def _fme_files(function: Function) -> Iterator[Content]:
    name, serial = str(function.fme_name), int(function.fme or 0)
    yield from (
        ("dev", f"{_MAJORS['fme']}:{serial}\n"),
        ("uevent", _uevent(name, _MAJORS["fme"], serial)),
        ("ports_num", f"{len(function.ports)}\n"),
        ("socket_id", "0\n"),
        ("cache_size", "0\n"),
        ("bitstream_id", "0x202000200000237\n"),
        ("bitstream_metadata", "0x1910174\n"),
        ("errors/catfatal_errors", "0x0\n"),
        ("errors/nonfatal_errors", "0x0\n"),
        ("errors/pcie0_errors", "0x0\n"),
        ("errors/pcie1_errors", "0x0\n"),
    )
    yield from _OPAE_FME if function.driver == "opae" else _dfl_fme(serial)


_OPAE_FME: tuple[Content, ...] = (
    ("errors/fme-errors/errors", "0x0\n"),
    ("errors/fme-errors/first_error", "0x0\n"),
    ("errors/fme-errors/clear", ""),
    ("thermal_mgmt/temperature", "38\n"),
    ("thermal_mgmt/threshold2_reached", "0\n"),
    ("power_mgmt/consumed", "0x17\n"),
)


def _dfl_fme(serial: int) -> Iterator[Content]:
    thermal, power = 2 * serial, 2 * serial + 1
    yield from (
        ("errors/fme_errors", "0x0\n"),
        ("errors/first_error", "0x0\n"),
        (f"hwmon/hwmon{thermal}/name", "dfl_fme_thermal\n"),
        (f"hwmon/hwmon{thermal}/temp1_input", "38000\n"),
        (f"hwmon/hwmon{thermal}/temp1_crit_alarm", "0\n"),
        (f"hwmon/hwmon{power}/name", "dfl_fme_power\n"),
        (f"hwmon/hwmon{power}/power1_input", "23000000\n"),
    )
