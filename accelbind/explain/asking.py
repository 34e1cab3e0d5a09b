"""Ask about pods: an API server by a dry run, or accelbind's own rules."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from accelbind.dra.objects import ClaimObjects
from accelbind.explain.answer import Answer, answered, evaluated
from accelbind.explain.claims import FoundClaim, develop_hints, explain_claims, read_of_cluster
from accelbind.explain.dry_run import API_SERVER, Denied, DryRun, NotAsked, dry_run, may_create
from accelbind.mappings import misspelt_resources
from services.admission.mutate import Policy
from services.admission.preview import explain_pod
from services.kube.client import FORBIDDEN, NOT_FOUND, BadStatus, ClusterClient
from services.mappings.index import EMPTY_INDEX, MappingIndex, build_index
from services.mappings.model import MappingEntry
from services.mappings.source import list_entries
from services.pods.manifests import FoundPod
from services.process.errors import ClusterError
from services.process.text import plain

_PARAMETER: Final = re.compile(r"\{\{.{1,200}?\}\}")
_FILL: Final = "1"
"""Right in names, labels and quantities."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The pods that are asked about, each with its namespace, and the webhook's settings."""

    pods: Sequence[FoundPod]
    places: Sequence[str]
    claims: Sequence[FoundClaim]
    """Claims and templates that are asked about too."""
    policy: Policy
    unanswered: list[str] = field(default_factory=list)
    """Why some of the pods have no answer of the cluster."""

    @property
    def namespaces(self) -> list[str]:
        """Those whose mappings matter."""
        return sorted({*self.places, self.policy.shared_namespace} - {""})

    def here(self, index: MappingIndex) -> list[Answer]:
        """Evaluate the pods."""
        pods = zip(self.pods, self.places, strict=True)
        return [
            self._completed(self._evaluated(pod, place, index), index, self.claims)
            for pod, place in pods
        ]

    async def on_cluster(self, client: ClusterClient) -> list[Answer]:
        """Ask an API server about the pods. Raises ClusterError if it does not say."""
        index, unreadable = await self._read_index(client)
        allowed = {place: await may_create(client, place) for place in {*self.places}}
        answers = []
        for pod, place in zip(self.pods, self.places, strict=True):
            result: DryRun = NotAsked(f"you may not create pods in namespace {plain(place)}")
            asked = pod
            if allowed[place]:
                asked, result = await _ask(client, pod, place)
            if not isinstance(result, NotAsked):
                answer = answered(asked, place, result, index or EMPTY_INDEX, self.policy)
                answer = replace(answer, found=pod)
            elif index is not None and place not in unreadable:
                answer = self._evaluated(pod, place, index, result.reason)
            else:
                problem = unreadable.get(place) or next(iter(unreadable.values()))
                self.unanswered.append(f"{pod.label}: {result.reason}, and {problem}")
                continue
            answers.append(answer)
        if not answers:
            raise ClusterError("; ".join(dict.fromkeys(self.unanswered)))
        if index is None:
            return answers
        templates, objects = await read_of_cluster(client, answers, self.claims)
        claims = [*templates, *self.claims]
        return [
            each if each.namespace in unreadable else self._completed(each, index, claims, objects)
            for each in answers
        ]

    async def _read_index(
        self, client: ClusterClient
    ) -> tuple[MappingIndex | None, dict[str, str]]:
        """The mappings that say more of the answers, and why those of some namespaces don't.

        Without names that all namespaces share, there are none.
        """
        entries: list[MappingEntry] = []
        unreadable: dict[str, str] = {}
        for namespace in self.namespaces:
            try:
                entries += await list_entries(client, namespace)
            except BadStatus as error:
                if error.status not in (FORBIDDEN, NOT_FOUND):
                    raise
                unreadable[namespace] = str(error)
        is_none = len(unreadable) == len(self.namespaces)
        if is_none or self.policy.shared_namespace in unreadable:
            return None, unreadable
        return build_index(entries), unreadable

    def _evaluated(self, pod: FoundPod, place: str, index: MappingIndex, why: str = "") -> Answer:
        one = explain_pod(pod, index, self.policy, namespace=place)
        return evaluated(one, assumed=why and f"{why}; {self._assumed()}")

    def _assumed(self) -> str:
        shared, guard = self.policy.shared_namespace, ",".join(self.policy.guard)
        return (
            "evaluated here as by a webhook with"
            f" {f'--shared-namespace {shared}' if shared else 'no shared namespace'},"
            f" {f'--guard {guard}' if guard else 'no guard'} and"
            f" --max-units {self.policy.max_units}; quotas, pod security and other webhooks"
            " were not asked"
        )

    def _completed(
        self,
        answer: Answer,
        index: MappingIndex,
        found: Iterable[FoundClaim],
        objects: ClaimObjects | None = None,
    ) -> Answer:
        """Add what only the mappings tell: claims, and names that are probably misspelt."""
        pod, place = answer.found, answer.namespace
        misspelt = misspelt_resources(pod, index, self.policy, namespace=place)
        claims = explain_claims(answer, index.namespace(place), found, objects)
        return replace(answer, claims=(*claims,), hints=(*misspelt, *develop_hints(answer, index)))


async def _ask(client: ClusterClient, pod: FoundPod, place: str) -> tuple[FoundPod, DryRun]:
    """The API server's answer, and the pod that it is about: one without parameters."""
    first = await dry_run(client, pod, place)
    if not (isinstance(first, Denied) and pod.is_template and first.code == API_SERVER):
        return pod, first
    filled, parameter = _filled(pod)
    result = await dry_run(client, filled, place) if parameter else first
    if result == first or isinstance(result, NotAsked):
        return pod, result
    text = f"{parameter}, which its controller fills in, was asked about as {_FILL}"
    return filled, replace(result, warnings=(*result.warnings, text))


def _filled(pod: FoundPod) -> tuple[FoundPod, str]:
    """A template with values for its parameters, and the first one, such as `{{workflow.name}}`."""
    found: list[str] = []

    def fill(value: Any) -> Any:  # noqa: ANN401 - JSON
        if isinstance(value, dict):
            return {key: fill(each) for key, each in value.items()}
        if isinstance(value, list):
            return [fill(each) for each in value]
        if isinstance(value, str):
            found.extend(_PARAMETER.findall(value))
            return _PARAMETER.sub(_FILL, value)
        return value

    filled = replace(pod, manifest=fill(pod.manifest))
    return filled, plain(found[0]) if found else ""
