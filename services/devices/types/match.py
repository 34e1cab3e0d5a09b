"""Whether a device is of a type: terms are alternatives, the fields of a term must all hold.

`fact` gives a device's attribute, None where it has none. It is called only for what decides, since
each answer may be a read.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeAlias

from services.devices.model import Value
from services.devices.types.model import Condition, Term
from services.process.text import listing, quote

Fact: TypeAlias = Callable[[str], Value | None]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first field of a term that does not hold."""

    message: str
    is_near: bool
    """Whether the device is what the term names, and only its driver or its state is another."""


def mismatch(terms: Iterable[Term], fact: Fact) -> Mismatch | None:
    """None if a term holds, else why the nearest does not."""
    nearest: Mismatch | None = None
    for term in terms:
        found = next(_failing(term, fact), None)
        if found is None:
            return None
        if nearest is None or (found.is_near and not nearest.is_near):
            nearest = found
    return nearest or Mismatch("no term is about it", is_near=False)


def is_named(term: Term, fact: Fact) -> bool:
    """Whether a device is what a term names, whatever its driver, its state and its serial number.

    Reading a serial number waits for the device's lock, as long as somebody has that.
    """
    return next(_unlike(term, fact), None) is None


def _failing(term: Term, fact: Fact) -> Iterator[Mismatch]:
    """Yield what does not hold; what identifies the device comes first."""
    yield from _unlike(term, fact)
    serials = term.usb.serial if term.usb else ()
    serial = str(fact("usbSerial") or "") if serials else ""
    if serials and not any(fnmatchcase(serial, each) for each in serials):
        yield Mismatch(f"usbSerial is {quote(serial)}", is_near=False)
    drivers = (term.pci.driver if term.pci else ()) + (term.class_.driver if term.class_ else ())
    driver = str(fact("kernelDriver") or "") if drivers else ""
    if drivers and not any(fnmatchcase(driver, each) for each in drivers):
        bound = f"it is bound to {driver}" if driver else "it is bound to no driver"
        yield Mismatch(f"{bound}, not to {listing(drivers, last='or')}", is_near=True)
    for condition in term.where:
        why = unmet(condition, fact(condition.attribute))
        if why:
            yield Mismatch(why, is_near=True)


def _unlike(term: Term, fact: Fact) -> Iterator[Mismatch]:
    """Yield which parts of a device's identity are others."""
    for name, patterns in _fields(term):
        value = str(fact(name) or "") if patterns else ""
        if patterns and not any(fnmatchcase(value, each) for each in patterns):
            yield Mismatch(f"{name} is {quote(value)}", is_near=False)
    wanted = term.pci.virtual_function if term.pci else None
    if wanted is not None and bool(fact("virtualFunction")) is not wanted:
        yield Mismatch(f"it is {'no' if wanted else 'a'} virtual function", is_near=False)


def _fields(term: Term) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the attributes that identify a device, each with its alternatives."""
    if term.class_:
        yield "class", (term.class_.name,)
        yield "kernelName", term.class_.entry
    if term.pci:
        yield "vendorID", term.pci.vendor
        yield "deviceID", term.pci.device
        yield "subsystemID", term.pci.subsystem
        yield "pciClass", tuple(f"{each}*" for each in term.pci.class_)
    if term.usb:
        yield "vendorID", term.usb.vendor
        yield "deviceID", term.usb.product


def unmet(condition: Condition, value: Value | None) -> str:
    """Why a condition does not hold; empty if it does."""
    if condition.glob is not None:
        if isinstance(value, str) and fnmatchcase(value, condition.glob):
            return ""
        wanted = condition.glob
    else:
        values = condition.values()
        if any(value == each and type(value) is type(each) for each in values):
            return ""
        wanted = listing([_shown(each) for each in values], last="or")
    actual = "missing" if value is None else _shown(value)
    return f"{condition.attribute} is {actual}, not {wanted}"


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return quote(value) if isinstance(value, str) else str(value)
