"""What the files of a synthetic card hold: the layout of sysfs under both FPGA drivers.

Taken from sysfs of real cards and from the drivers' documentation in the kernel
(`Documentation/ABI/testing/sysfs-platform-dfl-fme`, `…-dfl-port`, `sysfs-bus-pci`). Names, places
and formats are those of the drivers; values are those of an idle, healthy card.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

Content = tuple[str, str]
"""A file's path below its card's entry, and its text."""


@dataclass
class SyntheticPort:
    """A port of a function that is laid out."""

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

    @property
    def class_folder(self) -> str:
        """Name of the driver's class folder."""
        return "fpga" if self.driver == "opae" else "fpga_region"

    @property
    def entry_name(self) -> str:
        """Name of its class entry."""
        return self._named("intel-fpga-dev.", "region", self.entry)

    @property
    def fme_name(self) -> str | None:
        """Name of its engine."""
        return None if self.fme is None else self._named("intel-fpga-fme.", "dfl-fme.", self.fme)

    def port_name(self, port: SyntheticPort) -> str:
        """Name of one of its ports."""
        return self._named("intel-fpga-port.", "dfl-port.", port.serial)

    def _named(self, opae: str, dfl: str, number: int) -> str:
        return f"{opae if self.driver == 'opae' else dfl}{number}"

    @property
    def folder(self) -> str:
        """Its folder below `sys`: virtual functions stand beside their physical one."""
        return f"devices/pci{self.address[:7]}/{self.address}"

    @property
    def entry_folder(self) -> str:
        """Folder of its class entry, below `sys`."""
        return f"{self.folder}/{self.class_folder}/{self.entry_name}"

    @property
    def inner_folder(self) -> str | None:
        """Folder of the region inside of its engine, below its entry (`dfl` only)."""
        if self.inner is None:
            return None
        return f"{self.fme_name}/dfl-fme-region.0/fpga_region/region{self.inner}"

    @property
    def interface_file(self) -> str | None:
        """The file with the interface id, below its entry."""
        if self.fme is None:
            return None
        if self.driver == "opae":
            return f"{self.fme_name}/pr/interface_id"
        return f"{self.inner_folder}/compat_id"

    def names(self, port: int) -> dict[str, str]:
        """What the names in the place of a `Fault` or `Hang` stand for, at one of its ports.

        On a virtual function, `fme` is what its engine would be called.
        """
        opae = self.driver == "opae"
        return {
            "function": f"sys/{self.folder}",
            "entry": f"sys/{self.entry_folder}",
            "link": f"sys/class/{self.class_folder}/{self.entry_name}",
            "fme": self.fme_name or self._named("intel-fpga-fme.", "dfl-fme.", self.entry),
            "port": self.port_name(self.ports[port]) if self.ports else "",
            "interface_file": self.interface_file or "",
            "errors_file": "errors/fme-errors/errors" if opae else "errors/fme_errors",
            "heat_file": f"{self._thermal}/threshold2_reached"
            if opae
            else f"{self._thermal}/temp1_crit_alarm",
            "temperature_file": f"{self._thermal}/temperature"
            if opae
            else f"{self._thermal}/temp1_input",
        }

    @property
    def _thermal(self) -> str:
        """Its engine's temperature files."""
        return "thermal_mgmt" if self.driver == "opae" else f"hwmon/hwmon{2 * (self.fme or 0)}"


_PCI_DEVICE = {"opae": "0x09c4", "dfl": "0x0b30"}
_MAJORS = {"fme": 245, "port": 244}


