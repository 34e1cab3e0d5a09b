"""The answer to what becomes of a pod: of the API server, or evaluated here."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from accelbind.cluster import Json, part
from accelbind.explain.dry_run import Admitted, Denied, pod_of
from accelbind.mappings import resource_of
from services.admission.mutate import Patched, Policy, Refused, Unchanged
from services.admission.preview import Explained, mutated_manifest
from services.mappings.accelerator import CLAIM_TEMPLATE
from services.mappings.index import MappingIndex
from services.mappings.model import Mapping as OneMapping
from services.pods.known_fields import manifest_problems, unread_parts
from services.pods.manifests import FoundPod
from services.pods.reasons import ReviewReason
from services.process.objects import Object
from services.process.problem import Problem
from services.process.text import plain, words

PATCHED: Final = "patched"
UNCHANGED: Final = "unchanged"
REFUSED: Final = "refused"

_WHY_UNCHANGED: Final[Mapping[str, str]] = {
    ReviewReason.NOTHING_ASKED: "no container asks for an accelerator",
    ReviewReason.ALREADY_PHYSICAL: "it asks by physical names only, and all of them are mapped",
}
_ADDED: Final = words(
    "affinity annotations claims env initContainers labels limits nodeSelector overhead"
    " priorityClassName requests resourceClaims resources runtimeClassName schedulingGates"
    " tolerations"
)
"""Fields that admission adds to some pods; others have defaults, which all pods get."""
_OF_ALL_PODS: Final = ("kube-api-access-", "node.kubernetes.io/")
"""How the names of volumes, and the keys of tolerations, begin that all pods get."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A name that a container requests, and its replacement."""

    container: str
    init: bool
    key: str
    count: int | str
    becomes: str
    resource: str
    """Empty if several came for several names, whose mappings aren't known."""
    mapping: OneMapping | None


class ExplainedClaim(msgspec.Struct, frozen=True, rename="camel"):
    """The driver's decision for a request of a claim, or why it is unknown."""

    claim: str
    """Its name in the pod."""
    request: str
    device_class: str
    message: str
    is_refused: bool = msgspec.field(default=False, name="refused")


