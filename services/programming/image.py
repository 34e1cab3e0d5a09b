"""The image that is put into a port, the engine that can do that, and the result."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass

from services.bitstreams.model import Bitstream, UserClock
from services.devices.health import no_fme
from services.names import OPENCL_AFU
from services.process.errors import HardwareError, InvalidBitstream
from services.programming.host_state import PortRecord
from services.programming.port import EnginePlace, PortPlace


@dataclass(frozen=True, slots=True)
class Image:
    """An image for a port."""

    interface_id: str
    """What the region must have, 32 hex digits."""
    afu_id: str
    """What the port shows then, 32 hex digits."""
    data: "Callable[[], array[int]]"
    """Gives the raw bitstream, once it is needed."""
    clock: UserClock | None = None
    """The user clock that it asks for."""
    program: str = ""
    """The id of the OpenCL program that it is, which the port can't show."""

    @property
    def function(self) -> str:
        """The function that mappings name; empty for a GBS whose AFU id is that of OpenCL."""
        return self.program or ("" if self.afu_id == OPENCL_AFU else self.afu_id)

    def is_in(self, record: PortRecord | None) -> bool:
        """Whether the record of a port says that this is in it."""
        return record is not None and bool(record.function) and record.function == self.function

    @classmethod
    def from_bitstream(cls, bitstream: Bitstream) -> "Image":
        """The image in a bitstream file."""
        metadata, opencl = bitstream.metadata, bitstream.opencl
        return cls(
            metadata.interface_id,
            metadata.afu_id,
            bitstream.raw,
            metadata.clock,
            opencl.program_id if opencl else "",
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
    slow_clock: str = ""
    """A sentence if the user clock is below what the function asks for."""
    remarks: tuple[str, ...] = ()
    """What is unexpected, but was no obstacle."""


def fitting_engine(place: PortPlace, image: Image) -> EnginePlace:
    """The engine that can put an image into a port; an error that says why there is none."""
    engine, interface_id = place.engine, place.interface_id
    if engine is None:
        pci = place.card.pci
        raise HardwareError(no_fme(place.name, pci.physfn if pci else None).text)
    if place.card.functions is not None:
        text = f"the functions of {place.card.address} are behind its virtual functions"
        raise HardwareError(f"{place.name} can't be programmed by accelbind: {text}; use fpgaconf")
    if not interface_id:
        reasons = "; ".join(problem.text for problem in engine.fme.problems)
        raise HardwareError(f"the region of {place.name} has no usable interface id: {reasons}")
    if interface_id != image.interface_id:
        raise InvalidBitstream(
            f"the bitstream of AFU {image.afu_id} is for regions with interface id"
            f" {image.interface_id}, and that of {place.name} has {interface_id}: take one made for"
            " it"
        )
    return engine