def function_files(function: Function) -> Iterator[Content]:
    """The files of the PCI function itself, below its folder."""
    yield from (
        ("vendor", "0x8086\n"),
        ("device", f"{_PCI_DEVICE[function.driver]}\n"),
        ("subsystem_vendor", "0x8086\n"),
        ("subsystem_device", "0x0000\n"),
        ("class", "0x120000\n"),
        ("enable", "1\n"),
        ("local_cpulist", "0-15\n"),
        ("uevent", f"DRIVER=dfl-pci\nPCI_CLASS=120000\nPCI_SLOT_NAME={function.address}\n"),
    )
    for kind, total in (("correctable", "COR"), ("nonfatal", "NONFATAL"), ("fatal", "FATAL")):
        yield f"aer_dev_{kind}", f"Undefined 0\nTOTAL_ERR_{total} 0\n"
    if function.numa_node is not None:
        yield "numa_node", f"{function.numa_node}\n"
    if function.physfn is None:
        yield "sriov_totalvfs", f"{max(1, len(function.ports))}\n"
        yield "sriov_numvfs", f"{len(function.virtual)}\n"


def links(function: Function) -> Iterator[tuple[str, str]]:
    """The links that make a function what it is, below `sys`, the class entry last."""
    entry, name = function.entry_folder, function.entry_name
    folder = f"class/{function.class_folder}"
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


def entry_files(function: Function) -> Iterator[Content]:
    """The files of a card, below its class entry."""
    yield "uevent", ""
    if function.driver == "dfl":
        yield "compat_id", ""
    if function.fme is not None:
        for path, text in _fme_files(function):
            yield f"{function.fme_name}/{path}", text
        interface_file = function.interface_file
        if interface_file is not None:
            yield interface_file, f"{function.interface_id}\n"
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
        ("ltr", "1\n"),
        ("power_state", "0x0\n"),
        ("errors/errors", "0x0\n"),
        ("errors/first_error", "0x0\n"),
        ("errors/first_malformed_req", f"0x{0:032x}\n"),
        ("userclk_freqcmd", "0x0\n"),
        ("userclk_freqcntrcmd", "0x0\n"),
        ("userclk_freqcntrsts", "0x3000000000003ce3\n"),
        ("userclk_freqsts", "0x1001000000000007\n"),
    )
    if function.driver == "opae":
        yield "errors/clear", ""
        yield "errors/revision", "1\n"


def _uevent(name: str, major: int, minor: int) -> str:
    driver = name.rpartition(".")[0]
    return (
        f"MAJOR={major}\nMINOR={minor}\nDEVNAME={name}\nDRIVER={driver}\n"
        f"MODALIAS=platform:{driver}\n"
    )


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
    ("errors/inject_error", "0x0\n"),
    ("errors/revision", "0\n"),
    ("errors/fme-errors/errors", "0x0\n"),
    ("errors/fme-errors/first_error", "0x0\n"),
    ("errors/fme-errors/next_error", "0x0\n"),
    ("errors/fme-errors/clear", ""),
    ("thermal_mgmt/temperature", "38\n"),
    ("thermal_mgmt/threshold1", "90\n"),
    ("thermal_mgmt/threshold1_reached", "0\n"),
    ("thermal_mgmt/threshold2", "93\n"),
    ("thermal_mgmt/threshold2_reached", "0\n"),
    ("thermal_mgmt/threshold_trip", "100\n"),
    ("power_mgmt/consumed", "0x17\n"),
)


def _dfl_fme(serial: int) -> Iterator[Content]:
    thermal, power = 2 * serial, 2 * serial + 1
    yield from (
        ("errors/inject_errors", "0x0\n"),
        ("errors/fme_errors", "0x0\n"),
        ("errors/first_error", "0x0\n"),
        ("errors/next_error", "0x0\n"),
        (f"hwmon/hwmon{thermal}/name", "dfl_fme_thermal\n"),
        (f"hwmon/hwmon{thermal}/temp1_input", "38000\n"),
        (f"hwmon/hwmon{thermal}/temp1_max", "90000\n"),
        (f"hwmon/hwmon{thermal}/temp1_max_alarm", "0\n"),
        (f"hwmon/hwmon{thermal}/temp1_crit", "93000\n"),
        (f"hwmon/hwmon{thermal}/temp1_crit_alarm", "0\n"),
        (f"hwmon/hwmon{thermal}/temp1_emergency", "100000\n"),
        (f"hwmon/hwmon{power}/name", "dfl_fme_power\n"),
        (f"hwmon/hwmon{power}/power1_input", "23000000\n"),
    )