@dataclass(frozen=True, slots=True)
class Answer:
    """What becomes of a pod."""

    found: FoundPod
    namespace: str
    outcome: str
    reasons: tuple[Problem, ...] = ()
    """Why it is refused, or stays as it is; subjects are containers."""
    message: str = ""
    author: str = ""
    """Who refuses it on the cluster; empty for accelbind's webhook, evaluated here."""
    rewrites: tuple[Rewrite, ...] = ()
    warnings: tuple[str, ...] = ()
    is_of_cluster: bool = False
    patch: tuple[dict[str, object], ...] = ()
    """Of accelbind's webhook; empty if the cluster was asked."""
    before: Object = field(default_factory=dict)
    after: Object = field(default_factory=dict)
    """What to show of the change; both empty if there is none."""
    pod: Object | None = None
    """The pod as it would be; None if it is refused."""
    assumed: str = ""
    """Why the cluster was not asked, and what was assumed."""
    claims: tuple[ExplainedClaim, ...] = ()
    hints: tuple[str, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Whether the pod is refused, or would wait for a claim that is."""
        return self.outcome == REFUSED or any(each.is_refused for each in self.claims)


# Evaluated here ----------------------------------------------------------------------------------


def evaluated(one: Explained, *, assumed: str) -> Answer:
    """The answer of accelbind's webhook."""
    result, found = one.result, one.found
    problems = tuple(manifest_problems(found))
    if isinstance(result, Refused):
        reasons = tuple(result.refusals)
        return Answer(
            *(found, one.namespace, REFUSED, reasons, result.message),
            warnings=problems,
            assumed=assumed,
        )
    warnings, pod = (*result.warnings, *problems), pod_of(found, one.namespace)
    if isinstance(result, Unchanged):
        reason = Problem(result.reason, _WHY_UNCHANGED[result.reason])
        return Answer(
            *(found, one.namespace, UNCHANGED, (reason,)),
            warnings=warnings,
            pod=pod,
            assumed=assumed,
        )
    rewrites = (
        Rewrite(
            *(each.ref.container.name, each.ref.init, each.key, each.total),
            *(each.resource, each.resource, each.mapping),
        )
        for each in result.rewrites
    )
    return Answer(
        *(found, one.namespace, PATCHED),
        rewrites=tuple(rewrites),
        warnings=warnings,
        patch=tuple(result.operations),
        before=found.manifest,
        after=mutated_manifest(found.manifest, result),
        pod=mutated_manifest(pod, Patched(result.operations, ())),
        assumed=assumed,
    )


# Of the API server -------------------------------------------------------------------------------


def answered(
    found: FoundPod, namespace: str, result: Admitted | Denied, index: MappingIndex, policy: Policy
) -> Answer:
    """The answer of the API server; `index` has the mappings that may be read."""
    unread = tuple(unread_parts(found))
    if isinstance(result, Denied):
        reason = Problem(result.code, result.message)
        return Answer(
            *(found, namespace, REFUSED, (reason,), result.message),
            author=result.author,
            warnings=(*result.warnings, *unread),
            is_of_cluster=True,
        )
    before = pod_of(found, namespace)
    after = _without_defaults(result.pod, before)
    rewrites = _rewrites(before, result.pod, namespace, index, policy)
    is_changed = after != before
    return Answer(
        *(found, namespace, PATCHED if is_changed else UNCHANGED),
        rewrites=tuple(rewrites),
        warnings=(*result.warnings, *unread),
        is_of_cluster=True,
        before=before if is_changed else {},
        after=after if is_changed else {},
        pod=result.pod,
    )


def _rewrites(
    before: Any,  # noqa: ANN401 - JSON
    after: Any,  # noqa: ANN401 - the same
    namespace: str,
    index: MappingIndex,
    policy: Policy,
) -> Iterator[Rewrite]:
    """Yield the names that are gone, each with what has come for it in its container.

    That is all that has come for any name, where the mapping does not tell.
    """
    templates = {
        str(each.get("name")): f"{CLAIM_TEMPLATE}{each.get('resourceClaimTemplateName')}"
        for each in after["spec"].get("resourceClaims") or ()
    }
    for group in ("initContainers", "containers"):
        now = {each["name"]: each for each in after["spec"].get(group) or ()}
        for container in before["spec"].get(group) or ():
            name, limits = container.get("name"), part(container, "resources", "limits")
            got = part(now.get(name, {}), "resources", "limits")
            gone = {key: units for key, units in limits.items() if key not in got}
            resources = {
                key: f"{key}: {units}"
                for key, units in got.items()
                if "/" in key and str(limits.get(key)) != units
            }
            came = [*resources.items(), *_claims(now.get(name, {}), templates)]
            for key, units in gone.items():
                mapping = _mapping(key, namespace, index, policy)
                resource = resource_of(mapping, key.partition("/")[0]) if mapping else ""
                if not resource and len(gone) == len(resources) == 1:
                    (resource,) = resources
                wanted = {resource, *_also(mapping)}
                own = [text for of, text in came if of in wanted]
                is_init = group == "initContainers"
                becomes = ", ".join(own or [text for _, text in came])
                if not own and len(gone) > 1:
                    becomes += ", together with the other names"
                yield Rewrite(str(name), is_init, key, units or 0, becomes, resource, mapping)


def _claims(container: Json, templates: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the template of each claim of a container, and what to call the claim."""
    for claim in part(container, "resources").get("claims") or ():
        name = str(claim.get("name"))
        yield templates.get(name, ""), f"claim {plain(name)}"


def _also(mapping: OneMapping | None) -> Iterator[str]:
    """Yield the further resources that a name stands for."""
    if mapping and (effects := mapping.resolution.effects):
        yield from (each.resource for each in effects.also)


def _mapping(key: str, namespace: str, index: MappingIndex, policy: Policy) -> OneMapping | None:
    name, own = key.partition("/")[2], index.namespace(namespace)
    if not key.startswith(policy.accelerator_prefixes):
        return own.by_name.get(name)
    return own.accelerators.by_name.get(name) or policy.shared(index).by_name.get(name)


def _without_defaults(after: Any, before: Any, *, whole: bool = False) -> Any:  # noqa: ANN401 - JSON
    """Return what came back, in the order and the words of what was sent, without defaults.

    An object that is `whole` has none.
    """
    if isinstance(after, dict) and isinstance(before, dict):
        keys = dict.fromkeys((*before, *after))
        kept = {
            key: _without_defaults(after[key], before.get(key), whole=key in _ADDED)
            for key in keys
            if key in after and (whole or key in before or key in _ADDED)
        }
        return _without_copies(kept, before)
    if isinstance(after, list):
        return [*_items(after, before if isinstance(before, list) else [])]
    is_same = isinstance(before, int) and after == str(before)  # a quantity
    return before if is_same else after


def _without_copies(kept: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    # The API server copies limits into requests.
    requests = kept.get("requests")
    if isinstance(requests, dict) and isinstance(kept.get("limits"), dict):
        own, limits = before.get("requests") or {}, kept["limits"]
        kept["requests"] = {
            key: each
            for key, each in requests.items()
            if key in own or str(limits.get(key)) != each
        }
    return {key: each for key, each in kept.items() if each not in ({}, []) or key in before}


def _items(after: list[Any], before: list[Any]) -> Iterator[Any]:
    named = {each.get("name"): each for each in before if isinstance(each, dict)}
    for number, each in enumerate(after):
        if not isinstance(each, dict):
            yield each
            continue
        label = str(each.get("name") or each.get("key") or "")
        sent = named.get(each["name"]) if "name" in each else None
        if "name" not in each and len(after) == len(before):
            sent = before[number]
        if sent is not None:
            yield _without_defaults(each, sent)
        elif each in before or not label.startswith(_OF_ALL_PODS):
            yield each
