"""What a container asks for of our domains: the keys of its limits, with their counts.

Extended resources can't be overcommitted, so Kubernetes wants requests equal to limits, and sets
requests that are missing: https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#extended-resources
"""

import msgspec

from services.pods.pod import Place, Pod, Quantity, Resources
from services.pods.quantity import parse_count
from services.pods.refusals import RefusalReason, Refusals
from services.process.errors import InvalidQuantity
from services.process.text import plain


class Count(msgspec.Struct, frozen=True, gc=False):
    """How much a container asks for of one resource.

    Attributes:
        key: the full name, as in limits.
        units: how many.
        in_requests: whether it stands in requests too.
    """

    key: str
    units: int
    in_requests: bool


def asking_places(pod: Pod, prefixes: tuple[str, ...]) -> list[Place]:
    """Return the containers that ask for anything of the domains, as the kubelet starts them.

    Args:
        pod: init containers come first, then containers.
        prefixes: each domain with its slash.
    """
    found: list[Place] = []
    if pod.spec is None:
        return found
    for n, container in enumerate(pod.spec.init_containers or ()):
        if _asks_any(container.resources, prefixes):
            sidecar = container.restart_policy == "Always"
            path = f"/spec/initContainers/{n}"
            found.append(Place(container, path, init=True, sidecar=sidecar))
    for n, container in enumerate(pod.spec.containers or ()):
        if _asks_any(container.resources, prefixes):
            found.append(Place(container, f"/spec/containers/{n}"))
    return found


def read_counts(place: Place, prefixes: tuple[str, ...], refusals: Refusals) -> list[Count]:
    """Return what a container asks for of the domains, by name; what can't be goes to refusals."""
    resources = place.container.resources or Resources()
    limits, requests = resources.limits or {}, resources.requests or {}
    counts = []
    for key in sorted([key for key in limits if key.startswith(prefixes)]):
        if refusals.full:
            break
        units = _units(place, key, limits[key], refusals)
        if units is None:
            continue
        in_requests = key in requests
        differs = in_requests and requests[key] != limits[key]  # as written; 1 and 1000m are equal
        if differs and not _equal(place, key, units, requests[key], refusals):
            continue
        counts.append(Count(key, units, in_requests))
    for key in requests:
        if key not in limits and key.startswith(prefixes):
            refusals.add(
                RefusalReason.REQUESTS_DIFFER,
                place,
                f"has {plain(key)} in requests but not in limits: accelerators can't be "
                "overcommitted, so put the same quantity into limits",
            )
    return counts


def _asks_any(resources: Resources | None, prefixes: tuple[str, ...]) -> bool:
    if resources is not None:
        for key in resources.limits or ():
            if key.startswith(prefixes):
                return True
        for key in resources.requests or ():
            if key.startswith(prefixes):
                return True
    return False


def _units(place: Place, key: str, quantity: Quantity, refusals: Refusals) -> int | None:
    if quantity is None:
        return 0  # as Kubernetes reads a quantity of null
    try:
        return parse_count(quantity)
    except InvalidQuantity as error:
        message = f"asks for a quantity of {plain(key)} that no container can have: {error}"
        refusals.add(RefusalReason.INVALID_QUANTITY, place, message)
        return None


def _equal(place: Place, key: str, limit: int, quantity: Quantity, refusals: Refusals) -> bool:
    request = _units(place, key, quantity, refusals)
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
