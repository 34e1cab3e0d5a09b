"""What the manifests' roles allow, and what real processes asked an API server for."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from simulator.apiserver.http_server import Request
from simulator.apiserver.resources import parse
from simulator.apiserver.standin import ApiServerStandIn
from tests.manifests.rendering import Json, of_kind

CREATED = 201
VERBS = {"PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, as an API server judges it."""

    verb: str
    group: str
    resource: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Right:
    """One verb for one resource, of one rule.

    Attributes:
        namespace: Where; empty for everywhere.
        names: Of which objects; empty for all.
    """

    verb: str
    group: str
    resource: str
    namespace: str
    names: frozenset[str]

    def allows(self, ask: Ask) -> bool:
        """Whether it is enough for a request."""
        return (
            (self.verb, self.group, self.resource) == (ask.verb, ask.group, ask.resource)
            and (not self.namespace or self.namespace == ask.namespace)
            and (not self.names or ask.name in self.names)
        )


def rights_of(items: list[Json], account: str) -> list[Right]:
    """What an account may do by the roles that are bound to it, each verb and resource apart."""
    found = []
    for kind in ("Role", "ClusterRole"):
        bound = {
            (binding["metadata"].get("namespace", ""), binding["roleRef"]["name"])
            for binding in of_kind(items, f"{kind}Binding")
            if account in {subject["name"] for subject in binding["subjects"]}
        }
        for role in of_kind(items, kind):
            namespace = role["metadata"].get("namespace", "")
            if (namespace, role["metadata"]["name"]) in bound:
                found += [right for rule in role["rules"] for right in _split(rule, namespace)]
    return found


def _split(rule: Json, namespace: str) -> Iterator[Right]:
    names = frozenset(rule.get("resourceNames", ()))
    for verb in rule["verbs"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield Right(verb, group, resource, namespace, names)


def asked(api: ApiServerStandIn) -> set[Ask]:
    """All that was asked for since the start."""
    found = set()
    for seen in api.seen:
        request = seen.request
        target = parse(request.path, api.table)
        assert target is not None, f"{request.target} is no object's or list's"
        verb = VERBS.get(request.method) or _reading(request, target.name)
        resource = target.resource.plural + (f"/{target.subresource}" if target.subresource else "")
        found.add(Ask(verb, target.resource.group, resource, target.namespace, target.name))
        if verb == "patch" and seen.code == CREATED:  # server-side apply needs both verbs then
            found.add(Ask("create", target.resource.group, resource, target.namespace, target.name))
    return found


def _reading(request: Request, name: str) -> str:
    if request.method == "POST":
        return "create"
    if request.is_watch:
        return "watch"
    return "get" if name else "list"


def beyond(rights: Iterable[Right], asks: Iterable[Ask]) -> set[Ask]:
    """What was asked for and isn't allowed."""
    held = list(rights)
    return {ask for ask in asks if not any(right.allows(ask) for right in held)}


def idle(rights: Iterable[Right], asks: Iterable[Ask]) -> set[Right]:
    """What is allowed and nobody asked for."""
    made = list(asks)
    return {right for right in rights if not any(right.allows(ask) for ask in made)}
