"""Which devices of a node a pod's claims get: first-fit, in the order of the slices.

As in `k8s.io/dynamic-resource-allocation/structured`. A request that took its devices does not give
them back to let a later one fit; the README lists what else is left out.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from uuid import uuid4

from services.devices.dra import SHARES
from simulator.apiserver.crd import compile_expression
from simulator.apiserver.resources import Json

Key: TypeAlias = tuple[str, str, str]
_DOMAINS = re.compile(r'(?:attributes|capacity)\["([^"]+)"\]')
_VALUES = ("string", "int", "bool", "version")


@dataclass(frozen=True, slots=True)
class Device:
    driver: str
    pool: str
    spec: Json

    @property
    def key(self) -> Key:
        return self.driver, self.pool, self.spec["name"]

    @property
    def shares(self) -> int:
        """How many shares it has for several claims; 0 if one claim gets it as a whole."""
        is_shared = self.spec.get("allowMultipleAllocations")
        return int(self.spec["capacity"][SHARES]["value"]) if is_shared else 0


@dataclass(frozen=True, slots=True)
class _Choice:
    """The devices of a request, under the name of the alternative."""

    request: str
    class_name: str
    devices: tuple[Device, ...]
    amount: int = 1
    """Shares of each device that has any."""

    def results(self) -> Iterator[Json]:
        for one in self.devices:
            result: Json = {"request": self.request, "driver": one.driver, "pool": one.pool}
            result |= {"device": one.spec["name"]}
            if one.shares:
                result |= {"shareID": str(uuid4()), "consumedCapacity": {SHARES: str(self.amount)}}
            yield result


class Inventory:
    """Slices, classes, and what is allocated to whom."""

    def __init__(
        self, slices: Iterable[Json], classes: Iterable[Json], claims: Iterable[Json]
    ) -> None:
        self.taken: set[Key] = set()
        self.used = Counter[Key]()
        """Shares that claims have."""
        for claim in claims:
            self.take((claim.get("status") or {}).get("allocation"))
        self._slices: dict[str, list[Json]] = {}
        for item in sorted(slices, key=lambda one: str(one["metadata"]["name"])):
            self._slices.setdefault(item["spec"].get("nodeName", ""), []).append(item)
        self._classes = {one["metadata"]["name"]: one for one in classes}
        self._by_resource: dict[str, str] = {}
        for name, one in self._classes.items():
            for resource in (one["spec"].get("extendedResourceName"), _implicit_name(name)):
                self._by_resource.setdefault(resource or "", name)

    def take(self, allocation: Json | None) -> None:
        """Count the devices of a claim's allocation as taken."""
        for result in (allocation or {}).get("devices", {}).get("results") or []:
            key = (result["driver"], result["pool"], result["device"])
            if "shareID" in result:
                self.used[key] += int(result["consumedCapacity"][SHARES])
            else:
                self.taken.add(key)

    def class_of(self, resource: str) -> str:
        """The class that serves an extended resource; empty if there is none."""
        return self._by_resource.get(resource, "") if resource else ""

    def allocate(self, specs: Sequence[Json], node: str) -> list[Json] | None:
        """The `status.allocation` of each of a pod's claims on a node, None if one gets none."""
        devices = list(_devices(self._slices.get(node, ())))
        for parts in itertools.product(*(_matching(spec["devices"], devices) for spec in specs)):
            found = self._allocate(zip(specs, parts, strict=True), node)
            if found is not None:
                return found
        return None

    def _allocate(
        self, specs: Iterable[tuple[Json, Sequence[Device]]], node: str
    ) -> list[Json] | None:
        taken, used, found = set(self.taken), Counter(self.used), []
        for spec, devices in specs:
            choices = []
            for request in spec["devices"].get("requests") or []:
                free = [one for one in devices if one.key not in taken]
                choice = self._choose(request, free, used)
                if choice is None:
                    return None
                taken.update(one.key for one in choice.devices if not one.shares)
                used.update({one.key: choice.amount for one in choice.devices if one.shares})
                choices.append(choice)
            found.append(self._allocation(spec["devices"], choices, node))
        return found

    def _choose(self, request: Json, free: Sequence[Device], used: Counter[Key]) -> _Choice | None:
        for name, wanted in _alternatives(request):  # the first that fits counts
            count = wanted.get("count", 1)
            amount = int((wanted.get("capacity") or {}).get("requests", {}).get(SHARES, 1))
            fitting = (
                one
                for one in free
                if not one.shares or used[one.key] + amount <= one.shares
                if self._fits(wanted, one)
            )
            chosen = itertools.islice(fitting, count)
            choice = _Choice(name, wanted["deviceClassName"], tuple(chosen), amount)
            if len(choice.devices) == count:
                return choice
        return None

    def _allocation(self, spec: Json, choices: Iterable[_Choice], node: str) -> Json:
        results: list[Json] = []
        configs: list[Json] = []
        names = {""}
        for choice in choices:
            results += choice.results()
            names |= {choice.request, choice.request.partition("/")[0]}
            own = self._classes[choice.class_name]["spec"].get("config") or []
            configs += [{"source": "FromClass", "requests": [choice.request]} | one for one in own]
        configs += [
            {"source": "FromClaim"} | one
            for one in spec.get("config") or []
            if names & set(one.get("requests") or [""])
        ]
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        return {"devices": {"results": results, "config": configs}, "nodeSelector": selector}

    def _fits(self, wanted: Json, device: Device) -> bool:
        by_name = self._classes.get(wanted["deviceClassName"])
        if by_name is None:
            return False
        selectors = [*(by_name["spec"].get("selectors") or []), *(wanted.get("selectors") or [])]
        tolerations = wanted.get("tolerations") or []
        return all(_holds(one["cel"]["expression"], device) for one in selectors) and all(
            any(_tolerates(toleration, taint) for toleration in tolerations)
            for taint in device.spec.get("taints") or []
            if taint["effect"] != "None"
        )


