"""DFL cards: values that say what a card has, and cards made of them.

card = DflCard(PAC_A10)
with VhostUserDevice(socket, card.function.answer):
card.reconfiguration.refusal = card.reconfiguration.CRC
"""

import struct
from dataclasses import dataclass
from typing import Final

from simulator.cards import A10_INTERFACE, D5005_INTERFACE, NLB0, NLB3
from simulator.registers.features import (
    Engine,
    EngineErrors,
    Feature,
    Port,
    Power,
    Reconfiguration,
    Thermal,
)
from simulator.registers.pci import PciFunction, vendor_specific

INTEL: Final = 0x8086
_DFL_VSEC: Final = 0x43
_ONE_LIST_AT: Final = 0x1000
"""Not at 0, where the driver looks without the capability."""
_PORTS_AT: Final = 0x40000
_AFU_AT: Final = 0x40000
"""From the port's header."""
_PORT_SIZE: Final = 0xC0000
_BAR_SIZE: Final = 0x200000
_NEXT_AFU: Final = 0x18
_IN_THE_LIST: Final = 7
"""The BAR of a port that is in the engine's own list."""


@dataclass(frozen=True, slots=True)
class DflCardValue:
    """The features of a card."""

    device: int
    interface_id: str
    afu_ids: tuple[str | None, ...] = (NLB0,)
    """The function in each port; None for a port that reaches none."""
    subsystem: tuple[int, int] = (INTEL, 0)
    others: tuple[int, ...] = ()
    """Numbers of the engine's features that have no behaviour here."""
    port_features: tuple[int, ...] = ()
    port_revision: int = 0
    """From 1 on, there are no user clocks."""
    port_bar: int = 0
    is_one_list: bool = False
    """Whether a capability leads to one list with everything (OFS)."""
    measures: bool = True
    """Whether the engine has temperature and power."""


PAC_A10: Final = DflCardValue(0x09C4, A10_INTERFACE, others=(0x6,), port_features=(0x11, 0x13))
INTEGRATED_A10: Final = DflCardValue(0xBCC0, "1a4222186dba448eb302425cbcde1406")
N3000: Final = DflCardValue(
    *(0x0B30, "a5d72a3cc8b04939912cf715e5dc10ca", ("9aeffe5f84570612c000c9660d824272",)),
    others=(0xD, 0x9),
    port_revision=2,
    measures=False,
)
D5005: Final = DflCardValue(0x0B2B, D5005_INTERFACE, (NLB3,), port_revision=1, port_bar=2)
TWO_PORTS: Final = DflCardValue(0x09C4, A10_INTERFACE, (NLB0, NLB3))
N6000: Final = DflCardValue(
    *(0xBCCE, "98b4d5bc98ba5f4b98d9a2841ccf11b0", (None,)),
    subsystem=(INTEL, 0x1770),
    port_revision=2,
    is_one_list=True,
    measures=False,
)


class Bar:
    """The features behind a BAR, by offset."""

    def __init__(self) -> None:
        self._features: list[tuple[int, Feature]] = []

    def add(self, offset: int, feature: Feature) -> None:
        """Put a feature at an offset."""
        self._features.append((offset, feature))

    def add_list(self, offset: int, features: list[Feature]) -> None:
        """Put features behind each other, as one list."""
        for feature in features:
            feature.link(feature.size, is_last=feature is features[-1])
            self.add(offset, feature)
            offset += feature.size

    def read(self, offset: int, size: int) -> int:
        """The value of a register, or of a part of one."""
        feature, register, shift = self._find(offset)
        value = feature.read(register) if feature else 0
        return value >> shift & (1 << 8 * size) - 1

    def write(self, offset: int, size: int, value: int) -> None:
        """Write a register, or a part of one."""
        feature, register, shift = self._find(offset)
        if feature is not None:
            mask = (1 << 8 * size) - 1 << shift
            kept = feature.read(register) & ~mask if size < 8 else 0
            feature.write(register, kept | value << shift)

    def _find(self, offset: int) -> tuple[Feature | None, int, int]:
        for start, feature in self._features:
            if start <= offset < start + feature.size:
                register = offset - start & ~7
                return feature, register, (offset - start - register) * 8
        return None, 0, 0


class DflCard:
    """A card, with its features for those who change them."""

    def __init__(self, value: DflCardValue) -> None:
        self.value = value
        extended = (
            vendor_specific(_DFL_VSEC, struct.pack("<II", 1, _ONE_LIST_AT))
            if value.is_one_list
            else b""
        )
        bars = {value.port_bar: _BAR_SIZE, 0: _BAR_SIZE}
        self.function = PciFunction(INTEL, value.device, value.subsystem, bars, extended=extended)
        self.power_up()

    def power_up(self) -> None:
        """Be as after power-up: all registers, and nothing is wrong any more."""
        value = self.value
        self.ports = [Port(*each, value.port_revision) for each in enumerate(value.afu_ids)]
        self.engine = Engine(len(self.ports))
        self.thermal, self.power = Thermal(), Power()
        self.errors = EngineErrors()
        self.reconfiguration = Reconfiguration(value.interface_id, self.ports)
        engine = [
            self.engine,
            *((self.thermal, self.power) if value.measures else ()),
            self.errors,
            self.reconfiguration,
            *map(Feature, value.others),
        ]
        bars = {number: Bar() for number in {0, value.port_bar}}
        for number, port in enumerate(self.ports):
            features = [port, port.errors, *map(Feature, value.port_features)]
            offset = _PORTS_AT + number * _PORT_SIZE
            if port.afu is not None:
                port.registers[_NEXT_AFU] = _AFU_AT
                port.afu.link(0, is_last=True)
                bars[value.port_bar].add(offset + _AFU_AT, port.afu)
            if value.is_one_list:
                self.engine.place_port(number, _IN_THE_LIST, 0)
                engine += features
            else:
                self.engine.place_port(number, value.port_bar, offset)
                bars[value.port_bar].add_list(offset, features)
        bars[0].add_list(_ONE_LIST_AT if value.is_one_list else 0, engine)
        self.function.put_behind(bars)
