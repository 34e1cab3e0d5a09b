"""A scheduler's choice of devices for requests of DRA: first-fit, in the order of the slices."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from simulator.apiserver.crd import compile_expression

Json = dict[str, Any]
_DOMAINS = re.compile(r'attributes\["([^"]+)"\]')


@dataclass(frozen=True)
class Published:
    """A device as its driver publishes it."""

    driver: str
    spec: Json

    def fits(self, expression: str) -> bool:
        """The value of a selector; a domain that the device lacks is empty."""
        attributes: dict[str, Json] = {domain: {} for domain in _DOMAINS.findall(expression)}
        for name, value in (self.spec.get("attributes") or {}).items():
            domain, slash, short = name.rpartition("/")
            (found,) = value.values()
            attributes.setdefault(domain if slash else self.driver, {})[short] = found
        device = {"driver": self.driver, "attributes": attributes, "capacity": {}}
        return compile_expression(expression).holds({"device": device})


class Allocator:
    """Devices that are free, and the classes that select them."""

    def __init__(self, devices: Iterable[Published], classes: Iterable[Json]) -> None:
        self._free = [each for each in devices if not each.spec.get("taints")]
        self._classes = {each["metadata"]["name"]: each["spec"] for each in classes}

    def requested(self, resource: str, count: int = 1) -> list[str] | None:
        """The devices for the resource of a class; None if there are too few."""
        (name,) = (
            name
            for name, spec in self._classes.items()
            if spec.get("extendedResourceName") == resource
        )
        request = {"name": "r", "exactly": {"deviceClassName": name, "count": count}}
        return self.allocated({"requests": [request]})

    def allocated(self, devices: Json) -> list[str] | None:
        """The devices for a claim's request, each with the alternative that it satisfies."""
        (request,) = devices["requests"]
        for name, wanted in _alternatives(request):
            found = [*islice(self._fitting(wanted), wanted.get("count", 1))]
            if len(found) == wanted.get("count", 1):
                self._free = [each for each in self._free if each not in found]
                return [f"{each.spec['name']} ({name})" for each in found]
        return None

    def _fitting(self, wanted: Json) -> Iterator[Published]:
        of_class = self._classes[wanted["deviceClassName"]].get("selectors") or []
        selectors = [*of_class, *(wanted.get("selectors") or [])]
        for each in self._free:
            if all(each.fits(one["cel"]["expression"]) for one in selectors):
                yield each


def _alternatives(request: Json) -> Iterator[tuple[str, Json]]:
    if "exactly" in request:
        yield request["name"], request["exactly"]
    for each in request.get("firstAvailable") or []:
        yield f"{request['name']}/{each['name']}", each
