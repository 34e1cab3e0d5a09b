"""POST, PUT, PATCH and DELETE of any resource, in the order of steps of a real API server.

Creation: decode and default → built-in admission → mutating webhooks → system fields → validation →
validating webhooks → storage. Changes take the same steps, with the stored object as the base.
`strategies` has what is special about each kind.
"""

import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import uuid4

import yaml

from simulator.apiserver import patches, reading, schemas, status, wire
from simulator.apiserver.admission import Admission
from simulator.apiserver.asking import ApiCall, check_kind, decode_object, timestamp
from simulator.apiserver.paths import Target
from simulator.apiserver.resources import NAMESPACES, PODS, Resource
from simulator.apiserver.status import StatusError
from simulator.apiserver.store import Store, path_of
from simulator.apiserver.strategies import Strategy, strategy_of
from simulator.apiserver.wire import Json

_SYSTEM = (
    "managedFields",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_ATTEMPTS = 5
"""Times a patch is tried on an object that changes meanwhile."""


class Writer:
    """Changes the store on behalf of requests."""

    def __init__(
        self,
        store: Store,
        admission: Admission,
        *,
        now: Callable[[], datetime],
        new_uid: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self._store = store
        self._admission = admission
        self._now = now
        self._new_uid = new_uid

    async def create(self, call: ApiCall, body: Json | None = None) -> Json:
        """Create an object, by default that in the request's body; returns it as stored."""
        resource = call.target.resource
        strategy = strategy_of(resource)
        item = self._decoded(call, strategy, call.decode() if body is None else body)
        metadata = _claim_metadata(call.target, item)
        self._check_namespace(call.target)
        for name in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
            metadata.pop(name, None)
        metadata.pop("generation", None)
        name = metadata.get("name") or ""
        strategy.admit(item)
        attributes = call.attributes("CREATE", "CreateOptions", name)
        if strategy.webhooks:
            item = await self._admission.mutate(attributes, item, strategy.default, call.trail)
        self._fill_system_fields(resource, strategy, item)
        _validate_name(resource, strategy, item)
        strategy.validate(item)
        if strategy.webhooks:
            await self._admission.validate(attributes, strategy.default(item), call.trail)
        path = resource.path(call.target.namespace, item["metadata"]["name"])
        if path in self._store.shelf(resource).objects:
            raise status.already_exists(resource.group, resource.plural, item["metadata"]["name"])
        return item if call.dry_run else self._store.write(resource, item)

    async def replace(self, call: ApiCall) -> Json:
        """PUT: the object in the body instead of the stored one."""
        resource, target = call.target.resource, call.target
        strategy = strategy_of(resource)
        old = self.existing(target)
        item = self._decoded(call, strategy, call.decode())
        metadata = _claim_metadata(target, item)
        if not metadata.get("resourceVersion") and strategy.needs_version:
            cause = status.invalid_value(
                "metadata.resourceVersion", 0, "must be specified for an update"
            )
            raise status.invalid(resource.group, resource.kind, target.name, [cause])
        return await self._change(call, strategy, old, item)

    async def patch(self, call: ApiCall) -> Json:
        """PATCH: the stored object with the body's changes; an apply creates what is missing."""
        if call.content_type == patches.APPLY and not self.is_stored(call.target):
            return await self.create(call, applied(call))
        strategy = strategy_of(call.target.resource)
        attempts_left = _ATTEMPTS
        while True:
            attempts_left -= 1
            old = self.existing(call.target)
            item = _patched(call, old)
            if item.get("metadata", {}).get("name") != call.target.name:
                raise status.bad_request("the name of the object can't be patched")
            item = self._decoded(call, strategy, item)
            try:
                return await self._change(call, strategy, old, item)
            except StatusError as error:
                meanwhile = self._store.get(call.target.resource, call.target.path)
                if error.reason != "Conflict" or meanwhile == old or not attempts_left:
                    raise

    async def delete(self, call: ApiCall) -> Json:
        """DELETE of one object; the object, or a Status, as the kind has it."""
        resource = call.target.resource
        strategy = strategy_of(resource)
        old = self.existing(call.target)
        options = decode_object(call.request.body) if call.request.body else {}
        _check_preconditions(call.target, old, options.get("preconditions") or {})
        attributes = call.attributes("DELETE", "DeleteOptions", call.target.name, old)
        if strategy.webhooks:
            await self._admission.validate(attributes, None, call.trail)
        grace = call.query.get("gracePeriodSeconds", options.get("gracePeriodSeconds"))
        gone = old if call.dry_run else self.remove(resource, old, grace=grace)
        if strategy.returns_deleted or gone["metadata"].get("deletionTimestamp"):
            return gone
        details = {"name": call.target.name, "group": resource.group, "kind": resource.plural}
        details["uid"] = old["metadata"]["uid"]
        return status.success({name: value for name, value in details.items() if value})

    async def delete_collection(self, call: ApiCall) -> bytes:
        """DELETE of all objects that a list would give; that list."""
        resource = call.target.resource
        page = reading.read_list(self._store, call.target, call.query)
        for data in page.items:
            if not call.dry_run:
                self.remove(resource, wire.decode(data), grace=None)
        return reading.list_body(resource, page)

    def remove(self, resource: Resource, old: Json, *, grace: object) -> Json:
        """Deletes at once, or marks for deletion what its kubelet or a finalizer holds.

        A pod on a node waits for its kubelet to delete it with a grace period of 0; a namespace
        waits until it is empty (`namespaces`).
        """
        metadata = old["metadata"]
        holds = metadata.get("finalizers") or resource is NAMESPACES
        seconds = _grace_seconds(resource, old, grace)
        if not holds and seconds == 0:
            return self._store.remove(resource, path_of(resource, old))
        if metadata.get("deletionTimestamp") and not (seconds == 0 and resource is PODS):
            return old
        metadata.setdefault(
            "deletionTimestamp", timestamp(self._now() + timedelta(seconds=seconds))
        )
        metadata["deletionGracePeriodSeconds"] = seconds
        if resource is NAMESPACES:
            old.setdefault("status", {})["phase"] = "Terminating"
        return self._store.write(resource, old)

    def is_stored(self, target: Target) -> bool:
        """Whether the object of a target exists."""
        return target.path in self._store.shelf(target.resource).objects

    def existing(self, target: Target) -> Json:
        """The object of a target, or an error 404."""
        found = self._store.get(target.resource, target.path)
        if found is None:
            resource = target.resource
            raise status.not_found(resource.group, resource.plural, target.name)
        return found

    async def _change(self, call: ApiCall, strategy: Strategy, old: Json, item: Json) -> Json:
        resource = call.target.resource
        _check_version(call.target, old, item)
        item = strategy.default(_only_allowed_parts(call.target, old, item))
        for name in _SYSTEM:
            _keep_system_field(name, old, item)
        _count_generation(resource, old, item)
        attributes = call.attributes("UPDATE", "UpdateOptions", call.target.name, old)
        if strategy.webhooks:
            item = await self._admission.mutate(attributes, item, strategy.default, call.trail)
        if strategy.validate_update is not None:
            strategy.validate_update(old, item)
        else:
            strategy.validate(item)
        if strategy.webhooks:
            await self._admission.validate(attributes, item, call.trail)
        return self._store_changed(call, old, item)

    def _store_changed(self, call: ApiCall, old: Json, item: Json) -> Json:
        resource, path = call.target.resource, call.target.path
        if call.dry_run:
            return item
        current = self._store.get(resource, path)
        if current is None:
            raise status.not_found(resource.group, resource.plural, call.target.name)
        item["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if item == old:
            return old
        if current["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]:
            raise status.conflict(resource.group, resource.plural, call.target.name)
        metadata = item["metadata"]
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            held = resource is NAMESPACES or metadata.get("deletionGracePeriodSeconds", 0)
            if not held:
                self._store.write(resource, item)
                return self._store.remove(resource, path)
        return self._store.write(resource, item)

    def _decoded(self, call: ApiCall, strategy: Strategy, item: Json) -> Json:
        """The object of a body with its defaults; unknown fields of custom resources dropped."""
        resource = call.target.resource
        check_kind(resource, item)
        item["metadata"] = dict(item.get("metadata") or {})
        if resource.custom and resource.schema is not None:
            item, dropped = schemas.prune(resource.schema, item)
            self._report_unknown(call, dropped)
        return strategy.default(item)

    @staticmethod
    def _report_unknown(call: ApiCall, dropped: list[str]) -> None:
        mode = call.query.get("fieldValidation") or "Warn"
        texts = [f'unknown field "{path}"' for path in dropped]
        if texts and mode == "Strict":
            resource = call.target.resource
            raise status.bad_request(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a'
                f" {resource.kind}: strict decoding error: {', '.join(texts)}"
            )
        if mode == "Warn":
            for text in texts:
                call.trail.warn(text)

    def _check_namespace(self, target: Target) -> None:
        if not target.resource.namespaced:
            return
        namespace = self._store.get(NAMESPACES, target.namespace)
        if namespace is None:
            raise status.not_found("", "namespaces", target.namespace)
        if namespace["metadata"].get("deletionTimestamp"):
            why = (
                f"unable to create new content in namespace {target.namespace} because it is"
                " being terminated"
            )
            resource = target.resource
            raise status.forbidden(resource.group, resource.plural, target.name, why)

    def _fill_system_fields(self, resource: Resource, strategy: Strategy, item: Json) -> None:
        metadata = item["metadata"]
        if not metadata.get("name") and (prefix := metadata.get("generateName")):
            suffix = "".join(secrets.choice(_SUFFIX) for _ in range(5))
            metadata["name"] = f"{prefix[:58]}{suffix}"
        if resource.counts_generations:
            metadata["generation"] = 1
        metadata["creationTimestamp"] = timestamp(self._now())
        metadata["uid"] = self._new_uid()
        if metadata.get("name"):
            strategy.prepare(item)


def _claim_metadata(target: Target, item: Json) -> Json:
    """Checks name and namespace against the path, and fills in what the path says."""
    metadata: Json = item["metadata"]
    if target.resource.namespaced:
        if metadata.get("namespace", target.namespace) != target.namespace:
            raise status.bad_request(
                "the namespace of the provided object does not match the namespace sent on the"
                " request"
            )
        metadata["namespace"] = target.namespace
    else:
        metadata.pop("namespace", None)
    if target.name and metadata.setdefault("name", target.name) != target.name:
        raise status.bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL"
            f" ({target.name})"
        )
    return metadata


def _validate_name(resource: Resource, strategy: Strategy, item: Json) -> None:
    name = item["metadata"].get("name") or ""
    if not name:
        cause = status.required("metadata.name", "name or generateName is required")
    elif problem := strategy.name_problem(name):
        cause = status.invalid_value("metadata.name", name, problem)
    else:
        return
    raise status.invalid(resource.group, resource.kind, name, [cause])


def _patched(call: ApiCall, old: Json) -> Json:
    resource = call.target.resource
    kind = call.content_type
    known = [patches.JSON_PATCH, patches.MERGE, patches.APPLY]
    if not resource.custom:
        known.append(patches.STRATEGIC)
    if kind not in known:
        raise status.unsupported_media(kind, known)
    if kind == patches.JSON_PATCH:
        try:
            operations = wire.decode(call.request.body)
            return patches.apply_json_patch(old, operations)
        except (patches.NotApplicable, ValueError) as error:
            message = f"the server rejected our request due to an error in our request: {error}"
            raise StatusError(422, "Invalid", message, details={}) from error
    body = applied(call) if kind == patches.APPLY else decode_object(call.request.body)
    merge = patches.merge if kind == patches.MERGE or resource.custom else patches.strategic
    result: Json = merge(old, body)
    return result


def applied(call: ApiCall) -> Json:
    """The object of a server-side apply."""
    if not call.query.get("fieldManager"):
        cause = status.required("fieldManager", "is required for apply patch")
        raise status.invalid("meta.k8s.io", "PatchOptions", "", [cause])
    try:
        item = yaml.safe_load(call.request.body)
    except yaml.YAMLError as error:
        raise status.bad_request(f"error decoding YAML: {error}") from error
    if not isinstance(item, dict):
        raise status.bad_request("error decoding YAML: not an object")
    item.setdefault("metadata", {}).pop("managedFields", None)
    return item


def _check_version(target: Target, old: Json, item: Json) -> None:
    resource, metadata, stored = target.resource, item["metadata"], old["metadata"]
    if metadata.get("uid", stored["uid"]) != stored["uid"]:
        why = (
            f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta:"
            f" {stored['uid']}"
        )
        raise status.conflict(resource.group, resource.plural, target.name, why)
    version = metadata.get("resourceVersion")
    if version and version != stored["resourceVersion"]:
        raise status.conflict(resource.group, resource.plural, target.name)


def _check_preconditions(target: Target, old: Json, conditions: Json) -> None:
    for name, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        wanted, found = conditions.get(name), old["metadata"].get(name)
        if wanted is not None and wanted != found:
            why = (
                f"Precondition failed: {label} in precondition: {wanted}, {label} in object"
                f" meta: {found}"
            )
            resource = target.resource
            raise status.conflict(resource.group, resource.plural, target.name, why)


def _only_allowed_parts(target: Target, old: Json, item: Json) -> Json:
    """A status write changes the status, another write everything else."""
    if target.subresource == "status":
        metadata = old["metadata"] if target.resource.custom else item["metadata"]
        return old | {"metadata": dict(metadata), "status": item.get("status", {})}
    if "status" in target.resource.subresources:
        rest = {name: value for name, value in item.items() if name != "status"}
        return rest | ({"status": old["status"]} if "status" in old else {})
    return item


def _keep_system_field(name: str, old: Json, item: Json) -> None:
    if name in old["metadata"]:
        item["metadata"][name] = old["metadata"][name]
    else:
        item["metadata"].pop(name, None)


def _count_generation(resource: Resource, old: Json, item: Json) -> None:
    if not resource.counts_generations:
        return
    generation = old["metadata"].get("generation", 1)
    outside = ("metadata", "status")
    before = {name: value for name, value in old.items() if name not in outside}
    after = {name: value for name, value in item.items() if name not in outside}
    item["metadata"]["generation"] = generation + (before != after)


def _grace_seconds(resource: Resource, old: Json, asked: object) -> int:
    """Seconds until a deletion takes effect: only pods that run somewhere get any."""
    if resource is not PODS or not old["spec"].get("nodeName"):
        return 0
    if old.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    if asked is None:
        return int(old["spec"].get("terminationGracePeriodSeconds", 30))
    text = str(asked)
    if not text.isdigit():
        raise status.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)
