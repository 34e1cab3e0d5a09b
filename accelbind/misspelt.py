"""Resource names that accelbind does not serve, but that look like one of its mappings."""

import difflib
from collections.abc import Iterator, Sequence
from typing import Final

from services.admission.mutate import Policy
from services.mappings.index import MappingIndex
from services.pods.manifests import FoundPod
from services.pods.pod import Resources
from services.pods.requests import requesting_containers
from services.process.text import plain, quote

_ALIKE: Final = 0.8
"""Similarity as difflib counts it: intel.com/nlb0 and fpga.intel.com/nlb0 have 0.85."""


def misspelt_resources(
    found: FoundPod, index: MappingIndex, policy: Policy, *, namespace: str
) -> Iterator[str]:
    """Yield a hint for each resource of another domain that was probably meant to be ours."""
    # The webhook ignores such a resource, and the pod stays Pending.
    mappings, shared = index.namespace(namespace), policy.shared(index)
    ours = [
        *_named(policy.domains, [*mappings.by_name, *mappings.modes]),
        *_named(policy.accelerator_domains, [*mappings.accelerators.by_name, *shared.by_name]),
    ]
    for ref in requesting_containers(found.pod, ("",)):  # whatever resource
        resources = ref.container.resources or Resources()
        for key in dict.fromkeys((*(resources.limits or ()), *(resources.requests or ()))):
            near = [] if key.startswith(policy.prefixes) else _alike(key, ours)
            if near:
                yield (
                    f"container {quote(ref.container.name)} asks for {plain(key)},"
                    f" which accelbind does not serve; did you mean {plain(near[0])}?"
                )


def _named(domains: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    yield from (f"{domain}/{name}" for domain in domains for name in names)


def _alike(key: str, ours: Sequence[str]) -> list[str]:
    if "/" not in key:  # the domain was left out
        return [each for each in ours if each.rpartition("/")[2] == key]
    return difflib.get_close_matches(key, ours, n=1, cutoff=_ALIKE)
