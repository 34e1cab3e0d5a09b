"""What claims a pod has: those that it names, and one for its extended resources.

The requests of the latter, their names and their sharing by init containers are those of the
scheduler (`pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
        """The spec of the claim."""
        return {"devices": {"requests": sorted(self.requests, key=lambda one: str(one["name"]))}}


def extended_requests(pod: Json, classes: Mapping[str, str]) -> ExtendedRequests:
    """What to claim for a pod's resources that these classes serve, by resource name."""
    found = ExtendedRequests()
    for resource in sorted(classes):
        _add(found, list(_containers(pod)), resource, classes[resource])
    return found


def _containers(pod: Json) -> Iterator[tuple[bool, Json]]:
    """All containers, init containers first, and whether the next ones wait for their end."""
    for one in pod["spec"].get("initContainers") or []:
        yield one.get("restartPolicy") != "Always", one
    for one in pod["spec"]["containers"]:
        yield False, one


def _add(
    found: ExtendedRequests, containers: Sequence[tuple[bool, Json]], resource: str, name: str
) -> None:
    """Add one resource: first containers that stay, whose devices earlier ones use too."""
    lasting: dict[int, Json] = {}
    for at, (ends, container) in enumerate(containers):
        if not ends and (count := _count(container, resource)):
            lasting[at] = _request(at, container, resource, name, count)
            found.mappings.append(_mapping(container, resource, lasting[at]))
    short: list[tuple[Json, Json]] = []
    for at, (ends, container) in enumerate(containers):
        if not ends or not (missing := _count(container, resource)):
            continue
        for request in (one for index, one in lasting.items() if index > at and missing > 0):
            missing -= request["exactly"]["count"]
            found.mappings.append(_mapping(container, resource, request))
        if missing > 0:
            short.append((container, _request(at, container, resource, name, missing)))
    if short:
        most = max((one for _, one in short), key=lambda one: int(one["exactly"]["count"]))
        found.requests.append(most)
        found.mappings += [_mapping(container, resource, most) for container, _ in short]
    found.requests += lasting.values()


def _count(container: Json, resource: str) -> int:
    return int(amount_of(_requests(container).get(resource, 0)))


def _requests(container: Json) -> Json:
    amounts: Json = (container.get("resources") or {}).get("requests") or {}
    return amounts


def _request(at: int, container: Json, resource: str, class_name: str, count: int) -> Json:
    index = sorted(_requests(container)).index(resource)
    exactly = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": count}
    return {"name": f"container-{at}-request-{index}", "exactly": exactly}


def _mapping(container: Json, resource: str, request: Json) -> Json:
    names = {"containerName": container["name"], "resourceName": resource}
    return names | {"requestName": request["name"]}


def users_with(claim: Json, pod: Json) -> Iterable[Json]:
    """Whom a claim is reserved for, with a pod."""
    metadata = pod["metadata"]
    user = {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}
    before = (claim.get("status") or {}).get("reservedFor") or []
    return [*(each for each in before if each["uid"] != user["uid"]), user]
