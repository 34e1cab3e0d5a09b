"""The claims of a pod: those that it names, and one for its extended resources."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from simulator.apiserver.pods import amount_of
from simulator.apiserver.resources import CLAIMS, Json
from simulator.apiserver.store import Store

EXTENDED = "resource.kubernetes.io/extended-resource-claim"


class NotYet(Exception):
    """A claim that a pod names is not there; the text says which."""


def claims_of(pod: Json, store: Store) -> list[Json]:
    """The claims that a pod names, its own or anybody's."""
    statuses = pod["status"].get("resourceClaimStatuses") or []
    made = {each["name"]: each.get("resourceClaimName") for each in statuses}
    found = []
    for entry in pod["spec"].get("resourceClaims") or []:
        name = entry.get("resourceClaimName") or made.get(entry["name"])
        claim = store.get(CLAIMS, f"{pod['metadata']['namespace']}/{name}") if name else None
        if claim is None:
            raise NotYet(f'waiting for resourceclaim "{name or entry["name"]}" to be created')
        found.append(claim)
    return found


@dataclass(slots=True)
class ExtendedRequests:
    """The requests for a pod's extended resources, and which container uses which."""

    requests: list[Json] = field(default_factory=list)
    mappings: list[Json] = field(default_factory=list)

    @property
    def spec(self) -> Json:
        return {"devices": {"requests": sorted(self.requests, key=lambda one: str(one["name"]))}}


def extended_requests(pod: Json, classes: Mapping[str, str]) -> ExtendedRequests:
    """The requests for a pod's resources that these classes serve, by resource name."""
    found = ExtendedRequests()
    containers = [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]
    for at, container in enumerate(containers):
        amounts = (container.get("resources") or {}).get("requests") or {}
        for index, resource in enumerate(sorted(amounts)):
            if resource not in classes or not (count := int(amount_of(amounts[resource]))):
                continue
            # As the scheduler names them (plugin dynamicresources, extendeddynamicresources.go).
            name = f"container-{at}-request-{index}"
            exactly = {"allocationMode": "ExactCount", "count": count}
            exactly |= {"deviceClassName": classes[resource]}
            found.requests.append({"name": name, "exactly": exactly})
            names = {"containerName": container["name"], "resourceName": resource}
            found.mappings.append(names | {"requestName": name})
    return found


def users_with(claim: Json, pod: Json) -> Iterable[Json]:
    """Whom a claim is reserved for, with a pod."""
    metadata = pod["metadata"]
    user = {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}
    before = (claim.get("status") or {}).get("reservedFor") or []
    return [*(each for each in before if each["uid"] != user["uid"]), user]
