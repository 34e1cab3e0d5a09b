"""Requests of a container in our domains: the keys of its limits, with their counts.

https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#extended-resources
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
``2``, ``2000m``, ``0.002k`` and ``2e0`` are the same, and ``1500m`` is invalid.
"""

import re
from collections.abc import Collection, Mapping
from fractions import Fraction

import msgspec

from services.mappings.accelerator import CLAIM, CLAIM_TEMPLATE
from services.pods.pod import Container, ContainerRef, Pod, Quantity, Resources, quantity_text
from services.pods.reasons import ReviewReason
from services.pods.refusals import Refusals
from services.process.errors import InvalidQuantity
from services.process.text import plain, quote

MAX_COUNT = 2**63 - 1
"""The largest quantity that Kubernetes stores."""

_LONGEST = 128
"""Characters of a quantity. The API server writes them with about 20."""
_FORM = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
    r"(?:[eE](?P<exponent>[+-]?[0-9]+)|(?P<suffix>[KMGTPE]i|[numkMGTPE])?)"
)
_SCALE: dict[str | None, Fraction] = {
    None: Fraction(1),
    **{suffix: Fraction(1, 1000**n) for n, suffix in enumerate("mun", 1)},
    **{suffix: Fraction(1000**n) for n, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Fraction(1024**n) for n, suffix in enumerate("KMGTPE", 1)},
}


def parse_amount(text: str) -> Fraction:
    """Return the amount of a quantity (InvalidQuantity if it is none)."""
    # Lengths and exponents are checked before anything is calculated, so no text is slow.
    match = _FORM.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise InvalidQuantity(f"{quote(text)} is not a quantity")
    number = Fraction(match["number"])
    # A larger exponent is more than the digits of such a text could make up for.
    limit = 2 * _LONGEST
    exponent = max(-limit, min(int(match["exponent"] or 0), limit))
    return number * Fraction(10) ** exponent * _SCALE[match["suffix"]]


def parse_count(text: str) -> int:
    """Return the number of units, 0 to `MAX_COUNT`, that a quantity requests.

    Raises:
        InvalidQuantity: it is no quantity, negative, not whole, or too large for Kubernetes.
    """
    if len(text) < 10 and text.isascii() and text.isdecimal():
        return int(text)  # nearly all of them, and much faster
    count = parse_amount(text)
    if count < 0:
        raise InvalidQuantity(f"{quote(text)} is negative")
    if count > MAX_COUNT:
        raise InvalidQuantity(f"{quote(text)} is larger than any Kubernetes quantity")
    if count.denominator != 1:
        raise InvalidQuantity(f"{quote(text)} is not a whole number of devices")
    return count.numerator


class ResourceCount(msgspec.Struct, frozen=True, gc=False):
    """How many units of one resource a container requests."""

    key: str
    """The full name, as in limits."""
    units: int
    in_requests: bool
    """Whether the name is in requests too."""
    in_limits: bool = True
    """False only for a name that another webhook set again, in requests alone."""
    before: int = 0
    """How many more an earlier mutation of the pod counted."""

    @property
    def total(self) -> int:
        """How many units the container requests, those of an earlier mutation included."""
        return self.before + self.units


def requesting_containers(
    pod: Pod, prefixes: tuple[str, ...], *, also: Collection[str] = ()
) -> list[ContainerRef]:
    """Return the containers that request anything of the domains, in the kubelet's start order.

    `prefixes` are the domains, each with its slash. Containers with one of the names `also` are
    returned whatever they request.
    """
    containers: list[ContainerRef] = []
    if pod.spec is None:
        return containers
    entries = pod.spec.resource_claims  # few pods have any, and all pods with names come here
    sources = {each.name: each.source for each in entries} if entries else None
    for n, container in enumerate(pod.spec.init_containers or ()):
        if _requests_any(container.resources, prefixes) or container.name in also:
            sidecar = container.restart_policy == "Always"
            path = f"/spec/initContainers/{n}"
            used = _claims(container, sources) if sources else ()
            ref = ContainerRef(container, path, init=True, sidecar=sidecar, claims=used)
            containers.append(ref)
    for n, container in enumerate(pod.spec.containers or ()):
        if _requests_any(container.resources, prefixes) or container.name in also:
            used = _claims(container, sources) if sources else ()
            containers.append(ContainerRef(container, f"/spec/containers/{n}", claims=used))
    return containers


