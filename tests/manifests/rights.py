"""What the manifests' roles allow, and what real processes asked an API server for."""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import NamedTuple

from services.devices.dra import DRIVER
from simulator.apiserver.http_server import Request
from simulator.apiserver.resources import parse
from simulator.apiserver.standin import ApiServerStandIn
from tests.manifests.rendering import Json, of_kind

CREATED = 201
VERBS = {"PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Access(NamedTuple):
    """A request, or a right: without namespace or name it holds for all of them."""

    verb: str
    group: str
    resource: str
    namespace: str
    name: str

    def allows(self, request: "Access") -> bool:
        """Whether this right is enough for a request."""
        return (
            self[:3] == request[:3]
            and self.namespace in ("", request.namespace)
            and self.name in ("", request.name)
        )


def rights_of(items: list[Json], account: str) -> set[Access]:
    """What an account may do by the roles that are bound to it."""
    found = set()
    for kind in ("Role", "ClusterRole"):
        bound = {
            (binding["metadata"].get("namespace", ""), binding["roleRef"]["name"])
            for binding in of_kind(items, f"{kind}Binding")
            if account in {subject["name"] for subject in binding["subjects"]}
        }
        for role in of_kind(items, kind):
            namespace = role["metadata"].get("namespace", "")
            if (namespace, role["metadata"]["name"]) in bound:
                found |= {right for rule in role["rules"] for right in _split(rule, namespace)}
    return found


def _split(rule: Json, namespace: str) -> Iterator[Access]:
    names = rule.get("resourceNames", ("",))
    parts = (rule["verbs"], rule["apiGroups"], rule["resources"], [namespace], names)
    return map(Access._make, product(*parts))


def asked(api: ApiServerStandIn) -> set[Access]:
    """All that was asked for since the start."""
    found = set()
    for seen in api.seen:
        request = seen.request
        target = parse(request.path, api.table)
        assert target is not None, f"{request.target} is no object's or list's"
        verb = VERBS.get(request.method) or _reading(request, target.name)
        resource = target.resource.plural + (f"/{target.subresource}" if target.subresource else "")
        made = Access(verb, target.resource.group, resource, target.namespace, target.name)
        found.add(made)
        if made.resource == "resourceclaims/status":  # the API server asks for it then
            driver = made._replace(resource="resourceclaims/driver", name=DRIVER)
            found.add(driver._replace(verb=f"associated-node:{verb}"))
        if verb == "patch" and seen.code == CREATED:  # server-side apply needs both verbs then
            found.add(made._replace(verb="create"))
    return found


def _reading(request: Request, name: str) -> str:
    if request.method == "POST":
        return "create"
    if request.is_watch:
        return "watch"
    return "get" if name else "list"


def beyond(rights: Iterable[Access], requests: Iterable[Access]) -> set[Access]:
    return {each for each in requests if not any(right.allows(each) for right in rights)}


def idle(rights: Iterable[Access], requests: Iterable[Access]) -> set[Access]:
    return {right for right in rights if not any(right.allows(each) for each in requests)}
