"""Why a device type matches nothing on a node: the nearest device that it doesn't name.

Only ids, links and listings are read, which no driver's code answers.
"""

import difflib
from collections.abc import Iterable, Iterator
from fnmatch import filter as fnfilter
from typing import Final

from services.devices.types.discover import SysTree
from services.devices.types.facts import Subject
from services.devices.types.match import differences, is_named
from services.devices.types.model import DeviceType, Term
from services.process.text import listing, quote

_SHOWN = 4
MATCHES_NOTHING: Final = "matches nothing"


def find_misses(tree: SysTree, types: Iterable[DeviceType]) -> Iterator[str]:
    """Yield why types name nothing of a node, a sentence each."""
    for each in types:
        terms = each.spec.match
        if any(is_named(term, tree.facts(one)) for term in terms for one in tree.subjects(term)):
            continue
        reasons = [*dict.fromkeys(_why(tree, term) for term in terms)]
        near = [text for text, is_near in reasons if is_near]
        shown = near or [text for text, _ in reasons]
        yield f"device type {each.name} {MATCHES_NOTHING}: {'; '.join(shown[:_SHOWN])}"


def _why(tree: SysTree, term: Term) -> tuple[str, bool]:
    if term.path:
        for each in tree.subjects(term):
            return f"of {each.name}, {listing([*differences(term, tree.facts(each))])}", True
        return _of_paths(tree, term.path)
    texts, is_near = [], False
    if term.class_:
        text, is_near = _of_class(tree, term)
        texts.append(text)
    if term.pci or term.usb:
        text, has_device = _of_bus(tree, term)
        if not term.class_ or has_device:
            texts.append(text)
        is_near = is_near or has_device
    return "; ".join(texts), is_near


def _of_paths(tree: SysTree, paths: Iterable[str]) -> tuple[str, bool]:
    wanted = [path.removeprefix("/dev/") for path in paths]
    for name in wanted:
        folder, _, pattern = name.rpartition("/")
        for each in fnfilter(tree.node_names(folder), pattern):
            there = f"/dev/{folder}/{each}" if folder else f"/dev/{each}"
            return f"sysfs does not know {there}, so no pattern matches it: name it in full", True
    near = [close for name in wanted for close in _near_nodes(tree, name)]
    text = f"no {listing([f'/dev/{name}' for name in wanted], most=_SHOWN, last='or')}"
    also = f"; there is {listing([f'/dev/{name}' for name in near], most=_SHOWN)}" if near else ""
    return f"{text}{also}", bool(near)


def _near_nodes(tree: SysTree, wanted: str) -> list[str]:
    """The nearest name in the folder of a node, or beside that."""
    folder, _, name = wanted.rpartition("/")
    names = tree.node_names(folder)
    close = difflib.get_close_matches(name.replace("*", ""), names, n=1)
    if folder and not close:
        return _near_nodes(tree, folder)
    return [f"{folder}/{each}" if folder else each for each in close]


def _of_class(tree: SysTree, term: Term) -> tuple[str, bool]:
    name, wanted = (term.class_.name, term.class_.entry) if term.class_ else ("", ())
    entries = tree.subjects(Term(class_=term.class_))
    if entries:
        likeness = {
            each: max([_likeness(each.name, of) for of in wanted], default=0.0) for each in entries
        }
        nearest = sorted(entries, key=likeness.__getitem__, reverse=True)
        shown = listing([_described(tree, each) for each in nearest], most=_SHOWN)
        return f"class {quote(name)} has {shown}", True
    if on_bus := tree.files.names_if_listable(f"/sys/bus/{name}/devices"):
        shown = listing(sorted(on_bus), most=_SHOWN)
        return f"no class {quote(name)}; bus {name} has {shown}: match their nodes by path", True
    close = difflib.get_close_matches(name, tree.class_names(), n=1)
    return f"no class {quote(name)}{f'; there is {quote(close[0])}' if close else ''}", bool(close)


def _likeness(name: str, pattern: str) -> float:
    return difflib.SequenceMatcher(None, name, pattern.replace("*", "")).ratio()


def _of_bus(tree: SysTree, term: Term) -> tuple[str, bool]:
    bus = "PCI" if term.pci else "USB"
    bare = Term(pci=term.pci, usb=term.usb)
    subjects = tree.subjects(bare)
    named = [each for each in subjects if is_named(bare, tree.facts(each))]
    if named:
        first = named[0]
        classes = tree.classes_of(first.owner)
        driver = tree.facts(first)("kernelDriver")
        has = (
            f"has class {listing([*map(quote, classes)], most=_SHOWN)}"
            if classes
            else "has no class"
        )
        bound = f"is bound to {driver}" if driver else "is bound to no driver"
        return f"{bus} {_ids(tree, first)} {has} and {bound}", True
    vendors = (term.pci.vendor if term.pci else ()) or (term.usb.vendor if term.usb else ())
    alike = [each for each in subjects if tree.facts(each)("vendorID") in vendors]
    if alike:
        compared = [(each, [*differences(bare, tree.facts(each))]) for each in alike]
        first, others = min(compared, key=lambda each: len(each[1]))
        if not any(each.startswith("deviceID") for each in others):
            return f"{_described(tree, first)} has {listing(others)}", True
        shown = listing([_described(tree, each) for each in alike], most=_SHOWN)
        return f"of vendor {listing(vendors, last='or')} there is {shown}", True
    of = f" of vendor {listing(vendors, most=_SHOWN, last='or')}" if vendors else " like it"
    return f"no {bus} device{of}", False


def _described(tree: SysTree, subject: Subject) -> str:
    ids = _ids(tree, subject)
    return f"{subject.name} ({ids})" if ids else subject.name


def _ids(tree: SysTree, subject: Subject) -> str:
    fact = tree.facts(subject)
    vendor, device = fact("vendorID"), fact("deviceID")
    return f"{vendor}:{device}" if vendor and device else ""
