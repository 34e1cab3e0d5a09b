"""DeviceClasses and ResourceClaimTemplates for mappings, device types and regions, as values.

A class serves pods that request a resource: its `extendedResourceName`.

| For | Class | Resource | Parameters |
|---|---|---|---|
| a function in mode `af` | `af-…` | `fpga.intel.com/af-…` | the function, which must be there |
| functions in mode `region` | `region-<interface>` | `fpga.intel.com/region-…` | none |
| regions in mode `regiondevel` | `develop-<interface>` | as above, if no class has it | `develop` |
| a device type | `<type>.accelbind.dev` | that of the type | none |
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from services.devices.dra import API_VERSION, DRIVER, FPGA, PROGRAM_DIGITS
from services.devices.types.model import DeviceType
from services.kube.objects import LABELS
from services.mappings.model import Mapping, Mode
from services.names import DOMAIN, function_name, region_name
from services.process.errors import InvalidSettings
from services.process.text import clip

NAMES: Final = f"{DRIVER}/mappings"
"""The annotation of a class with the mappings that it is for."""

_MAX_NAMES: Final = 2000
_HASH: Final = 26
AF_CLASS: Final = re.compile(f"af-[0-9a-f]{{3}}-[0-9a-f]{{3}}-[a-z2-7]{{{_HASH}}}")
"""The name of a class for a function in mode af."""
TYPE_CLASS: Final = f".{DRIVER}"
"""The end of the name of a device type's class."""
_STARTS: Final = {Mode.REGION: "region", Mode.REGIONDEVEL: "develop"}
"""Of the name of a class for all regions of an interface."""
_INTERFACE: Final = re.compile(r"[0-9a-f]{8,32}")

Manifest: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class FpgaClass:
    """Subject of a class of FPGAs."""

    mode: Mode
    interface_id: str
    afu_id: str = ""
    """The function that must be there, in mode af."""

    @classmethod
    def of(cls, mapping: Mapping) -> "FpgaClass | None":
        """The class for a mapping; None unless it is about an FPGA."""
        to = mapping.resolution
        if to.mode is None:
            return None
        return cls(to.mode, to.interface_id, (to.afu_id or "") if to.mode is Mode.AF else "")

    @classmethod
    def of_region(cls, name: str) -> "FpgaClass | None":
        """The class with this name; None if it isn't one of all regions of an interface."""
        start, _, interface = name.partition("-")
        modes = [mode for mode, each in _STARTS.items() if each == start]
        return cls(modes[0], interface) if modes and _INTERFACE.fullmatch(interface) else None

    @property
    def name(self) -> str:
        """Its name."""
        # Resources and quotas may have it in their names: at most 63 characters.
        if self.mode is Mode.AF:
            digest = hashlib.sha256(f"{self.interface_id}|{self.afu_id}".encode()).digest()
            code = base64.b32encode(digest).decode().lower()[:_HASH]
            return f"af-{self.interface_id[:3]}-{self.afu_id[:3]}-{code}"
        return f"{_STARTS[self.mode]}-{self.interface_id}"

    @property
    def resource(self) -> str:
        """The resource that pods request."""
        if self.mode is Mode.AF:
            return f"{DOMAIN}/{function_name(self.interface_id, self.afu_id)}"
        return f"{DOMAIN}/{region_name(self.interface_id)}"

    @property
    def terms(self) -> list[str]:
        """Terms that its devices satisfy."""
        terms = [_is("interfaceID", self.interface_id)]
        if self.mode is Mode.AF:
            return [*terms, _carries(self.afu_id)]
        return [*terms, _attribute("programmable")] if self.mode is Mode.REGION else terms

    @property
    def parameters(self) -> Manifest:
        """Parameters for the driver; empty if there are none."""
        if self.mode is Mode.AF:
            return {"afu": self.afu_id, "program": "Never"}
        return {"develop": True} if self.mode is Mode.REGIONDEVEL else {}


