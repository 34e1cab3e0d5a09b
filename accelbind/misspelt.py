"""Resource names that accelbind does not serve, but that look like one of its mappings."""

import difflib
from collections.abc import Iterator, Sequence
from typing import Final

from services.mappings.index import NamespaceMappings
from services.pods.manifests import FoundPod
from services.process.text import plain, quote

_ALIKE: Final = 0.6
"""Similarity as difflib counts it: intel.com and fpga.intel.com have 0.78."""
_NATIVE: Final = ("cpu", "memory", "storage", "ephemeral-storage", "pods", "hugepages-")


def misspelt_resources(
    found: FoundPod, mappings: NamespaceMappings, domains: Sequence[str]
) -> Iterator[str]:
    """Yield a hint for each resource of another domain that was probably meant to be ours.

    The webhook ignores such a resource, and the pod stays Pending.
    """
    spec = found.pod.spec
    for container in (*(spec.init_containers or ()), *(spec.containers or ())) if spec else ():
        resources = container.resources
        limits, requests = (resources.limits, resources.requests) if resources else (None, None)
        for key in dict.fromkeys((*(limits or ()), *(requests or ()))):
            meant = _meant(key, mappings, domains)
            if meant is not None:
                yield (
                    f"container {quote(container.name)} asks for {plain(key)},"
                    f" which accelbind does not serve; did you mean {plain(meant)}?"
                )


def _meant(key: str, mappings: NamespaceMappings, domains: Sequence[str]) -> str | None:
    domain, slash, name = key.rpartition("/")
    if domain in domains or (not slash and key.startswith(_NATIVE)):
        return None
    ours = difflib.get_close_matches(domain, domains, n=1, cutoff=_ALIKE)
    near = difflib.get_close_matches(name.lower(), mappings.by_name, n=1, cutoff=_ALIKE)
    if name in mappings.by_name or name in mappings.by_resource:
        known: str | None = name
    elif ours or not slash:
        known = near[0] if near else None
    else:
        known = None
    return f"{ours[0] if ours else domains[0]}/{known}" if known else None