def refuse_pod_resources(pod: Pod, prefixes: tuple[str, ...], refusals: Refusals) -> None:
    """Refuse resources of the domains that are requested for the whole pod.

    https://kubernetes.io/docs/tasks/configure-pod-container/assign-pod-level-resources/
    """
    resources = pod.spec.resources if pod.spec else None
    if resources is None:
        return
    for key in sorted({*(resources.limits or ()), *(resources.requests or ())}):
        if key.startswith(prefixes):
            message = (
                f"{plain(key)} is in spec.resources, where Kubernetes allows CPU, memory and huge "
                "pages only: request it in a container"
            )
            refusals.add(ReviewReason.POD_RESOURCES, None, message)


def read_counts(
    ref: ContainerRef,
    prefixes: tuple[str, ...],
    refusals: Refusals,
    *,
    most: int,
    before: Mapping[str, int] = {},
) -> list[ResourceCount]:
    """Return what a container requests of the domains, by name, of at most so many names.

    `before` has the units of names that an earlier mutation of the pod counted. Problems go to
    `refusals`.
    """
    resources = ref.container.resources or Resources()
    limits, requests = resources.limits or {}, resources.requests or {}
    keys = [key for key in limits if key.startswith(prefixes)]
    keys += [key for key in before if key in requests and key not in limits]
    counts = []
    for key in sorted(keys)[:most]:
        if refusals.full:
            break
        again = before.get(key)
        count = (
            read_count(ref, key, refusals)
            if again is None
            else _read_again(ref, key, again, refusals)
        )
        if count is not None:
            counts.append(count)
    for key in requests:
        if refusals.full:
            break
        if key not in limits and key not in before and key.startswith(prefixes):
            read_count(ref, key, refusals)
    return counts


def read_count(ref: ContainerRef, key: str, refusals: Refusals) -> ResourceCount | None:
    """Return how much of a resource a container requests; None if nothing, or if it can't be.

    Of a ResourceClaim or its template it returns how many claims the container uses.
    """
    if key.startswith((CLAIM_TEMPLATE, CLAIM)):
        held = [source for _, source in ref.claims].count(key)
        return ResourceCount(key, held, in_requests=False)
    resources = ref.container.resources or Resources()
    limits, requests = resources.limits or {}, resources.requests or {}
    in_requests = key in requests
    if key not in limits:
        if in_requests:
            message = (
                f"{plain(key)} is in requests but not in limits: accelerators can't be "
                "overcommitted, set the same quantity in limits"
            )
            refusals.add(ReviewReason.REQUESTS_DIFFER, ref, message)
        return None
    units = _units(ref, key, limits[key], refusals)
    # Kubernetes requires requests of extended resources equal to limits, and sets missing ones.
    # 1 and 1000m are equal, but nearly all are written in the same way.
    differs = in_requests and bytes(requests[key]) != bytes(limits[key])
    if units is None or (differs and not _equal(ref, key, units, requests[key], refusals)):
        return None
    return ResourceCount(key, units, in_requests)


def _read_again(
    ref: ContainerRef, key: str, before: int, refusals: Refusals
) -> ResourceCount | None:
    """Return how much more a container requests by a name that was removed from it before.

    A resource map is desired state: who finds the name missing and sets it requests no more than is
    there. Limits and requests that differ are no problem, since the container has neither.
    """
    resources = ref.container.resources or Resources()
    limits, requests = resources.limits or {}, resources.requests or {}
    units = [_units(ref, key, part[key], refusals) for part in (limits, requests) if key in part]
    wanted = max([each for each in units if each is not None], default=None)
    if wanted is None or None in units:
        return None
    more = max(0, wanted - before)
    return ResourceCount(key, more, key in requests, in_limits=key in limits, before=before)


def _claims(container: Container, sources: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the claims that a container uses, each once, by the pod's entries for them."""
    claims = container.resources.claims if container.resources else None
    used = dict.fromkeys([each.name for each in claims or ()])
    return tuple([(name, sources[name]) for name in used if name in sources])


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
        refusals.add(ReviewReason.INVALID_QUANTITY, ref, message)
        return None


def _equal(ref: ContainerRef, key: str, limit: int, quantity: Quantity, refusals: Refusals) -> bool:
    request = _units(ref, key, quantity, refusals)
    if request is None:
        return False
    if request != limit:
        refusals.add(
            ReviewReason.REQUESTS_DIFFER,
            ref,
            f"{plain(key)} is {limit} in limits but {request} in requests: accelerators can't be "
            "overcommitted, make them equal or remove the request",
        )
    return request == limit