def _implicit_name(class_name: str) -> str:
    """The extended resource that every class serves."""
    return f"deviceclass.resource.kubernetes.io/{class_name}"


def _devices(slices: Iterable[Json]) -> Iterator[Device]:
    """The devices of a node in the order of allocation: by pool, slice, and place in the slice."""
    pools: dict[tuple[str, str], list[Json]] = {}
    for item in slices:
        spec = item["spec"]
        pools.setdefault((spec["driver"], spec["pool"]["name"]), []).append(spec)
    for (driver, pool), specs in sorted(pools.items()):
        newest = max(spec["pool"]["generation"] for spec in specs)
        current = [spec for spec in specs if spec["pool"]["generation"] == newest]
        found = [Device(driver, pool, one) for spec in current for one in spec.get("devices") or []]
        # A pool that is being written, or has a name twice, counts for nothing.
        is_complete = len(current) == current[0]["pool"]["resourceSliceCount"]
        if is_complete and len({one.key for one in found}) == len(found):
            yield from found


def _matching(spec: Json, devices: Sequence[Device]) -> Iterator[Sequence[Device]]:
    """The devices that a claim may have: for a constraint, those of one value after the other."""
    wanted = [one["matchAttribute"] for one in spec.get("constraints") or []]
    if not wanted:
        yield devices
        return
    by_values: dict[str, list[Device]] = {}
    for one in devices:
        values = [(one.spec.get("attributes") or {}).get(name) for name in wanted]
        if None not in values:
            by_values.setdefault(str(values), []).append(one)
    yield from by_values.values()


def _alternatives(request: Json) -> Iterator[tuple[str, Json]]:
    """The alternatives that satisfy a request, by the name that the result has."""
    if "exactly" in request:
        yield request["name"], request["exactly"]
    for sub in request.get("firstAvailable") or []:
        yield f"{request['name']}/{sub['name']}", sub


def _holds(expression: str, device: Device) -> bool:
    """The value of a selector; CelError ends the attempt for the pod on all nodes."""
    # A domain that a device lacks is empty, a name in it is an error.
    attributes: dict[str, dict[str, object]] = {
        domain: {} for domain in _DOMAINS.findall(expression)
    }
    for name, value in (device.spec.get("attributes") or {}).items():
        domain, slash, short = name.rpartition("/")
        attributes.setdefault(domain if slash else device.driver, {})[short] = _value(value)
    scope = {"driver": device.driver, "attributes": attributes, "capacity": {}}
    return compile_expression(expression).holds({"device": scope})


def _value(value: Mapping[str, object]) -> object:
    return next(value[kind] for kind in _VALUES if kind in value)


def _tolerates(toleration: Json, taint: Json) -> bool:
    is_any = toleration.get("operator") == "Exists"
    return (
        toleration.get("key", taint["key"]) == taint["key"]
        and toleration.get("effect", taint["effect"]) == taint["effect"]
        and (is_any or toleration.get("value", "") == taint.get("value", ""))
    )
