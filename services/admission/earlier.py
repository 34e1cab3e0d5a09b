"""The note of an earlier mutation for a container, as far as the container still has it.

The API server calls the webhook again after another plugin or webhook changed the pod. One that
finds a name missing may have set it again. Anybody can write the note, and a pod may be an edited
copy of another one, so a noted name counts only while its container has what the name stands for.
"""

from collections import Counter
from collections.abc import Mapping as ReadOnly
from collections.abc import Sequence
from typing import Final

import msgspec

from services.admission.requested import ResourceRequest, amounts
from services.mappings.index import NamespaceMappings, NameTable
from services.mappings.model import Function
from services.pods.functions import RESERVED, read_functions
from services.pods.pod import ContainerRef, environment
from services.pods.refusals import Refusals
from services.pods.requests import ResourceCount, read_count

MAX_NOTED_UNITS: Final = 256
"""Units of a name that a note may have: no pod may request more."""

OWN: Final = "env:"
"""The prefix of such a variable in the note: no resource name has a colon."""


class EarlierRequests(msgspec.Struct, frozen=True, gc=False):
    """The requests of a container when the pod was mutated before."""

    fpga: list[ResourceRequest] = []
    """The requests by names of FPGAs."""
    accelerators: list[ResourceRequest] = []
    """The requests by names of accelerators."""
    own: frozenset[str] = frozenset()
    """Variables that the container set itself, to the value that a name would have set."""
    others: dict[str, int] = {}
    """The note of another installation, with names of other domains."""

    @property
    def units(self) -> dict[str, int]:
        """How many units of each name were requested."""
        return {each.key: each.units for each in (*self.fpga, *self.accelerators)}


def earlier_requests(
    ref: ContainerRef,
    noted: ReadOnly[str, int],
    mappings: NamespaceMappings,
    tables: Sequence[NameTable],
    *,
    fpga_prefixes: tuple[str, ...],
    accelerator_prefixes: tuple[str, ...],
) -> EarlierRequests:
    """Return what an earlier mutation noted for a container, and the container still has.

    `noted` has the units of each name. `mappings` has the names of FPGAs, `tables` those of
    accelerators.

    Raises:
        InvalidReview: its env can't be read.
    """
    fpga, accelerators = [], []
    for key, units in noted.items():
        domain, _, name = key.partition("/")
        count = ResourceCount(key, units, in_requests=False)
        # Anybody can write a note, and each unit of it is work.
        if not 0 <= units <= MAX_NOTED_UNITS:
            continue
        if key.startswith(fpga_prefixes) and (mapping := mappings.by_name.get(name)):
            resource = f"{domain}/{mapping.resolution.resource}"
            fpga.append(ResourceRequest(ref, count, resource, mapping))
        elif key.startswith(accelerator_prefixes):
            found = (each for table in tables if (each := table.by_name.get(name)))
            if mapping := next(found, None):
                resource = mapping.resolution.resource
                accelerators.append(ResourceRequest(ref, count, resource, mapping))
    missing = _missing_resources(ref, [*fpga, *accelerators])
    fpga = [each for each in fpga if each.resource not in missing]
    unnamed = _unnamed_functions(ref, fpga)
    fpga = [each for each in fpga if each.function not in unnamed]
    accelerators = [each for each in accelerators if missing.isdisjoint(amounts([each]))]
    own = frozenset(key.removeprefix(OWN) for key in noted if key.startswith(OWN))
    ours = (*fpga_prefixes, *accelerator_prefixes, OWN)
    others = {key: units for key, units in noted.items() if not key.startswith(ours)}
    return EarlierRequests(fpga, accelerators, own, others)


def _missing_resources(ref: ContainerRef, requests: Sequence[ResourceRequest]) -> set[str]:
    """Return the resources of which a container has less than the requests stand for together."""
    unread = Refusals()  # the resources are read again with those that the container requests now
    missing = set()
    for resource, amount in amounts(requests).items():
        count = read_count(ref, resource, unread)
        # Our patch writes 0 units too.
        if count is None or amount > count.units:
            missing.add(resource)
    return missing


def _unnamed_functions(
    ref: ContainerRef, requests: Sequence[ResourceRequest]
) -> Counter[Function | None]:
    """Return the functions that the requests need and a container's variables don't name."""
    needed = Counter[Function | None](
        function for each in requests for function in each.functions()
    )
    if needed:
        needed.subtract(read_functions(environment(ref, RESERVED)[0]).by_number.values())
    return +needed
