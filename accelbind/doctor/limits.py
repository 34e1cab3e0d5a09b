"""What `accelbind doctor` checks about LimitRanges and ResourceQuotas with names of ours.

LimitRanger sets defaults before the webhook replaces names, and again after it. It checks limits
when pods have no names any more, as quotas are counted then.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from accelbind.doctor.cluster import Cluster, Json, full_name, part
from accelbind.doctor.model import Line, failed, warning
from services.names import is_physical
from services.pods.quantity import parse_count
from services.process.errors import InvalidQuantity
from services.process.text import plain

_BOUNDS: Final = ("max", "min", "maxLimitRequestRatio")
_PARTS: Final = (*_BOUNDS, "default", "defaultRequest")
_ADVICE: Final = (
    "use max and default: 0 with the generated name: docs/administrators.md, Limits of a namespace"
)


def check_limits(cluster: Cluster) -> Iterator[Line]:
    """Do LimitRanges and ResourceQuotas name what pods get?"""
    ranges = cluster.items("/api/v1/limitranges")
    zero = _zero_by_default(ranges)
    for item in ranges:
        for limit in part(item, "spec").get("limits") or ():
            for key in sorted({key for name in _PARTS for key in part(limit, name)}):
                if key.startswith(cluster.prefixes):
                    where = f"LimitRange {full_name(item)}, {limit.get('type')}: {plain(key)}"
                    has_default = (part(item, "metadata").get("namespace"), key) in zero
                    yield from _of_limit(where, limit, key, has_default=has_default)
    for item in cluster.items("/api/v1/resourcequotas"):
        for counted in sorted(part(item, "spec", "hard")):
            key = counted.removeprefix("requests.")
            if key.startswith(cluster.prefixes) and not is_physical(key.partition("/")[2]):
                yield warning(
                    f"ResourceQuota {full_name(item)}: {plain(counted)} limits nothing, since pods"
                    " are counted when names are replaced",
                    "use requests. and the resource that pods get: accelbind explain shows it",
                )


def _zero_by_default(ranges: Sequence[Json]) -> set[tuple[str, str]]:
    """Namespaces and resources of which each container has 0 unless it requests more."""
    return {
        (part(item, "metadata").get("namespace", ""), key)
        for item in ranges
        for limit in part(item, "spec").get("limits") or ()
        for key in part(limit, "default")
        if limit.get("type") == "Container" and _count(limit, "default", key) == 0
    }


def _of_limit(where: str, limit: Json, key: str, *, has_default: bool) -> Iterator[Line]:
    """Yield what is wrong with the limit of one resource."""
    bounds = [name for name in _BOUNDS if key in part(limit, name)]
    default = _count(limit, "default" if key in part(limit, "default") else "max", key)
    if bounds and not is_physical(key.partition("/")[2]):
        yield failed(
            f"{where} refuses each pod of the namespace: {bounds[0]} is checked when names are"
            " replaced",
            _ADVICE,
        )
    elif limit.get("type") != "Container":
        if bounds and not has_default:
            yield failed(f"{where} refuses each pod without this resource", _ADVICE)
    elif key not in {*part(limit, "default"), *part(limit, "max")}:
        if _count(limit, "min", key) or _count(limit, "defaultRequest", key):
            yield failed(
                f"{where} sets requests without limits, for which pods are refused", _ADVICE
            )
    elif default:
        added = ", added to what its names stand for" if is_physical(key.partition("/")[2]) else ""
        yield warning(f"{where} gives {default} to each container by default{added}", _ADVICE)


def _count(limit: Json, name: str, key: str) -> int:
    try:
        return parse_count(str(part(limit, name).get(key, 0)))
    except InvalidQuantity:
        return 0
