"""The JSON Patch for a pod: the least that must change, and never a whole map or list.

Every write is an ``add``, which sets a member of an object whether it is there or not, or adds a
list's last element; so what other webhooks wrote beside it stays. RFC 6902.

Operations on containers are spelled without an encoder, since that is half of the work for a pod
that asks for what none asked for lately. What stands in them (names of mappings, domains, ids,
numbers) has nothing to be escaped in JSON: `mappings.parse` and the settings see to that. What a
pod says itself, the names of its containers, is in the note, which an encoder writes.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import msgspec

from services.admission.plan import Ask, Plan
from services.pods.functions import Function, new_variables
from services.pods.pod import REQUESTED_ANNOTATION, Pod

Operation: TypeAlias = dict[str, object]
"""One operation: ``op``, ``path``, and for ``add`` a ``value``."""

REMEMBERED = 256
"""How many containers' operations are remembered, as JSON."""

_FEW_UNITS = 64  # with more, operations are too long to be kept
_REQUESTED = msgspec.json.Decoder(dict[str, dict[str, int]])
_NOTE = msgspec.json.Encoder(order="sorted")
_ENCODER = msgspec.json.Encoder()


def document(pod: Pod, plans: Sequence[Plan]) -> bytes:
    """Return the JSON Patch that turns a pod into what is planned for it.

    Args:
        pod: as it came.
        plans: of the containers that ask by logical name, at least one.
    """
    parts = [_spelled(plan) for plan in plans]
    parts.append(_ENCODER.encode(_annotation_operation(pod, plans)))
    return b"[" + b",".join(parts) + b"]"


def _spelled(plan: Plan) -> bytes:
    """Return the operations on a container as JSON, without the brackets around them."""
    few = sum(plan.units.values()) <= _FEW_UNITS
    spell = _operations_as_json if few else _operations_as_json.__wrapped__
    spelled: bytes = spell(
        plan.place.path,
        tuple(plan.mapped),
        tuple(plan.direct),
        None if plan.env_is_empty else tuple(plan.written),
    )
    return spelled


def escaped(member: str) -> str:
    """Return the name of an object's member as JSON pointers spell it; RFC 6901."""
    return member.replace("~", "~0").replace("/", "~1")


_NOTE_PATH = f"/metadata/annotations/{escaped(REQUESTED_ANNOTATION)}"


@lru_cache(maxsize=REMEMBERED)  # pods differ in most things, but not in what they ask for
def _operations_as_json(
    path: str,
    mapped: tuple[Ask, ...],
    direct: tuple[Ask, ...],
    written: tuple[int, ...] | None,
) -> bytes:
    """Return the operations on a container.

    Args:
        path: the JSON pointer to it.
        mapped: what it asks for by logical name.
        direct: what it asks for by physical name.
        written: the numbers of the functions that its env spells already; None if its env has no
            variable at all.
    """
    operations = _resource_operations(path, mapped, direct)
    functions = [function for ask in mapped for function in ask.functions()]
    operations += _env_operations(path, functions, written)
    return ",".join(operations).encode()


def _resource_operations(path: str, mapped: tuple[Ask, ...], direct: tuple[Ask, ...]) -> list[str]:
    operations = []
    limits, requests = f"{path}/resources/limits/", f"{path}/resources/requests/"
    for ask in mapped:
        member = escaped(ask.key)
        operations.append(f'{{"op":"remove","path":"{limits}{member}"}}')
        if ask.in_requests:
            operations.append(f'{{"op":"remove","path":"{requests}{member}"}}')
    for resource in dict.fromkeys([ask.resource for ask in mapped]):
        asks = [ask for ask in mapped + direct if ask.resource == resource]
        units = sum([ask.units for ask in asks])
        end = f'{escaped(resource)}","value":"{units}"}}'
        operations.append(f'{{"op":"add","path":"{limits}{end}')
        if any(ask.in_requests for ask in asks):
            operations.append(f'{{"op":"add","path":"{requests}{end}')
    return operations


def _annotation_operation(pod: Pod, plans: Sequence[Plan]) -> Operation:
    """Return what notes in the pod's metadata what was asked for by logical name.

    Args:
        pod: as it came.
        plans: of the containers that ask by logical name.
    """
    annotations = pod.metadata.annotations if pod.metadata else None
    noted = _noted(annotations.requested if annotations else None)
    for plan in plans:
        container = noted.setdefault(plan.place.container.name, {})
        container.update(_asked(plan, container))
    text = _NOTE.encode(noted).decode()
    if pod.metadata is None:
        return _add("/metadata", {"annotations": {REQUESTED_ANNOTATION: text}})
    if annotations is None:
        return _add("/metadata/annotations", {REQUESTED_ANNOTATION: text})
    return _add(_NOTE_PATH, text)


def _add(path: str, value: object) -> Operation:
    return {"op": "add", "path": path, "value": value}


def _env_operations(
    path: str, functions: list[Function], written: tuple[int, ...] | None
) -> list[str]:
    variables = [
        f'{{"name":"{variable["name"]}","value":"{variable["value"]}"}}'
        for variable in new_variables(functions, written or ())
    ]
    if written is not None:
        return [f'{{"op":"add","path":"{path}/env/-","value":{each}}}' for each in variables]
    whole = f'{{"op":"add","path":"{path}/env","value":[{",".join(variables)}]}}'
    return [whole] if variables else []


def _noted(text: str | None) -> dict[str, dict[str, int]]:
    """Return what an earlier pass noted; what isn't in its form is not ours to keep."""
    if text is None:
        return {}
    try:
        return _REQUESTED.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}


def _asked(plan: Plan, noted: dict[str, int]) -> dict[str, int]:
    """Return the units that were asked for by each logical name, an earlier pass included.

    What an earlier pass noted counts only as far as physical units are there for it: the note may
    come from a pod that somebody copied and wrote anew.
    """
    if not noted:
        return {ask.key: ask.units for ask in plan.mapped}
    physical = {ask.key: ask.units for ask in plan.direct}
    asked = {}
    for ask in plan.mapped:
        before = noted.get(ask.key, 0)
        covered = 0 < before <= physical.get(ask.resource, 0)
        asked[ask.key] = ask.units + (before if covered else 0)
    return asked
