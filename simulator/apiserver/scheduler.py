"""The scheduler: a node for each pending pod, with the devices of its claims.

It has the filters of the real one that matter to accelerators: cordon, node selector, requests
against allocatable minus what pods bound there use, and Dynamic Resource Allocation.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from uuid import uuid4

from simulator.apiserver.allocator import Inventory
from simulator.apiserver.claims import (
    EXTENDED,
    ExtendedRequests,
    NotYet,
    claims_of,
    extended_requests,
    users_with,
)
from simulator.apiserver.controllers import ClaimController, new_claim
from simulator.apiserver.crd import CelError
from simulator.apiserver.pods import SCHEDULER, Amounts, amount_of, is_over, requests_of, sum_of
from simulator.apiserver.resources import (
    CLAIMS,
    CLASSES,
    EVENTS,
    NODES,
    PODS,
    SLICES,
    TEMPLATES,
    Json,
)
from simulator.apiserver.store import Change, Store, event_on, stamped, timestamp

_ONE_POD = {"pods": Fraction(1)}


@dataclass(frozen=True, slots=True)
class Fit:
    """The allocations of a pod on a node that it fits, in the order of its claims."""

    node: str
    allocations: tuple[Json, ...] = ()
    extended: ExtendedRequests | None = None
    """What the last of the allocations is for, if the node serves extended resources by DRA."""


class Scheduler:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._controller = ClaimController(store)
        self._wake = asyncio.Event()
        self._inventory = Inventory((), (), ())

    async def run_forever(self) -> None:
        with contextlib.ExitStack() as listening:
            for resource in (PODS, NODES, SLICES, CLASSES, CLAIMS, TEMPLATES):
                listening.callback(self._store.listen(resource, self._on_change))
            while True:
                self._wake.clear()
                self.run_once()
                await self._wake.wait()

    def _on_change(self, _change: Change) -> None:
        self._wake.set()

    def run_once(self) -> None:
        """Try every pending pod, oldest first."""
        self._controller.run_once()
        pods = list(self._store.all(PODS))
        pending = [pod for pod in pods if _is_pending(pod)]
        nodes = list(self._store.all(NODES))
        taken: dict[str, Amounts] = {node["metadata"]["name"]: {} for node in nodes}
        for pod in pods if pending else []:
            if (node := pod["spec"].get("nodeName")) in taken and not is_over(pod):
                taken[node] = sum_of(taken[node], self._asked(pod))
        if pending:
            kinds = (SLICES, CLASSES, CLAIMS)
            self._inventory = Inventory(*(self._store.all(each) for each in kinds))
        pending.sort(key=lambda pod: int(pod["metadata"]["resourceVersion"]))
        for pod in pending:
            try:
                fits, problems = self._try(pod, nodes, taken)
            except (NotYet, CelError) as error:
                self._report(pod, str(error))
                continue
            if not fits:
                self._report(pod, unschedulable_text(problems))
                continue
            # The fewest pods, then the first by name: a test must know which.
            chosen = min(fits, key=lambda fit: (taken[fit.node].get("pods", 0), fit.node))
            taken[chosen.node] = sum_of(taken[chosen.node], self._asked(pod))
            self._reserve(pod, chosen)
            self.bind(pod, chosen.node)

    @staticmethod
    def _asked(pod: Json) -> Amounts:
        return sum_of(requests_of(pod), _ONE_POD)

    def _try(
        self, pod: Json, nodes: Iterable[Json], taken: Mapping[str, Amounts]
    ) -> tuple[list[Fit], list[list[str]]]:
        """Where a pod fits, and what speaks against the other nodes."""
        claims, asked = claims_of(pod, self._store), self._asked(pod)
        fits, problems = [], []
        for node in nodes:
            name = node["metadata"]["name"]
            served = self._served_by_claims(asked, node)
            rest = {key: amount for key, amount in asked.items() if key not in served}
            texts = _problems(pod, rest, node, taken)
            fit = None if texts else self._allocate(pod, claims, served, name)
            if fit is None:
                problems.append(texts or ["cannot allocate all claims"])
            else:
                fits.append(fit)
        return fits, problems

    def _served_by_claims(self, asked: Amounts, node: Json) -> dict[str, str]:
        """The extended resources that a node's plugin has none of and a class serves."""
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        return {
            name: class_name
            for name, amount in asked.items()
            if amount and (class_name := self._inventory.class_of(name))
            if not amount_of(allocatable.get(name, 0))
        }

    def _allocate(
        self, pod: Json, claims: Iterable[Json], served: Mapping[str, str], node: str
    ) -> Fit | None:
        """The allocations of claims on a node; those that have one already must have it there."""
        specs = []
        for claim in claims:
            allocation = (claim.get("status") or {}).get("allocation")
            if allocation is None:
                specs.append(claim["spec"])
            elif not _is_for(allocation, node):
                return None
        extended = extended_requests(pod, served) if served else None
        found = self._inventory.allocate(specs + ([extended.spec] if extended else []), node)
        return None if found is None else Fit(node, tuple(found), extended)

    def _reserve(self, pod: Json, fit: Fit) -> None:
        left = list(fit.allocations)
        claims = claims_of(pod, self._store)
        if fit.extended is not None:
            prefix = f"{pod['metadata']['name']}-extended-resources-"
            claims.append(new_claim(pod, prefix, fit.extended.spec, {EXTENDED: "true"}))
            pod["status"]["extendedResourceClaimStatus"] = {
                "resourceClaimName": claims[-1]["metadata"]["name"],
                "requestMappings": fit.extended.mappings,
            }
        for claim in claims:
            status = claim.get("status") or {}
            if "allocation" not in status:
                status["allocation"] = left.pop(0)
                self._inventory.take(status["allocation"])
            claim["status"] = status | {"reservedFor": users_with(claim, pod)}
            self._store.write(CLAIMS, claim)

    def bind(self, pod: Json, node: str) -> None:
        """Assign a pod to a node, as the binding subresource does."""
        pod["spec"]["nodeName"] = node
        self._set_condition(pod, {"status": "True"})
        self._store.write(PODS, pod)
        where = PODS.path_of(pod)
        self._event(pod, "Normal", "Scheduled", f"Successfully assigned {where} to {node}")

    def _report(self, pod: Json, message: str) -> None:
        # Once for each reason: the write wakes us, and the pod is tried again.
        condition = {"status": "False", "reason": "Unschedulable", "message": message}
        if self._set_condition(pod, condition):
            self._store.write(PODS, pod)
            self._event(pod, "Warning", "FailedScheduling", message)

    def _set_condition(self, pod: Json, values: Json) -> bool:
        """Set the condition PodScheduled; False if it was there already."""
        conditions = pod["status"].setdefault("conditions", [])
        old: Json = next((one for one in conditions if one["type"] == "PodScheduled"), {})
        if old | values == old:
            return False
        made = {"type": "PodScheduled", "lastTransitionTime": timestamp()} | values
        pod["status"]["conditions"] = [one for one in conditions if one is not old] + [made]
        return True

    def _event(self, pod: Json, kind: str, reason: str, message: str) -> None:
        what: Json = {"type": kind, "reason": reason, "message": message}
        what |= {"source": {"component": SCHEDULER}}
        item = event_on(pod["metadata"], uuid4().hex[:16], what, timestamp())
        self._store.write(EVENTS, item | {"metadata": stamped(item["metadata"])})


