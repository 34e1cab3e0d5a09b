"""Whether a device is of a type: terms are alternatives, the fields of a term must all hold.

A `Fact` gives a device's attribute, None where it has none, or why it can't be read. It is called
only for what decides, since each answer may be a read.
"""

from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Final, TypeAlias

from services.devices.model import Value
from services.devices.types.model import Condition, Term
from services.process.problem import Problem
from services.process.text import listing, quote

_IDENTITY: Final = frozenset({"vendorID", "deviceID", "subsystemID", "pciClass"})
"""Attributes that a device keeps: one with others is not near."""
KnownValue: TypeAlias = Value | Problem | None
Fact: TypeAlias = Callable[[str], KnownValue]


def mismatch(terms: Iterable[Term], fact: Fact) -> str | None:
    """None if a term holds, else what of a device that a term names doesn't fit.

    It is empty if no term names the device.
    """
    nearest = ""
    for term in terms:
        if is_named(term, fact):
            why = next(_failing(term, fact), None)
            if why is None:
                return None
            nearest = nearest or why
    return nearest


def is_named(term: Term, fact: Fact) -> bool:
    """Whether a device is what a term names, whatever its driver, its state and its serial."""
    # Reading a serial number waits for the device's lock, as long as somebody has that.
    return next(differences(term, fact), None) is None


def differences(term: Term, fact: Fact) -> Iterator[str]:
    """Yield what a device has otherwise than a term names it, as `pciClass 020000, not 12*`."""
    for name, patterns in _fields(term):
        value = fact(name)
        if patterns and not _fits(value, patterns):
            yield f"{name} {value or 'none'}, not {listing(patterns, last='or')}"
    wanted = term.pci.virtual_function if term.pci else None
    if wanted is not None and bool(fact("virtualFunction")) is not wanted:
        yield f"virtualFunction {_shown(not wanted)}, not {_shown(wanted)}"
    for condition in term.where:
        if condition.attribute in _IDENTITY and (
            why := unmet(condition, fact(condition.attribute))
        ):
            yield why


def _fits(value: KnownValue, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(str(value or ""), each) for each in patterns)


def _failing(term: Term, fact: Fact) -> Iterator[str]:
    """Yield which serial number, driver or state of a device does not fit."""
    serials = term.usb.serial if term.usb else ()
    serial = fact("usbSerial") if serials else None
    if serials and not _fits(serial, serials):
        has = quote(serial) if isinstance(serial, str) else "none"
        yield f"its serial number is {has}, not {listing(serials, last='or')}"
    drivers = (term.pci.driver if term.pci else ()) + (term.class_.driver if term.class_ else ())
    driver = fact("kernelDriver") if drivers else None
    if drivers and not _fits(driver, drivers):
        yield f"it is bound to {driver or 'no driver'}, not to {listing(drivers, last='or')}"
    for condition in term.where:
        why = unmet(condition, fact(condition.attribute))
        if why:
            yield why


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


def unmet(condition: Condition, value: KnownValue) -> str:
    """Why a condition does not hold; empty if it does."""
    if condition.glob is not None:
        if isinstance(value, str) and fnmatchcase(value, condition.glob):
            return ""
        wanted = condition.glob
    elif condition.limits:
        low, high = condition.min_, condition.max_
        # A bool is none of these.
        if type(value) is int and (
            (low is None or value >= low) and (high is None or value <= high)
        ):
            return ""
        wanted = _range(low, high)
    else:
        values = [value for _, value in condition.values()]
        if any(value == each and type(value) is type(each) for each in values):
            return ""
        wanted = listing([_shown(each) for each in values], last="or")
    actual = _shown(value) if isinstance(value, Value) else "missing"
    return f"{condition.attribute} is {actual}, not {wanted}"


def _range(low: int | None, high: int | None) -> str:
    if low is None:
        return f"at most {high}"
    return f"at least {low}" if high is None else f"from {low} to {high}"


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return quote(value) if isinstance(value, str) else str(value)
