"""Checks of `accelbind doctor`: LimitRanges and ResourceQuotas with names of ours.

LimitRanger sets defaults before the webhook replaces names, and again after it. It checks limits
when pods have no names any more, as quotas are counted then.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from accelbind.doctor.cluster import Cluster, Json, full_name, part
from accelbind.doctor.model import Line, Unseen, failed, unseen, warning
from accelbind.doctor.pools import resource_prefixes
from services.admission.mutate import Policy
from services.mappings.kinds import ACCELERATOR, TABLE
from services.pods.quantity import parse_count
from services.process.errors import InvalidQuantity
from services.process.text import plain

_Refuses = Callable[[int, int], bool]

_BOUNDS: Final[dict[str, _Refuses]] = {
    "max": lambda bound, amount: amount > bound,
    "min": lambda bound, amount: amount < bound,
    "maxLimitRequestRatio": lambda _, amount: amount == 0,
}
"""The bounds of a LimitRange, and which amounts they refuse. All refuse a missing one."""

_PARTS: Final = (*_BOUNDS, "default", "defaultRequest")
_TYPES: Final = ("Container", "Pod")
_ADVICE: Final = (
    "use max and default: 0 with the resource that pods get: docs/administrators.md, Limits of a"
    " namespace"
)


@dataclass(frozen=True)
class OurResources:
    """The resources that accelbind has to do with in a cluster."""

    policy: Policy
    served: tuple[str, ...]
    """How the names begin that accelbind replaces or serves."""
    targets: frozenset[str] = frozenset()
    """Those that Accelerators stand for."""

    def __contains__(self, key: str) -> bool:
        return key.startswith(self.served) or key in self.targets


def check_limits(cluster: Cluster) -> Iterator[Line]:
    """Do LimitRanges and ResourceQuotas name what pods get?"""
    ranges, quotas = (
        cluster.items(f"/api/v1/{kind}") for kind in ("limitranges", "resourcequotas")
    )
    ours = OurResources(cluster.policy, cluster.resources)
    try:
        ours = OurResources(cluster.policy, resource_prefixes(cluster), _targets(cluster))
    except Unseen as error:
        yield unseen(f"limits of device types and of what Accelerators stand for: {error}")
    yield from range_lines(ranges, ours)
    yield from quota_lines(quotas, ours)


def range_lines(ranges: Sequence[Json], ours: OurResources) -> Iterator[Line]:
    """Yield what is wrong with LimitRanges."""
    limits = [
        (each, limit)
        for each in ranges
        for limit in part(each, "spec").get("limits") or ()
        if limit.get("type") in _TYPES
    ]
    defaults: dict[tuple[str, str], int] = {}
    for item, limit in limits:
        for key in {*part(limit, "default"), *part(limit, "max")}:
            if (amount := _default(limit, key)) is not None:
                defaults.setdefault((_namespace(item), key), amount)
    for item, limit in limits:
        for key in sorted({key for name in _PARTS for key in part(limit, name) if key in ours}):
            where = f"LimitRange {full_name(item)}, {limit['type']}: {plain(key)}"
            is_logical = ours.policy.is_logical(key)
            given = defaults.get((_namespace(item), key))
            yield from _of_limit(where, limit, key, given, is_logical=is_logical)


def _namespace(item: Json) -> str:
    return str(part(item, "metadata").get("namespace"))


def _targets(cluster: Cluster) -> frozenset[str]:
    """The resources that Accelerators stand for."""
    kind = TABLE[ACCELERATOR]
    specs = [
        part(item, "spec") for item in cluster.items(f"/apis/{kind.api_version}/{kind.plural}")
    ]
    return frozenset(
        str(named.get("resource"))
        for spec in specs
        for named in (part(spec, "target"), *(spec.get("alsoRequest") or ()))
    )


def _of_limit(
    where: str, limit: Json, key: str, given: int | None, *, is_logical: bool
) -> Iterator[Line]:
    """Yield what the limit of one resource does to containers that request nothing of it.

    They have as many as `given` of the namespace's defaults.
    """
    bounds = {name: bound for name in _BOUNDS if (bound := _amount(limit, name, key)) is not None}
    of_requests = [name for name in ("defaultRequest", "min") if key in part(limit, name)]
    sets_requests = bool(of_requests) and limit["type"] == "Container"
    requests = _amount(limit, of_requests[0], key) if of_requests else None
    own = _default(limit, key)
    broken = [
        name
        for name, bound in bounds.items()
        if is_logical or given is None or _BOUNDS[name](bound, given)
    ]
    if is_logical and broken:
        yield failed(
            f"{where} refuses each pod of the namespace: {broken[0]} is checked when names are"
            " replaced",
            _ADVICE,
        )
    elif given is None and sets_requests:
        yield failed(f"{where} sets requests without limits, for which pods are refused", _ADVICE)
    elif broken:
        yield failed(f"{where} refuses each pod without this resource: {broken[0]}", _ADVICE)
    elif sets_requests and own is None and given is not None and requests != given:
        yield failed(
            f"{where} sets requests of {requests}, and another LimitRange sets limits of {given}:"
            " pods with both are refused",
            _ADVICE,
        )
    elif own:
        added = "" if is_logical else ", added to what its names stand for"
        yield warning(f"{where} gives {own} to each container by default{added}", _ADVICE)


def quota_lines(quotas: Sequence[Json], ours: OurResources) -> Iterator[Line]:
    """Yield which entries of ResourceQuotas limit nothing."""
    for item in quotas:
        for counted in sorted(part(item, "spec", "hard")):
            key = counted.removeprefix("requests.").removeprefix("limits.")
            where = f"ResourceQuota {full_name(item)}: {plain(counted)} limits nothing"
            if key not in ours:
                continue
            if ours.policy.is_logical(key):
                yield warning(
                    f"{where}, since pods are counted when names are replaced",
                    "use requests. and the resource that pods get: accelbind explain shows it",
                )
            elif not counted.startswith("requests."):
                yield warning(
                    f"{where}: Kubernetes counts only requests of such resources",
                    f"use requests.{plain(key)}",
                )


def _default(limit: Json, key: str) -> int | None:
    """How many of a resource a limit gives to a container that requests none; None if it doesn't.

    The API server makes `max` the default if there is none.
    """
    if limit["type"] != "Container":
        return None
    return _amount(limit, "default" if key in part(limit, "default") else "max", key)


def _amount(limit: Json, name: str, key: str) -> int | None:
    """A part of a limit; None if it is missing or can't be read."""
    try:
        return parse_count(str(part(limit, name)[key]))
    except (InvalidQuantity, KeyError):
        return None
