"""GET: objects, and lists in pages that stay at the revision at which they began."""

import base64
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from simulator.apiserver import selectors, status, wire
from simulator.apiserver.paths import Target
from simulator.apiserver.resources import Resource
from simulator.apiserver.selectors import Predicate
from simulator.apiserver.store import Store

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can"
    " start a new list without the continue parameter, or use the continue token in this response"
    " to retrieve the remainder of the results. Continuing with the provided token results in an"
    " inconsistent list - objects that were created, modified, or deleted between the time the"
    " first chunk was returned and now may show up in the list."
)


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


def predicate_of(target: Target, query: Mapping[str, str]) -> Predicate | None:
    """What a list or watch selects besides its namespace; None for everything."""
    tests: list[Predicate] = []
    if text := query.get("labelSelector"):
        tests.append(selectors.labels(text))
    if text := query.get("fieldSelector"):
        tests.append(selectors.fields(text, target.resource.selectable))
    if not tests:
        return None
    return lambda item: all(test(item) for test in tests)


def revision_of(query: Mapping[str, str]) -> int | None:
    """The `resourceVersion` parameter; None where it is absent or 0 (whatever is there)."""
    text = query.get("resourceVersion") or "0"
    if not text.isdigit():
        cause = status.invalid_value("resourceVersion", text, "strconv.ParseUint: invalid syntax")
        raise status.bad_request(cause.text())
    return int(text) or None


def read_list(store: Store, target: Target, query: Mapping[str, str]) -> Page:
    """One page of a list."""
    shelf = store.shelf(target.resource)
    prefix = f"{target.namespace}/" if target.namespace else ""
    predicate = predicate_of(target, query)
    limit = _number(query, "limit")
    revision, start = store.revision, prefix
    if token := query.get("continue"):
        asked, start = decode_token(token, prefix)
        revision = asked or store.revision
        if revision < shelf.oldest:
            fresh = encode_token(None, start.removeprefix(prefix))
            raise status.expired(_TOO_OLD, continue_token=fresh)
    elif (asked_version := revision_of(query)) and asked_version > store.revision:
        raise status.too_large_version(asked_version, store.revision)
    paths, objects = shelf.at(revision)
    first = bisect_left(paths, start)
    # "0" is the character after "/": the first path that is not in this namespace.
    end = bisect_left(paths, f"{target.namespace}0") if prefix else len(paths)
    items: list[bytes] = []
    for at in range(first, end):
        data = objects[paths[at]]
        if predicate is not None and not predicate(wire.decode(data)):
            continue
        if limit and len(items) == limit:
            last = paths[at - 1].removeprefix(prefix)
            remaining = None if predicate else end - at
            return Page(items, revision, encode_token(revision, f"{last}\0"), remaining)
        items.append(data)
    return Page(items, revision)


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name) or "0"
    if not text.isdigit():
        raise status.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def encode_token(revision: int | None, start: str) -> str:
    """A continue token as apiserver's `storage.EncodeContinue` makes it (-1: inconsistent)."""
    token = {"v": "meta.k8s.io/v1", "rv": -1 if revision is None else revision, "start": start}
    return base64.urlsafe_b64encode(wire.encode(token)).decode().rstrip("=")


def decode_token(token: str, prefix: str) -> tuple[int | None, str]:
    """Revision (None: the newest) and first path of a continue token."""
    try:
        decoded = wire.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        start, revision = str(decoded["start"]), int(decoded["rv"])
    except (ValueError, KeyError, TypeError) as error:
        raise status.bad_request(f"continue key is not valid: {error}") from error
    return (revision if revision > 0 else None), f"{prefix}{start}"


def list_body(resource: Resource, page: Page) -> bytes:
    """The list object, in the field order of its sort: sorted for custom resources."""
    kind = f"{resource.kind}List".encode()
    version = resource.api_version.encode()
    metadata: dict[str, object] = {}
    if resource.custom or page.token:
        metadata["continue"] = page.token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    items = b",".join(page.items)
    if resource.custom:
        metadata["resourceVersion"] = str(page.revision)
        return b'{"apiVersion":"%s","items":[%s],"kind":"%s","metadata":%s}' % (
            version,
            items,
            kind,
            wire.encode(metadata),
        )
    meta = wire.encode({"resourceVersion": str(page.revision)} | metadata)
    return b'{"kind":"%s","apiVersion":"%s","metadata":%s,"items":[%s]}' % (
        kind,
        version,
        meta,
        items,
    )
