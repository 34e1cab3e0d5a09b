"""ResourceClaimTemplates from a short YAML: bundles, alternatives and shares, without CEL."""

import json
from collections.abc import Iterator
from itertools import chain, count
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from accelbind.dra.classes import Manifest
from accelbind.dra.objects import TEMPLATE
from services.devices.dra import API_VERSION
from services.mappings.accelerator import DNS_NAME, problem
from services.process.errors import InvalidManifest

_MOST: Final = 32
"""Requests of a claim, and devices of an allocation."""

_Class = Annotated[str, Meta(max_length=253, pattern=rf"^{DNS_NAME}\Z")]
_Attribute = Annotated[str, Meta(pattern=rf"^{DNS_NAME}/[A-Za-z_][A-Za-z0-9_]{{0,31}}\Z")]
_Value: TypeAlias = (
    Annotated[str, Meta(max_length=64)] | bool | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
)
"""As attributes of devices have them."""
_Capacity = Annotated[
    str, Meta(max_length=286, pattern=rf"^({DNS_NAME}/)?[A-Za-z_][A-Za-z0-9_]{{0,31}}\Z")
]
_Quantity = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i)?\Z")]


_Amount = Annotated[int, Meta(ge=0)]


class _Share(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    capacity: Annotated[dict[_Capacity, _Quantity | _Amount], Meta(min_length=1)]


class _Devices(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"of": "class"}):
    """Devices of a class, or alternatives of which the first that fits is used."""

    of: _Class = ""
    count: Annotated[int, Meta(ge=1, le=_MOST)] = 1
    where: dict[_Attribute, _Value] = {}
    """Attributes that they must have."""
    share: _Share | None = None
    prefer: Annotated[tuple["_Devices", ...], Meta(max_length=8)] = ()

    def __post_init__(self) -> None:
        if bool(self.of) == bool(self.prefer):
            raise ValueError("exactly one of class and prefer must be set")
        if self.prefer and (self.count > 1 or self.where or self.share):
            raise ValueError("count, where and share belong to the entries of prefer")
        if any(each.prefer for each in self.prefer):
            raise ValueError("prefer can't be within prefer")

    @property
    def most(self) -> int:
        """The number of devices, of the largest alternative."""
        return max((each.count for each in self.prefer), default=self.count)

    def as_request(self) -> Manifest:
        """The request, without its name."""
        if self.prefer:
            named = zip(_names([each.of for each in self.prefer]), self.prefer, strict=True)
            return {"firstAvailable": [{"name": name, **each.of_class()} for name, each in named]}
        return {"exactly": self.of_class()}

    def of_class(self) -> Manifest:
        """The devices of its class, as a request or an alternative has them."""
        request: Manifest = {"deviceClassName": self.of}
        if self.where:
            terms = " && ".join(_term(name, value) for name, value in self.where.items())
            request["selectors"] = [{"cel": {"expression": terms}}]
        if self.count > 1:
            request["count"] = self.count
        if self.share:
            amounts = {name: str(amount) for name, amount in self.share.capacity.items()}
            request["capacity"] = {"requests": amounts}
        return request


class Bundle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The devices of a claim, and an attribute whose value all of them have."""

    devices: Annotated[tuple[_Devices, ...], Meta(min_length=1, max_length=_MOST)]
    together: _Attribute = ""

    def __post_init__(self) -> None:
        total = sum(each.most for each in self.devices)
        if total > _MOST:
            raise ValueError(f"a claim has at most {_MOST} devices, and these are {total}")
        if self.together and total == 1:
            raise ValueError("together needs more than one device")


def read_bundle(document: object) -> Iterator[Bundle]:
    """Yield the bundle that a document describes.

    Raises:
        InvalidManifest: It describes none; the message names the field.
    """
    try:
        yield msgspec.convert(document, Bundle)
    except msgspec.ValidationError as error:
        raise InvalidManifest(problem(error, "bundle")) from error


def bundle_template(bundle: Bundle, name: str, namespace: str) -> Manifest:
    """A ResourceClaimTemplate for a bundle."""
    names = _names([each.of or "any" for each in bundle.devices])
    devices: Manifest = {
        "requests": [
            {"name": name, **each.as_request()}
            for name, each in zip(names, bundle.devices, strict=True)
        ]
    }
    if bundle.together:
        devices["constraints"] = [{"requests": names, "matchAttribute": bundle.together}]
    return {
        "apiVersion": API_VERSION,
        "kind": TEMPLATE,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"spec": {"devices": devices}},
    }


def _names(classes: list[str]) -> list[str]:
    """Different names of requests, after the first label of their classes."""
    names: list[str] = []
    for each in classes:
        label = each.partition(".")[0][:60].rstrip("-")
        numbered = (f"{label}-{n}" for n in count(2))
        names.append(next(name for name in chain([label], numbered) if name not in names))
    return names


def _term(attribute: str, value: _Value) -> str:
    domain, _, name = attribute.rpartition("/")
    place = f'device.attributes["{domain}"]'
    # A device without the attribute would keep the pod from being scheduled at all. A field could
    # have the name of a word of CEL, such as `in`; a key can.
    text = json.dumps(value, ensure_ascii=False)
    return f'"{name}" in {place} && {place}["{name}"] == {text}'
