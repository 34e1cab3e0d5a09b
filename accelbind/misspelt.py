"""Resource names that accelbind does not serve, but that look like one of its mappings."""

import difflib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from services.admission.mutate import Policy
from services.mappings.index import MappingIndex
from services.pods.manifests import FoundPod
from services.process.text import plain, quote

_ALIKE: Final = 0.6
"""Similarity as difflib counts it: intel.com and fpga.intel.com have 0.78."""
_NATIVE: Final = ("cpu", "memory", "storage", "ephemeral-storage", "pods", "hugepages-")


class _Names(NamedTuple):
    """The names of one family that pods of a namespace can request."""

    domains: Sequence[str]
    logical: Sequence[str]
    physical: Sequence[str] = ()
    unique: bool = False
    """Whether a name alone, with any domain, shows what was meant."""


def misspelt_resources(
    found: FoundPod, index: MappingIndex, policy: Policy, *, namespace: str
) -> Iterator[str]:
    """Yield a hint for each resource of another domain that was probably meant to be ours.

    The webhook ignores such a resource, and the pod stays Pending.
    """
    mappings, shared = index.namespace(namespace), policy.shared(index)
    families = (
        _Names(policy.domains, [*mappings.by_name], [*mappings.modes], unique=True),
        _Names(policy.accelerator_domains, [*mappings.accelerators.by_name, *shared.by_name]),
    )
    spec = found.pod.spec
    for container in (*(spec.init_containers or ()), *(spec.containers or ())) if spec else ():
        resources = container.resources
        limits, requests = (resources.limits, resources.requests) if resources else (None, None)
        for key in dict.fromkeys((*(limits or ()), *(requests or ()))):
            if key.startswith(policy.prefixes) or ("/" not in key and key.startswith(_NATIVE)):
                continue
            meant = next(filter(None, (_meant(key, names) for names in families)), None)
            if meant is not None:
                yield (
                    f"container {quote(container.name)} asks for {plain(key)},"
                    f" which accelbind does not serve; did you mean {plain(meant)}?"
                )


def _meant(key: str, names: _Names) -> str | None:
    domain, slash, name = key.rpartition("/")
    ours = difflib.get_close_matches(domain, names.domains, n=1, cutoff=_ALIKE)
    near = difflib.get_close_matches(name.lower(), names.logical, n=1, cutoff=_ALIKE)
    known: str | None = None
    if ours or not slash or names.unique:
        known = next((each for each in (*names.logical, *names.physical) if each == name), None)
    if known is None and (ours or not slash):
        known = near[0] if near else None
    return f"{ours[0] if ours else names.domains[0]}/{known}" if known else None
