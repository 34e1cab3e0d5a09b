"""GET of collections: lists in pages that stay at the revision at which they began, and selectors.

Selectors compare with `=`, `==` and `!=`: labels, and of fields `metadata.name`,
`metadata.namespace` and those a kind declares (`resources`). Another field is refused, as by a real
API server.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from simulator.apiserver.resources import Resource, Target
from simulator.apiserver.status import StatusError, bad_request
from simulator.apiserver.store import Store
from simulator.apiserver.wire import Json, decode, encode

Predicate: TypeAlias = Callable[[Json], bool]


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list.

    Args:
        items: the objects, as stored.
        revision: at which they were read.
        token: where to go on; empty at the end.
        remaining: how many follow, None where that is unknown.
    """

    items: list[bytes]
    revision: int
    token: str = ""
    remaining: int | None = None


def read_list(store: Store, target: Target, query: Mapping[str, str]) -> Page:
    """One page of a list."""
    shelf = store.shelf(target.resource)
    limit = int(query.get("limit") or 0)
    revision, start = store.revision, ""
    if token := query.get("continue"):
        revision, start = decode_token(token)
    objects = shelf.at(revision)
    if objects is None:
        message = "The provided continue parameter is too old to display a consistent list result."
        raise StatusError(410, message)
    selects = predicate_of(target, query)
    prefix = target.prefix
    paths = [path for path in sorted(objects) if path.startswith(prefix) and path >= prefix + start]
    if selects is not None:
        paths = [path for path in paths if selects(decode(objects[path]))]
    if not limit or len(paths) <= limit:
        return Page([objects[path] for path in paths], revision)
    if not token:
        shelf.keep(revision)
    items = [objects[path] for path in paths[:limit]]
    following = encode_token(revision, f"{paths[limit - 1].removeprefix(prefix)}\0")
    return Page(items, revision, following, None if selects else len(paths) - limit)


def list_body(resource: Resource, page: Page) -> bytes:
    """The list object, in the field order of its sort: sorted for custom resources."""
    kind, version = f"{resource.kind}List", resource.api_version
    metadata: Json = {"resourceVersion": str(page.revision)}
    if resource.custom or page.token:
        metadata["continue"] = page.token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    items = b",".join(page.items)
    head = encode({"apiVersion": version, "kind": kind, "metadata": metadata})
    if resource.custom:
        head = encode({"kind": kind, "metadata": metadata}, sort=True)
        return b'{"apiVersion":%s,"items":[%s],%s' % (encode(version), items, head[1:])
    return b'%s,"items":[%s]}' % (head[:-1], items)


def encode_token(revision: int, start: str) -> str:
    """A continue token as apiserver's `storage.EncodeContinue` makes it."""
    token = {"v": "meta.k8s.io/v1", "rv": revision, "start": start}
    return base64.urlsafe_b64encode(encode(token)).decode().rstrip("=")


def decode_token(token: str) -> tuple[int, str]:
    """Revision and first path of a continue token."""
    decoded = decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    return decoded["rv"], decoded["start"]


def revision_of(query: Mapping[str, str]) -> int | None:
    """The `resourceVersion` parameter; None where it is absent or 0 (whatever is there)."""
    return int(query.get("resourceVersion") or 0) or None


def predicate_of(target: Target, query: Mapping[str, str]) -> Predicate | None:
    """What a list or watch selects besides its namespace; None for everything."""
    tests = [
        _field_term(term.strip(), target.resource)
        for term in query.get("fieldSelector", "").split(",")
        if term
    ]
    tests += [
        _label_term(term.strip()) for term in query.get("labelSelector", "").split(",") if term
    ]
    if not tests:
        return None
    return lambda item: all(test(item) for test in tests)


def _label_term(term: str) -> Predicate:
    name, value, equal = _comparison(term)
    return lambda item: (labels_of(item).get(name) == value) is equal


def _field_term(term: str, resource: Resource) -> Predicate:
    path, wanted, equal = _comparison(term)
    if path not in resource.selectable and path not in ("metadata.name", "metadata.namespace"):
        raise bad_request(f"field label not supported: {path}")
    return lambda item: (_value_at(item, path) == wanted) is equal


def _comparison(term: str) -> tuple[str, str, bool]:
    name, _, value = term.replace("!=", "=").replace("==", "=").partition("=")
    return name, value, "!=" not in term


def _value_at(item: Json, path: str) -> str:
    value: object = item
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return "" if value is None else str(value)


def labels_of(item: Json | None) -> Mapping[str, str]:
    """The labels of an object."""
    return (item or {}).get("metadata", {}).get("labels") or {}
