"""The languages of PATCH: JSON Merge Patch, JSON Patch, strategic merge and server-side apply.

A strategic merge patch merges lists of objects by the keys of `shapes` and knows
`$patch: replace` and `$patch: delete`; `$retainKeys`, `$setElementOrder` and
`$deleteFromPrimitiveList` are accepted and only dropped. Custom resources don't take it, as on a
real API server. Server-side apply is a merge that creates what is missing, without field owners.
"""

from typing import Any

import jsonpatch
import jsonpointer

from simulator.apiserver.shapes import merge_key
from simulator.apiserver.wire import Json

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


class NotApplicable(ValueError):
    """A JSON Patch that does not fit its object."""


def merge(target: object, patch: object) -> Any:  # noqa: ANN401 - JSON
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result


def apply_json_patch(target: Json, operations: object) -> Json:
    """RFC 6902, through the package jsonpatch."""
    if not isinstance(operations, list):
        raise NotApplicable("a JSON patch is a list of operations")
    try:
        result = jsonpatch.JsonPatch(operations).apply(target)
    except (
        jsonpatch.JsonPatchException,
        jsonpointer.JsonPointerException,
        TypeError,
        KeyError,
    ) as error:
        raise NotApplicable(str(error)) from error
    if not isinstance(result, dict):
        raise NotApplicable("the patch leaves something that is not an object")
    return result


def strategic(target: object, patch: object) -> Any:  # noqa: ANN401 - JSON
    """A strategic merge patch: objects merge, lists with a merge key merge item by item."""
    if isinstance(patch, dict):
        return _strategic_object(target, patch)
    if isinstance(patch, list) and (key := merge_key(patch)) is not None:
        return _strategic_list(key, target if isinstance(target, list) else [], patch)
    return patch


def _strategic_object(target: object, patch: Json) -> Any:  # noqa: ANN401 - JSON
    directive = patch.get("$patch")
    own = {name: value for name, value in patch.items() if not name.startswith("$")}
    if directive == "replace":
        return own
    if directive == "delete":
        return None
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in own.items():
        merged = None if value is None else strategic(result.get(name), value)
        if merged is None:
            result.pop(name, None)
        else:
            result[name] = merged
    return result


def _strategic_list(key: str, target: list[Any], patch: list[Any]) -> list[Any]:
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    result = list(target)
    for item in patch:
        places = [at for at, old in enumerate(result) if old.get(key) == item[key]]
        if item.get("$patch") == "delete":
            result = [old for at, old in enumerate(result) if at not in places]
        elif places:
            result[places[0]] = strategic(result[places[0]], item)
        else:
            result.append(strategic(None, item))
    return result
