"""What a container requests by one name, and the refusal of a name that nobody maps."""

from collections.abc import Sequence

import msgspec

from services import names
from services.mappings.accelerator import Effects
from services.mappings.index import NameTable
from services.mappings.model import Function, Mapping
from services.mappings.suggestions import known_names, nearest
from services.pods.pod import ContainerRef
from services.pods.refusals import RefusalReason, Refusals
from services.process.text import clip, plain, quote

SUGGESTED = 4
"""How many problems of a pod may suggest the nearest name: a search takes a millisecond."""

_REASON_SHOWN = 400  # characters of a mapping's error within a message


class ResourceRequest(msgspec.Struct, frozen=True, gc=False):
    """One logical name that a container requests, and what replaces it."""

    ref: ContainerRef
    key: str
    """The full name that is requested, as in limits."""
    resource: str
    """The physical name that replaces it, with domain."""
    units: int
    in_requests: bool
    """Whether the name is in requests too."""
    mapping: Mapping

    @property
    def amount(self) -> int:
        """How many of the resource the units are."""
        return self.units * self.mapping.resolution.count

    @property
    def effects(self) -> Effects | None:
        """What else the pod gets; None if nothing, or if no unit is requested."""
        return self.mapping.resolution.effects if self.units else None

    @property
    def function(self) -> Function | None:
        """What is to be programmed into each unit, None if nothing is."""
        return self.mapping.resolution.function

    def functions(self) -> list[Function]:
        """Return the function of each unit that is to be programmed."""
        function = self.function
        return [function] * self.units if function else []


def refuse_name(
    ref: ContainerRef,
    key: str,
    table: NameTable,
    other: NameTable,
    refusals: Refusals,
    *shared: NameTable,
) -> None:
    """Refuse a name that a table doesn't map, nor those that all namespaces share.

    `other` has the names of the other family.
    """
    name = key.partition("/")[2]
    namespace = f"namespace {quote(table.namespace)}"
    if name in table.rejected:
        reason = clip(table.rejected[name], _REASON_SHOWN)
        message = f"{plain(key)} can't be used: {reason}"
        refusals.add(RefusalReason.UNUSABLE_MAPPING, ref, message)
        return
    if names.is_physical(name):
        code = RefusalReason.UNMAPPED_RESOURCE
        message = (
            f"{plain(key)} is a physical resource, and no mapping of {namespace} resolves to it"
        )
    else:
        code = RefusalReason.UNKNOWN_NAME
        message = f"{plain(key)} does not exist in {namespace}"
    is_compared = len(refusals.listed) < SUGGESTED
    message += _suggestion(name, table, other, shared, is_compared=is_compared)
    refusals.add(code, ref, message)


def _suggestion(
    name: str,
    table: NameTable,
    other: NameTable,
    shared: Sequence[NameTable],
    *,
    is_compared: bool,
) -> str:
    if name in other.by_name:
        return f"; {other.by_name[name].label} has this name, for another domain of resources"
    others = [each for each in shared if each.namespace != table.namespace]
    known = [each.by_name for each in (table, *others) if each.by_name]
    if not known:
        return "; the namespace has no mappings: ask an administrator for one"
    near = nearest(name, *known) if is_compared else None
    question = f"; did you mean {plain(near)}?" if near else "."
    return f"{question} Available: {'; '.join(map(known_names, known))}"