def _is_pending(pod: Json) -> bool:
    return (
        not pod["spec"].get("nodeName")
        and pod["spec"].get("schedulerName") == SCHEDULER
        and not is_over(pod)
        and not pod["metadata"].get("deletionTimestamp")
    )


def _is_for(allocation: Json, node: str) -> bool:
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    names = [name for term in terms for field in term["matchFields"] for name in field["values"]]
    return not terms or node in names


def _problems(pod: Json, asked: Amounts, node: Json, taken: Mapping[str, Amounts]) -> list[str]:
    """Why a node does not fit a pod, with the scheduler's texts."""
    spec = node.get("spec") or {}
    if spec.get("unschedulable"):
        return ["node(s) were unschedulable"]
    labels = node["metadata"].get("labels") or {}
    if not (pod["spec"].get("nodeSelector") or {}).items() <= labels.items():
        return ["node(s) didn't match Pod's node affinity/selector"]
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    held = taken[node["metadata"]["name"]]
    problems = []
    for name, amount in sorted(asked.items()):
        if "/" not in name and name not in allocatable:
            continue  # a stand-in node may be silent about what nobody runs out of
        if amount > amount_of(allocatable.get(name, 0)) - held.get(name, 0):
            problems.append("Too many pods" if name == "pods" else f"Insufficient {name}")
    return problems


def unschedulable_text(problems: Iterable[list[str]]) -> str:
    """The message of a pod that fits nowhere, as the real scheduler words it."""
    by_node = list(problems)
    if not by_node:
        return "no nodes available to schedule pods"
    reasons = Counter(reason for texts in by_node for reason in texts)
    counted = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return f"0/{len(by_node)} nodes are available: {counted}."