def fpga_classes(wanted: Iterable[tuple[FpgaClass, str]]) -> Iterator[Manifest]:
    """Yield the DeviceClasses that are wanted, each by mappings with these names."""
    names: dict[FpgaClass, list[str]] = {}
    for each, name in wanted:
        names.setdefault(each, []).append(name)
    programmed = {each.interface_id for each in names if each.mode is Mode.REGION}
    for each in sorted(names):
        # A resource belongs to one class: pods that request a region have it programmed.
        is_programmed_too = each.mode is Mode.REGIONDEVEL and each.interface_id in programmed
        yield _class(
            each.name,
            _selector(FPGA, *each.terms),
            resource="" if is_programmed_too else each.resource,
            parameters=each.parameters,
            names=sorted(filter(None, names[each])),
        )


def type_class(of: DeviceType) -> Manifest:
    """The DeviceClass of a device type."""
    return _class(f"{of.name}{TYPE_CLASS}", _selector(of.name), resource=of.resource)


def _class(
    name: str,
    selector: Manifest,
    *,
    resource: str,
    parameters: Manifest | None = None,
    names: Iterable[str] = (),
) -> Manifest:
    metadata: Manifest = {"name": name, "labels": LABELS}
    about = ", ".join(names)
    if about:
        metadata["annotations"] = {NAMES: clip(about, _MAX_NAMES)}
    spec: Manifest = {"selectors": [selector]}
    if parameters:
        spec["config"] = [opaque(parameters)]
    if resource:
        spec["extendedResourceName"] = resource
    return {"apiVersion": API_VERSION, "kind": "DeviceClass", "metadata": metadata, "spec": spec}


def claim_template(mapping: Mapping) -> Manifest:
    """A ResourceClaimTemplate for a mapping.

    Raises:
        InvalidSettings: The mapping isn't about an FPGA.
    """
    of = FpgaClass.of(mapping)
    if of is None:
        raise InvalidSettings(
            f"{mapping.label} stands for {mapping.resolution.resource}, which has no function:"
            " request the name as a resource"
        )
    request: Manifest = {"name": FPGA}
    if of.mode is Mode.REGION:
        request["firstAvailable"] = [*_alternatives(of.name, mapping.resolution.afu_id or "")]
    else:
        request["exactly"] = {"deviceClassName": of.name}
    config = [{"requests": [FPGA], **opaque({"mapping": mapping.name})}]
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": mapping.name, "namespace": mapping.namespace},
        "spec": {"spec": {"devices": {"requests": [request], "config": config}}},
    }


def _alternatives(class_name: str, afu_id: str) -> Iterator[Manifest]:
    """Yield what is best first: no work, nothing lost, any region."""
    blank = f"{_is('afuID', '')} && {_is('program', '')}"
    for name, terms in (("loaded", [_carries(afu_id)]), ("blank", [blank]), ("any", [])):
        wanted: Manifest = {"name": name, "deviceClassName": class_name}
        if terms:
            wanted["selectors"] = [_selector(FPGA, *terms)]
        yield wanted


def opaque(parameters: Manifest) -> Manifest:
    """A configuration of a class or claim, for our driver."""
    return {"opaque": {"driver": DRIVER, "parameters": parameters}}


def _selector(kind: str, *terms: str) -> Manifest:
    # Driver and type first: where a selector names an attribute that a device lacks, CEL fails, and
    # the pod is not scheduled on any node. A false term prevents that.
    expression = " && ".join((f'device.driver == "{DRIVER}"', _is("type", kind), *terms))
    return {"cel": {"expression": expression}}


def _carries(function: str) -> str:
    return _is("program" if len(function) == PROGRAM_DIGITS else "afuID", function)


def _is(name: str, value: str) -> str:
    return f'{_attribute(name)} == "{value}"'


def _attribute(name: str) -> str:
    return f'device.attributes["{DRIVER}"].{name}'
