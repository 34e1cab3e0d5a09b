"""`accelbind demo -f FILE`: own pods on a cluster of stand-ins that has the cards for them."""

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from rich.console import Console

from services.admission.mutate import Policy
from services.admission.preview import Explained, explain_pod
from services.devices.model import PluginMode
from services.mappings.folder import load_folder
from services.mappings.index import MappingIndex
from services.mappings.model import API_VERSION, Mode
from services.mappings.model import Mapping as OneMapping
from services.names import DOMAIN, UNIT_RESOURCE
from services.pods.manifests import FoundPod
from services.pods.quantity import parse_count
from services.pods.requests import asking_places
from services.process.errors import InvalidQuantity
from simulator.cards import NLB3, CardSpec
from simulator.demo import checks, show
from simulator.demo.acts import done_by_driver, newest_patch
from simulator.demo.api import Json, Refused
from simulator.demo.cluster import NodePlan, World
from simulator.demo.stage import Stage
from simulator.demo.suite import Suite, driver_log

PATIENCE = 20.0
"""Seconds for a pod to start, once its node has what it asks for."""
MOST_CARDS = 64
"""Of a resource: as many as a container may ask for."""

MOST_UNITS = 1024
"""Of a node in mode units."""

_DRIVERS = {Mode.AF: "opae", Mode.REGION: "dfl", Mode.REGIONDEVEL: "dfl"}
_GIVEN_UP = ("Failed", "Succeeded")


@dataclass(frozen=True, slots=True)
class OwnPod:
    """A pod of a manifest, as it is created.

    Args:
        file: where it is from, for people.
        namespace: where it goes.
        pod: what is sent.
    """

    file: str
    namespace: str
    pod: Json

    @property
    def path(self) -> str:
        """The collection of its namespace."""
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def text(self) -> str:
        """Its spec as YAML."""
        spec = {"spec": self.pod.get("spec", {})}
        text: str = yaml.safe_dump(spec, sort_keys=False, allow_unicode=True)
        return text


@dataclass(frozen=True, slots=True)
class OwnPods:
    """The pods of a manifest, and a cluster that has what they ask for."""

    pods: tuple[OwnPod, ...]
    world: World
    problems: tuple[str, ...]
    """What is wrong with mappings of the folder, a sentence each."""


def read(found: Sequence[tuple[str, FoundPod]], mappings: Path) -> OwnPods:
    """Plans a cluster for the pods of manifests.

    Args:
        found: the pods, each with the name of its file.
        mappings: a folder of AcceleratorFunctions and FpgaRegions.

    Raises:
        InvalidManifest: a pod can't be read.
        WorldError: the folder can't be read.
    """
    snapshot = load_folder(mappings)
    explained = [explain_pod(pod, snapshot.index, Policy(), namespace=None) for _, pod in found]
    asked: Counter[OneMapping] = Counter()
    for one in explained:
        for mapping, count in _asked(one, snapshot.index):
            asked[mapping] += count
    every = tuple(
        mapping
        for namespace in snapshot.index.namespaces
        for mapping in snapshot.index.namespace(namespace).by_name.values()
    )
    pods = tuple(
        _own(one, number, file)
        for number, (one, (file, _)) in enumerate(zip(explained, found, strict=True), 1)
    )
    world = World(
        nodes=tuple(_nodes(asked, sum(map(_units, explained)))),
        mappings=tuple(_object(one) for one in every),
        folder=mappings.resolve(),
        namespaces=tuple({pod.namespace for pod in pods} | {one.namespace for one in every}),
    )
    return OwnPods(pods, world, snapshot.problems)


def _asked(one: Explained, index: MappingIndex) -> Iterator[tuple[OneMapping, int]]:
    """The mappings that an admitted pod uses, by either of their names, and how many of each."""
    if one.is_refused:
        return
    known = index.namespace(one.namespace)
    for place in asking_places(one.found.pod, (f"{DOMAIN}/",)):
        resources = place.container.resources
        for key, quantity in ((resources and resources.limits) or {}).items():
            domain, _, name = key.partition("/")
            found = known.by_name.get(name) or next(iter(known.by_resource.get(name, ())), None)
            if domain == DOMAIN and found is not None and quantity is not None:
                yield found, parse_count(quantity)


def _units(one: Explained) -> int:
    """How many identical units a pod asks for, by the name that needs no mapping."""
    counts = 0
    for place in asking_places(one.found.pod, (UNIT_RESOURCE,)):
        resources = place.container.resources
        quantity = ((resources and resources.limits) or {}).get(UNIT_RESOURCE)
        with contextlib.suppress(InvalidQuantity):  # the API server says what is wrong with it
            counts += 0 if quantity is None else parse_count(quantity)
    return counts


def _own(one: Explained, number: int, file: str) -> OwnPod:
    """The pod as it is created: one from a template has a kind and a name of its own."""
    manifest: Json = dict(one.found.manifest)
    metadata: Json = dict(manifest.get("metadata") or {})
    if one.found.kind != "Pod" or not metadata.get("name"):
        metadata["name"] = f"{one.found.name.rstrip('-') or 'pod'}-{number}"
    metadata["namespace"] = one.namespace
    pod = {"apiVersion": "v1", "kind": "Pod", **manifest, "metadata": metadata}
    return OwnPod(Path(file).name, one.namespace, pod)


