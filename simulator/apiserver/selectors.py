"""Label and field selectors of lists and watches, and the selector objects of webhooks.

Label selectors: `a=b`, `a==b`, `a!=b`, `a`, `!a`, `a in (b,c)`, `a notin (b,c)`. Field selectors:
`=`, `==` and `!=` on `metadata.name`, `metadata.namespace` and the fields a kind declares
(`resources`); another field is refused, as by a real API server.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from simulator.apiserver import status
from simulator.apiserver.wire import Json

Predicate: TypeAlias = Callable[[Json], bool]
_SET = re.compile(r"^(\S+)\s+(in|notin)\s+\(([^)]*)\)$")
_TERMS = re.compile(r",(?![^(]*\))")


def labels(selector: str) -> Predicate:
    """A predicate over objects from a `labelSelector` parameter."""
    terms = [_label_term(term.strip()) for term in _TERMS.split(selector) if term.strip()]

    def matches(item: Json) -> bool:
        found: Mapping[str, str] = item.get("metadata", {}).get("labels") or {}
        return all(term(found) for term in terms)

    return matches


def _label_term(term: str) -> Callable[[Mapping[str, str]], bool]:
    if found := _SET.match(term):
        key, operator, listed = found.groups()
        values = {value.strip() for value in listed.split(",")}
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if "!=" in term:
        key, _, value = term.partition("!=")
        return lambda labels: labels.get(key.strip()) != value.strip()
    if "=" in term:
        key, _, value = term.replace("==", "=", 1).partition("=")
        return lambda labels: labels.get(key.strip()) == value.strip()
    if term.startswith("!"):
        return lambda labels: term[1:].strip() not in labels
    if " " in term:
        raise status.bad_request(f"unable to parse requirement: {term!r}")
    return lambda labels: term in labels


def fields(selector: str, allowed: Collection[str]) -> Predicate:
    """A predicate over objects from a `fieldSelector` parameter."""
    terms = [_field_term(term.strip(), allowed) for term in selector.split(",") if term.strip()]
    return lambda item: all(term(item) for term in terms)


def _field_term(term: str, allowed: Collection[str]) -> Predicate:
    negated = "!=" in term
    path, _, wanted = term.replace("!=", "=", 1).replace("==", "=", 1).partition("=")
    if path not in allowed and path not in ("metadata.name", "metadata.namespace"):
        raise status.bad_request(
            f'Unable to find "{path}" that match label selector "", field selector "{term}":'
            f" field label not supported: {path}"
        )
    return lambda item: (_value_at(item, path) == wanted) is not negated


def _value_at(item: Json, path: str) -> str:
    value: object = item
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return "" if value is None else str(value)


def matches_object(selector: Json | None, labels: Mapping[str, str]) -> bool:
    """Whether labels fit a `LabelSelector` object (an empty or absent one fits everything)."""
    selector = selector or {}
    wanted: Mapping[str, str] = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _meets(requirement, labels) for requirement in selector.get("matchExpressions") or []
    )


def _meets(requirement: Json, labels: Mapping[str, str]) -> bool:
    key, values = requirement.get("key", ""), requirement.get("values") or []
    match requirement.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case other:
            raise status.bad_request(f'"{other}" is not a valid label selector operator')
