"""What is put into a port, what came of it, and the checks before it."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass

from services.bitstreams.model import Bitstream
from services.devices.health import no_fme
from services.process.errors import DeviceRefused, HardwareError, InvalidBitstream
from services.programming.clock import UserClock, requested_clock
from services.programming.port import EnginePlace, PortPlace, is_released


@dataclass(frozen=True, slots=True)
class Image:
    """What to put into a port."""

    interface_id: str
    """What the region must have, 32 hex digits."""
    afu_id: str
    """What the port shows then, 32 hex digits."""
    data: "Callable[[], array[int]]"
    """Gives the raw bitstream, once it is needed."""
    clock: UserClock | None = None
    """The user clock that it requests."""
    record: str | None = None
    """The id of the OpenCL program that it is, which the port can't show."""

    @classmethod
    def from_bitstream(cls, bitstream: Bitstream) -> "Image":
        """The image in a bitstream file."""
        metadata, opencl = bitstream.metadata, bitstream.opencl
        return cls(
            metadata.interface_id,
            metadata.afu_id,
            bitstream.raw,
            requested_clock(metadata.clock_high, metadata.clock_low),
            opencl.program_id if opencl else None,
        )


@dataclass(frozen=True, slots=True)
class Programmed:
    """The result of putting an image into a port."""

    port: str
    interface_id: str
    afu_id: str
    """What the port shows now."""
    before: str
    """What it showed before, empty if nothing usable."""
    programmed: bool
    """Whether it was reconfigured; if not, the function was there."""
    seconds: float = 0.0
    """How long it took, once the card was free."""
    remarks: tuple[str, ...] = ()
    """What is unexpected, but was no obstacle."""


def check_fits(place: PortPlace, image: Image) -> EnginePlace:
    """Check that a port can be programmed with an image; the engine that does it.

    Raises:
        HardwareError: It has no engine, or no usable interface id.
        InvalidBitstream: The image is for another interface.
    """
    engine, found = place.engine, place.interface_id
    if engine is None:
        pci = place.card.pci
        raise HardwareError(no_fme(place.name, pci.physfn if pci else None).message)
    if not found:
        reasons = "; ".join(problem.message for problem in engine.fme.problems)
        raise HardwareError(f"the region of {place.name} has no usable interface id: {reasons}")
    if found != image.interface_id:
        raise InvalidBitstream(
            f"the bitstream of AFU {image.afu_id} is for regions with interface id"
            f" {image.interface_id}, and that of {place.name} has {found}: take one made for it"
        )
    return engine


def check_not_released(place: PortPlace) -> None:
    """Refuse a port that the physical function has released, if its driver can't program that.

    The in-tree driver programs through the port's device on the physical function. It deletes that
    device when the port is released, and does not check for it when it programs
    (`dfl_fpga_cdev_release_port` in `drivers/fpga/dfl.c`, `fme_bridge_enable_set` in
    `drivers/fpga/dfl-fme-br.c`). A port on a virtual function is always a released one.

    Raises:
        DeviceRefused: It is released.
    """
    if not is_released(place):
        return
    number = "N" if place.port.number is None else place.port.number
    engine = place.engine.name if place.engine else "FME"
    physical = place.card.pci.physfn if place.card.pci else ""
    raise DeviceRefused(
        f"{place.name} can't be programmed: it is released to virtual function"
        f" {place.card.address}, and the in-tree driver programs only ports of the physical"
        f" function; set sriov_numvfs of {physical} to 0, then give the port back:"
        f" accelbind fpga assign {engine} --port {number}"
    )


def number_of(place: PortPlace) -> int:
    """The number of a port within its card.

    Raises:
        HardwareError: It can't be read.
    """
    if place.port.number is None:
        raise HardwareError(f"{place.name} doesn't report its number, which programming needs")
    return place.port.number
