"""POST, PUT, PATCH and DELETE of any resource, in the order of steps of a real API server.

Creation: decode and default → built-in admission → mutating webhooks → system fields → validation →
validating webhooks → storage. Changes take the same steps, with the stored object as the base.
"""

import json
import re
import secrets
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from simulator.apiserver import crd, pods, slices
from simulator.apiserver.admission import Admission, with_defaults
from simulator.apiserver.calls import (
    APPLY,
    ApiCall,
    Operation,
    StatusError,
    bad_request,
    conflict,
    invalid,
    invalid_value,
    not_found,
)
from simulator.apiserver.crd import CelError, compile_expression
from simulator.apiserver.resources import (
    DEFINITIONS,
    MUTATING,
    NAMESPACES,
    PATCH_ANNOTATION,
    PODS,
    SLICES,
    VALIDATING,
    Json,
    Resource,
    ResourceTable,
    Target,
)
from simulator.apiserver.store import Store, stamped, timestamp

_SYSTEM = (
    *("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
    *("managedFields", "resourceVersion", "generation"),
)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


class Writer:
    def __init__(
        self,
        store: Store,
        table: ResourceTable,
        admission: Admission,
        dropped: Collection[str],
    ) -> None:
        self._store = store
        self._table = table
        self._admission = admission
        self._dropped = dropped

    async def create(self, call: ApiCall, body: Json) -> Json:
        target, resource = call.target, call.target.resource
        item = _decoded(call, body)
        metadata = item["metadata"]
        _claim(target, metadata)
        if resource.namespaced:
            self.existing(Target(NAMESPACES, name=target.namespace))
        for name in _SYSTEM:
            metadata.pop(name, None)
        if resource is PODS:
            pods.admit(item)
        elif resource is SLICES:
            slices.complete(item, None, self._dropped)
        operation = Operation(call, "CREATE", metadata.get("name") or "")
        item = await self._admission.mutate(operation, item)
        self._fill_system_fields(resource, item)
        _validate(resource, item)
        await self._admission.validate(operation, item)
        path = resource.path_of(item)
        if path in self._store.shelf(resource).objects:
            message = f'{resource.qualified} "{item["metadata"]["name"]}" already exists'
            raise StatusError(409, message, reason="AlreadyExists")
        if call.dry_run:
            return item
        if call.patches:
            annotations = item["metadata"].setdefault("annotations", {})
            annotations[PATCH_ANNOTATION] = json.dumps(call.patches)
        return self._store.write(resource, item)

    async def replace(self, call: ApiCall) -> Json:
        item = _decoded(call, call.decode())
        _claim(call.target, item["metadata"])
        changed = await self._change(call, self.existing(call.target), item)
        if changed is None:
            raise conflict(call.target.resource, call.target.name)
        return changed

    async def patch(self, call: ApiCall) -> Json:
        """PATCH: the stored object with the body's changes, whatever changed it meanwhile."""
        while True:
            old = self.existing(call.target)
            patch = call.applied() if call.content_type == APPLY else call.decode()
            changed = await self._change(call, old, _decoded(call, merge(old, patch)))
            if changed is not None:
                return changed

    async def delete(self, call: ApiCall) -> Json:
        resource = call.target.resource
        old = self.existing(call.target)
        options = call.decode() if call.request.body else {}
        for field, wanted in options.get("preconditions", {}).items():
            if wanted != old["metadata"][field]:
                raise conflict(resource, call.target.name, f"the {field} is not {wanted}")
        operation = Operation(call, "DELETE", call.target.name, old)
        await self._admission.validate(operation, None)
        grace = call.query.get("gracePeriodSeconds", options.get("gracePeriodSeconds"))
        old = self.existing(call.target)  # another request may have deleted it during the review
        return old if call.dry_run else self._remove(resource, old, grace=grace)

    def existing(self, target: Target) -> Json:
        """The object of a target, or an error 404."""
        item = self._store.get(target.resource, target.path)
        if item is None:
            raise not_found(target.resource, target.name)
        return item

    async def _change(self, call: ApiCall, old: Json, item: Json) -> Json | None:
        """Store a changed object; None where the stored one changed during its review."""
        resource, path = call.target.resource, call.target.path
        kept, metadata = old["metadata"], item["metadata"]
        if metadata.get("resourceVersion", kept["resourceVersion"]) != kept["resourceVersion"]:
            raise conflict(resource, call.target.name)
        for name in _SYSTEM:
            metadata.pop(name, None)
            if name in kept:
                metadata[name] = kept[name]
        item = _allowed_parts(call.target, old, item)
        if resource is SLICES:
            slices.complete(item, old, self._dropped)
        if _without_metadata(item) != _without_metadata(old):
            item["metadata"]["generation"] = kept.get("generation", 1) + 1
        operation = Operation(call, "UPDATE", call.target.name, old)
        item = await self._admission.mutate(operation, item)
        if not call.target.subresource:
            _validate(resource, item)
        await self._admission.validate(operation, item)
        if call.dry_run or item == old:
            return item
        if self._store.get(resource, path) != old:
            return None
        return self._store.write(resource, item)

    def _fill_system_fields(self, resource: Resource, item: Json) -> None:
        metadata = item["metadata"]
        if not metadata.get("name") and (prefix := metadata.get("generateName")):
            suffix = "".join(secrets.choice(_SUFFIX) for _ in range(5))
            metadata["name"] = f"{prefix[:58]}{suffix}"
        metadata |= stamped({})
        if resource is PODS:
            item["status"] = {"phase": "Pending"}
        elif resource is NAMESPACES:
            own = {"kubernetes.io/metadata.name": metadata.get("name")}
            metadata["labels"] = metadata.get("labels", {}) | own
            item["status"] = {"phase": "Active"}
        elif resource is DEFINITIONS:
            item |= crd.established(item)

    # Deletion. A pod on a node waits for its kubelet to delete it with a grace period of 0. With a
    # namespace, all that is in it goes at once.

    def _remove(self, resource: Resource, old: Json, *, grace: object = None) -> Json:
        metadata, seconds = old["metadata"], _grace_seconds(resource, old, grace)
        if resource is NAMESPACES:
            self._empty_namespace(metadata["name"])
        if seconds == 0:
            return self._store.remove(resource, resource.path_of(old))
        if metadata.get("deletionTimestamp"):
            return old
        metadata["deletionTimestamp"] = timestamp(datetime.now(UTC) + timedelta(seconds=seconds))
        metadata["deletionGracePeriodSeconds"] = seconds
        return self._store.write(resource, old)

    def _empty_namespace(self, name: str) -> None:
        for resource in self._table:
            if resource.namespaced:
                for item in tuple(self._store.all(resource, name)):
                    self._store.remove(resource, resource.path_of(item))


def _decoded(call: ApiCall, item: Json) -> Json:
    """The object of a body with its defaults; unknown fields of custom resources dropped."""
    resource = call.target.resource
    kind = (
        item.setdefault("apiVersion", resource.api_version),
        item.setdefault("kind", resource.kind),
    )
    if kind != (resource.api_version, resource.kind):
        raise bad_request(f"{' '.join(kind)} is no {resource.api_version} {resource.kind}")
    item = without_nulls(item)
    item["metadata"] = dict(item.get("metadata") or {})
    if resource.schema is not None:
        item = crd.prune(resource.schema, item)
    return with_defaults(resource, item)


def without_nulls(item: Json) -> Json:
    """The object without nulls, which Go leaves out."""

    def inner(value: object) -> object:
        if isinstance(value, dict):
            return without_nulls(value)
        return [inner(one) for one in value] if isinstance(value, list) else value

    return {name: inner(value) for name, value in item.items() if value is not None}


def _claim(target: Target, metadata: Json) -> None:
    """Check name and namespace against the path, and fill in what the path says."""
    if not target.resource.namespaced:
        metadata.pop("namespace", None)
    elif metadata.setdefault("namespace", target.namespace) != target.namespace:
        raise bad_request("the namespace of the object is not the one on the request")
    if target.name and metadata.setdefault("name", target.name) != target.name:
        raise bad_request("the name of the object is not the one on the URL")


def _validate(resource: Resource, item: Json) -> None:
    name = item["metadata"].get("name", "")
    if not _NAME.fullmatch(name):
        cause = invalid_value("metadata.name", name, "must be a lowercase RFC 1123 subdomain")
        raise invalid(resource, name, [cause])
    if resource is PODS:
        pods.validate(item)
    if resource is SLICES:
        slices.validate(item)
    if resource in (MUTATING, VALIDATING):
        _check_conditions(item)
    if resource.schema and (causes := crd.validate(resource.schema, item)):
        raise invalid(resource, name, causes)


def _check_conditions(configuration: Json) -> None:
    try:
        for webhook in configuration.get("webhooks") or []:
            for condition in webhook.get("matchConditions") or []:
                compile_expression(condition["expression"])
    except CelError as error:
        raise bad_request(f"matchConditions: {error}") from error


def merge(target: Json, patch: Json) -> Json:
    """RFC 7386; the directives of a strategic merge patch (`$…`) are left out."""
    result = dict(target)
    for name, value in patch.items():
        if value is None or name.startswith("$"):
            result.pop(name, None)
        elif isinstance(value, dict):
            before = result.get(name)
            result[name] = merge(before if isinstance(before, dict) else {}, value)
        else:
            result[name] = value
    return result


def _allowed_parts(target: Target, old: Json, item: Json) -> Json:
    """A status write changes the status, another write everything else."""
    if target.subresource == "status":
        return old | {"metadata": item["metadata"], "status": item.get("status", {})}
    if "status" in target.resource.subresources and "status" in old:
        return item | {"status": old["status"]}
    return item


def _without_metadata(item: Json) -> Json:
    return {name: value for name, value in item.items() if name not in ("metadata", "status")}


def _grace_seconds(resource: Resource, old: Json, asked: object) -> int:
    """Seconds until a deletion takes effect: only pods that run somewhere get any."""
    if resource is not PODS or not old["spec"].get("nodeName"):
        return 0
    if old["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    if asked is None:
        return int(old["spec"].get("terminationGracePeriodSeconds", 30))
    return int(str(asked))