def _object(mapping: OneMapping) -> Json:
    """A mapping as the custom resource that it was read from."""
    spec = {"interfaceId": mapping.interface_id}
    if mapping.afu_id is not None:
        spec |= {"afuId": mapping.afu_id, "mode": str(mapping.mode)}
    metadata = {"name": mapping.name, "namespace": mapping.namespace}
    return {"apiVersion": API_VERSION, "kind": mapping.kind, "metadata": metadata, "spec": spec}


def _nodes(asked: Mapping[OneMapping, int], units: int) -> Iterator[NodePlan]:
    """A node for each mode that is asked for, with as many cards as the pods need at once."""
    if units:
        capacity = {UNIT_RESOURCE: min(units, MOST_UNITS)}
        yield NodePlan("node-units", str(PluginMode.UNITS), "", (), capacity)
        if not asked:
            return
    by_mode: dict[Mode, list[OneMapping]] = defaultdict(list)
    for mapping in asked:
        by_mode[mapping.mode].append(mapping)
    by_mode = by_mode or {Mode.AF: []}  # for pods that ask for nothing
    for mode, mappings in by_mode.items():
        counts: Counter[str] = Counter()
        for mapping in mappings:
            counts[mapping.resource] += asked[mapping]
        first = {mapping.resource: mapping for mapping in mappings}
        wanted = {name: max(1, min(count, MOST_CARDS)) for name, count in counts.items()}
        yield NodePlan(
            name=f"node-{mode}",
            mode=str(mode),
            driver=_DRIVERS[mode].upper(),
            cards=tuple(
                _card(first[name], mode) for name, count in wanted.items() for _ in range(count)
            ),
            capacity={f"{DOMAIN}/{name}": count for name, count in wanted.items()},
            bitstreams=tuple(dict.fromkeys(one.pair for one in mappings if one.pair)),
        )


def _card(mapping: OneMapping, mode: Mode) -> CardSpec:
    """A card that a mapping asks for; a region comes with a function that nobody wants."""
    carried = mapping.afu_id if mode is Mode.AF and mapping.afu_id else NLB3
    return CardSpec(driver=_DRIVERS[mode], interface_id=mapping.interface_id, afu_ids=(carried,))


@dataclass(frozen=True, slots=True)
class Trial:
    """Creates pods on a cluster that serves, and shows what becomes of each.

    Args:
        stage: its processes.
        suite: how to reach it.
        console: where to show it.
    """

    stage: Stage
    suite: Suite
    console: Console

    def of(self, number: int, own: OwnPod) -> bool:
        """Creates one and shows it; whether it runs."""
        name = own.pod["metadata"]["name"]
        self.console.print(show.title(f"Pod {own.namespace}/{name}", number))
        before = {plan.name: len(self._driven(plan)) for plan in self.suite.world.nodes}
        try:
            created = self.suite.api.post(own.path, own.pod)
        except Refused as refused:
            self.console.print(show.refusal(own, refused.status))
            return False
        patch = newest_patch(self.suite.audit)
        pod = self._settled(f"{own.path}/{created['metadata']['name']}")
        driven = [
            each
            for plan in self.suite.world.nodes
            for each in self._driven(plan)[before[plan.name] :]
        ]
        self.console.print(show.pod(own, pod, patch, driven))
        if _runs(pod):
            return True
        self.console.print(show.waiting(_troubles(pod) or self._events(own, name)))
        return False

    def _settled(self, path: str) -> Json:
        """The pod once it runs, can't, or has had its time."""
        deadline = time.monotonic() + PATIENCE

        def look() -> Json | None:
            pod = self.suite.api.get(path)
            over = _runs(pod) or _phase(pod) in _GIVEN_UP or _unschedulable(pod)
            return pod if over or time.monotonic() > deadline else None

        return self.stage.until(look, f"pod {path}", seconds=2 * PATIENCE)

    def _driven(self, plan: NodePlan) -> list[Json]:
        return done_by_driver(driver_log(self.stage.folder, plan))

    def _events(self, own: OwnPod, name: str) -> list[str]:
        """What the kubelet and others have said of it."""
        path = f"/api/v1/namespaces/{own.namespace}/events"
        every = self.suite.api.get(f"{path}?fieldSelector=involvedObject.name%3D{name}")["items"]
        return [f"{one['reason']}: {one['message']}" for one in every if one["type"] == "Warning"]


def _phase(pod: Json) -> str:
    return str(pod.get("status", {}).get("phase", ""))


def _runs(pod: Json) -> bool:
    """Whether all its containers have begun, init containers before them."""
    states = pod.get("status", {}).get("containerStatuses", [])
    begun = {
        one["name"] for one in states if one.get("state", {}).keys() & {"running", "terminated"}
    }
    names = {one["name"] for kind, one in checks.containers(pod) if kind == "containers"}
    return names <= begun and names <= checks.given(pod).keys()


def _unschedulable(pod: Json) -> bool:
    return any(one.get("reason") == "Unschedulable" for one in _conditions(pod))


def _conditions(pod: Json) -> list[Json]:
    found: list[Json] = pod.get("status", {}).get("conditions", [])
    return found


def _troubles(pod: Json) -> list[str]:
    """What its status says of why it doesn't run."""
    status = pod.get("status", {})
    told = [f"{_phase(pod)}: {status['message']}"] if status.get("message") else []
    return told + [
        f"{one['reason']}: {one.get('message', '')}"
        for one in _conditions(pod)
        if one.get("status") == "False" and one.get("reason") == "Unschedulable"
    ]
