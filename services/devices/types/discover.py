"""A node's devices in sysfs: PCI functions, USB devices, class entries, and paths.

Listings and ids come from the kernel's bus code; attributes and `uevent` files may run a driver's
code and hang, so the caller reads them in a step of their own (`services.process.blocking`).
"""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache, cached_property, partial
from typing import Final

from services.devices.hardware.pci import DEVICES, address_in, found_node, read_group
from services.devices.hardware.sysfs import Sysfs
from services.devices.health import Failure, Reading
from services.devices.nodes import FoundNode, described_node
from services.devices.types.facts import Subject, last_step, read_fact
from services.devices.types.model import Term
from services.names import by_number

USB_DEVICES: Final = "/sys/bus/usb/devices"
_USB_NAME: Final = re.compile(r"\d+-\d+(?:\.\d+)*")
# Devices on I2C have such names too.
_USB_FOLDER: Final = re.compile(rf"(?P<folder>.*/usb\d+(?:/{_USB_NAME.pattern})+)(?:/.*)?")
_HOPS: Final = frozenset({"device", "physfn"})
_ABSENT: Final = Reading(failure=Failure.MISSING, detail="no such file")


class SysTree:
    """The devices below a root, as one scan reads them."""

    def __init__(self, files: Sysfs) -> None:
        self.files = files
        self._of_class = cache(self._list_class)
        self._nodes_below = cache(self._list_nodes)
        # Each attribute is read when it is first asked for, and once.
        self.facts = cache(lambda subject: cache(partial(read_fact, files, subject)))
        self.group = cache(partial(read_group, files))

    def subjects(self, term: Term) -> list[Subject]:
        """The devices that a term may be about, in a stable order."""
        if term.class_:
            entries = self._of_class(term.class_.name)
            # No driver can have a virtual device, such as a console.
            return [each for each in entries if each.owner or not term.class_.driver]
        if term.path:
            return [each for path in term.path for each in self._paths(path)]
        return self._usb_devices if term.usb else self.functions

    @cached_property
    def functions(self) -> list[Subject]:
        """The functions on the PCI bus."""
        return [
            Subject(name, folder, "pci", pci=folder)
            for name, folder in self._listed(DEVICES)
            if address_in(folder)[0] == name
        ]

    @cached_property
    def _usb_devices(self) -> list[Subject]:
        return [
            Subject(name, folder, "usb", usb=folder)
            for name, folder in self._listed(USB_DEVICES)
            if _USB_NAME.fullmatch(name)
        ]

    def class_names(self) -> list[str]:
        """The classes of devices."""
        return sorted(self.files.names_if_listable("/sys/class"))

    def classes_of(self, owner: str) -> list[str]:
        """The classes in which a PCI function or a USB device has entries."""
        return [
            name
            for name in self.class_names()
            if any(each.owner == owner for each in self._of_class(name))
        ]

    def is_entry(self, subject: Subject) -> bool:
        """Whether a device is an entry of a class: some are on a bus of their own instead."""
        return any(each.folder == subject.folder for each in self._of_class(subject.subsystem))

    def node_names(self, folder: str) -> list[str]:
        """The names in /dev, or in a folder below it."""
        return self._nodes_below(folder)

    def _list_class(self, name: str) -> list[Subject]:
        place = f"/sys/class/{name}"
        entries = [
            (entry, folder)
            for entry, folder in self._listed(place)
            # Beside entries there may be files, such as drm/version.
            if folder != f"{place}/{entry}" or self.files.names_if_listable(folder)
        ]
        parts = self._parts_of_entries([folder for _, folder in entries])
        return [
            Subject(entry, folder, name, *self._owners(folder))
            for entry, folder in entries
            if folder not in parts
        ]

    def _parts_of_entries(self, folders: Sequence[str]) -> set[str]:
        """The entries of a class that are no devices, of entries with others below them.

        Those below are devices if they have nodes, such as the events of an input or the streams
        of a sound card; connectors of a GPU have none.
        """
        above = {each: each.rpartition("/")[0] for each in folders}
        below = {each for each in folders if above[each] in above}
        devices = {each for each in below if self._has_node(each)}
        return below - devices | {
            above[each] for each in devices if not self._has_node(above[each])
        }

    def _has_node(self, folder: str) -> bool:
        return "dev" in self.files.names_if_listable(folder)

    def _owners(self, folder: str) -> tuple[str, str, str]:
        """The folders of what a class entry is part of: a PCI function, a USB device or another."""
        device, usb = folder, _USB_FOLDER.fullmatch(folder)
        if not usb and not address_in(folder)[0]:  # of a platform, or virtual
            device = self.files.resolve(f"{folder}/device") or self._parent(folder)
            usb = _USB_FOLDER.fullmatch(device)
        if usb:
            return "", usb["folder"], ""
        function = address_in(device)[1]
        return function, "", "" if function else device

    def _parent(self, folder: str) -> str:
        """The folder of the device above one that is on a bus, such as a GPIO chip, if any."""
        parent = folder.rpartition("/")[0]
        return parent if self.files.link(f"{parent}/subsystem") else ""

    def _listed(self, folder: str) -> list[tuple[str, str]]:
        names = filter(str.isprintable, self.files.names_if_listable(folder))
        entries = (
            (name, self.files.resolve(f"{folder}/{name}")) for name in sorted(names, key=by_number)
        )
        return [(name, there) for name, there in entries if there]

    def _paths(self, pattern: str) -> list[Subject]:
        """The nodes that a pattern matches."""
        below = [""]
        for step in pattern.removeprefix("/dev/").split("/"):
            below = [
                f"{folder}/{name}" if folder else name
                for folder in below
                for name in self._nodes_below(folder)
                if fnmatchcase(name, step)
            ]
        places = [self._path(each) for each in below]
        # sysfs need not know one that is named in full.
        return [each for each in places if each.folder or "*" not in pattern]

    def _list_nodes(self, folder: str) -> list[str]:
        there = self.files.resolve(f"/dev/{folder}")
        return sorted(self.files.names_if_listable(there), key=by_number) if there else []

    def _path(self, name: str) -> Subject:
        number = self.files.node_number(name)
        known = self.files.resolve(f"/sys/dev/char/{number[0]}:{number[1]}") if number else None
        return self._at(known) if known else Subject(name)

    def _at(self, folder: str) -> Subject:
        subsystem = last_step(self.files.link(f"{folder}/subsystem"))
        # By the kernel's name: a device keeps its id, whichever link to its node a type names.
        return Subject(last_step(folder), folder, subsystem, *self._owners(folder))

    def with_node(self, name: str) -> Subject | None:
        """The device that says that it has a node, also in a copy of sysfs without nodes."""
        return next((each for each, node in self._with_nodes() if node == name), None)

    def nodes_on_bus(self, owner: str) -> list[str]:
        """The nodes of devices on a bus of their own that are part of a device."""
        classes = self.class_names()
        return sorted(
            node
            for each, node in self._with_nodes()
            if each.owner == owner and each.subsystem not in classes and each.folder != owner
        )

    def _with_nodes(self) -> Iterator[tuple[Subject, str]]:
        place = "/sys/dev/char"
        for number in self.files.names_if_listable(place):
            if folder := self.files.resolve(f"{place}/{number}"):
                yield self._at(folder), described_node(self.files.text(f"{folder}/uevent"))[0]

    # Attributes ----------------------------------------------------------------------------------

    def attribute(self, subject: Subject, path: str) -> Reading:
        """A file of a device; it may hang."""
        folder = subject.folder
        if not folder:
            return _ABSENT
        *steps, last = path.split("/")
        for step in steps:
            below = self._step(folder, step)
            if isinstance(below, Reading):
                return below
            folder = below
        file = self._named(folder, last)
        return file if isinstance(file, Reading) else self.files.read(file)

    def _step(self, folder: str, step: str) -> str | Reading:
        """The folder one step on; only two links of a device are followed."""
        path = self._named(folder, step)
        if isinstance(path, Reading) or not self.files.link(path):
            return path
        target = self.files.resolve(path) if step in _HOPS else None
        if target is None or not target.startswith("/sys/"):
            return Reading(failure=Failure.UNREADABLE, detail=f"{step} is a link that leads away")
        return target

    def _named(self, folder: str, step: str) -> str | Reading:
        """The one thing that a step stands for."""
        if "*" not in step:
            return f"{folder}/{step}"
        matches = [each for each in self.files.names_if_listable(folder) if fnmatchcase(each, step)]
        if len(matches) == 1:
            return f"{folder}/{matches[0]}"
        text = f"{step} matches {len(matches)} names"
        return Reading(failure=Failure.UNREADABLE if matches else Failure.MISSING, detail=text)

    # Nodes ---------------------------------------------------------------------------------------

    def nodes_of_class(self, subject: Subject, name: str) -> list[tuple[str, FoundNode]]:
        """The nodes of a class that a device has, with the entries' names."""
        if not subject.owner:
            return []
        entries = [each for each in self._of_class(name) if each.owner == subject.owner]
        found = ((each.name, self.own_node(each)) for each in entries)
        return [(entry, node) for entry, node in found if node.name]  # networks have none

    def own_node(self, subject: Subject) -> FoundNode:
        """The node of a class entry, a USB device or a path."""
        if subject.folder:
            name, number = described_node(self.files.text(f"{subject.folder}/uevent"))
        else:
            name, number = subject.name, self.files.node_number(subject.name)
        return found_node(self.files, name, number, subject.subsystem)
