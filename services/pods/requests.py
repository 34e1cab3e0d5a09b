"""What a container requests of our domains: the keys of its limits, with their counts.

https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#extended-resources
"""

import msgspec

from services.pods.pod import ContainerRef, Pod, Quantity, Resources, quantity_text
from services.pods.quantity import parse_count
from services.pods.refusals import RefusalReason, Refusals
from services.process.errors import InvalidQuantity
from services.process.text import plain


class ResourceCount(msgspec.Struct, frozen=True, gc=False):
    """How many units of one resource a container requests."""

    key: str
    """The full name, as in limits."""
    units: int
    in_requests: bool
    """Whether the name is in requests too."""


def requesting_containers(pod: Pod, prefixes: tuple[str, ...]) -> list[ContainerRef]:
    """Return the containers that request anything of the domains, in the kubelet's start order.

    `prefixes` are the domains, each with its slash.
    """
    containers: list[ContainerRef] = []
    if pod.spec is None:
        return containers
    for n, container in enumerate(pod.spec.init_containers or ()):
        if _requests_any(container.resources, prefixes):
            sidecar = container.restart_policy == "Always"
            path = f"/spec/initContainers/{n}"
            containers.append(ContainerRef(container, path, init=True, sidecar=sidecar))
    for n, container in enumerate(pod.spec.containers or ()):
        if _requests_any(container.resources, prefixes):
            containers.append(ContainerRef(container, f"/spec/containers/{n}"))
    return containers


def read_counts(
    ref: ContainerRef, prefixes: tuple[str, ...], refusals: Refusals, *, most: int
) -> list[ResourceCount]:
    """Return what a container requests of the domains, by name, of at most so many names.

    Problems go to `refusals`.
    """
    resources = ref.container.resources or Resources()
    limits, requests = resources.limits or {}, resources.requests or {}
    counts = []
    for key in sorted([key for key in limits if key.startswith(prefixes)])[:most]:
        if refusals.full:
            break
        count = read_count(ref, key, refusals)
        if count is not None:
            counts.append(count)
    for key in requests:
        if refusals.full:
            break
        if key not in limits and key.startswith(prefixes):
            read_count(ref, key, refusals)
    return counts


def read_count(ref: ContainerRef, key: str, refusals: Refusals) -> ResourceCount | None:
    """Return how much of a resource a container requests; None if nothing, or if it can't be."""
    resources = ref.container.resources or Resources()
    limits, requests = resources.limits or {}, resources.requests or {}
    in_requests = key in requests
    if key not in limits:
        if in_requests:
            message = (
                f"{plain(key)} is in requests but not in limits: accelerators can't be "
                "overcommitted, set the same quantity in limits"
            )
            refusals.add(RefusalReason.REQUESTS_DIFFER, ref, message)
        return None
    units = _units(ref, key, limits[key], refusals)
    # Kubernetes requires requests of extended resources equal to limits, and sets missing ones.
    # 1 and 1000m are equal, but nearly all are written in the same way.
    differs = in_requests and bytes(requests[key]) != bytes(limits[key])
    if units is None or (differs and not _equal(ref, key, units, requests[key], refusals)):
        return None
    return ResourceCount(key, units, in_requests)


def _requests_any(resources: Resources | None, prefixes: tuple[str, ...]) -> bool:
    if resources is not None:
        for key in resources.limits or ():
            if key.startswith(prefixes):
                return True
        for key in resources.requests or ():
            if key.startswith(prefixes):
                return True
    return False


def _units(ref: ContainerRef, key: str, quantity: Quantity, refusals: Refusals) -> int | None:
    try:
        text = quantity_text(quantity)
        return 0 if text is None else parse_count(text)  # as Kubernetes reads null
    except InvalidQuantity as error:
        message = f"invalid quantity of {plain(key)}: {error}"
        refusals.add(RefusalReason.INVALID_QUANTITY, ref, message)
        return None


def _equal(ref: ContainerRef, key: str, limit: int, quantity: Quantity, refusals: Refusals) -> bool:
    request = _units(ref, key, quantity, refusals)
    if request is None:
        return False
    if request != limit:
        refusals.add(
            RefusalReason.REQUESTS_DIFFER,
            ref,
            f"{plain(key)} is {limit} in limits but {request} in requests: accelerators can't be "
            "overcommitted, make them equal or remove the request",
        )
    return request == limit
