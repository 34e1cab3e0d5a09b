"""What a container asks for of our domains: the keys of its limits, with their counts.

Extended resources can't be overcommitted, so Kubernetes wants requests equal to limits, and sets
requests that are missing: https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#extended-resources
"""

import msgspec

from services.domain.errors import InvalidQuantity
from services.domain.pod import Place, Quantity, Resources
from services.domain.quantity import parse_count
from services.domain.refusals import RefusalReason, Refusals
from services.domain.text import plain


class Ask(msgspec.Struct, frozen=True, gc=False):
    """One resource that a container asks for.

    Attributes:
        key: the full name, as in limits.
        domain: such as ``fpga.intel.com``.
        name: the name after the domain, logical or physical.
        count: how many units.
        in_requests: whether it stands in requests too.
    """

    key: str
    domain: str
    name: str
    count: int
    in_requests: bool


def asks_any(resources: Resources | None, prefixes: tuple[str, ...]) -> bool:
    """Tell whether a container asks for anything of the domains, in limits or in requests.

    Args:
        resources: the container's.
        prefixes: each domain with its slash.
    """
    if resources is None:
        return False
    for keys in (resources.limits, resources.requests):
        for key in keys or ():
            if key.startswith(prefixes):
                return True
    return False


def read_asks(place: Place, prefixes: tuple[str, ...], refusals: Refusals) -> list[Ask]:
    """Return what a container asks for of the domains, by name; what can't be goes to refusals."""
    resources = place.container.resources or Resources()
    limits, requests = resources.limits or {}, resources.requests or {}
    asks = []
    for key in sorted([key for key in limits if key.startswith(prefixes)]):
        if refusals.full:
            break
        count = _count(place, key, limits[key], refusals)
        if count is None:
            continue
        in_requests = key in requests
        differs = in_requests and requests[key] != limits[key]  # as written; 1 and 1000m are equal
        if differs and not _equal(place, key, count, requests[key], refusals):
            continue
        domain, _, name = key.partition("/")
        asks.append(Ask(key, domain, name, count, in_requests))
    for key in requests:
        if key.startswith(prefixes) and key not in limits:
            refusals.add(
                RefusalReason.REQUESTS_DIFFER,
                place,
                f"has {plain(key)} in requests but not in limits: accelerators can't be "
                "overcommitted, so put the same quantity into limits",
            )
    return asks


def _count(place: Place, key: str, quantity: Quantity, refusals: Refusals) -> int | None:
    if quantity is None:
        return 0  # as Kubernetes reads a quantity of null
    try:
        return parse_count(quantity)
    except InvalidQuantity as error:
        message = f"asks for a quantity of {plain(key)} that no container can have: {error}"
        refusals.add(RefusalReason.INVALID_QUANTITY, place, message)
        return None


def _equal(place: Place, key: str, limit: int, quantity: Quantity, refusals: Refusals) -> bool:
    request = _count(place, key, quantity, refusals)
    if request is None:
        return False
    if request != limit:
        refusals.add(
            RefusalReason.REQUESTS_DIFFER,
            place,
            f"has {limit} of {plain(key)} in limits but {request} in requests: accelerators can't "
            "be overcommitted, so make them equal or leave requests out",
        )
    return request == limit
