"""`accelbind demo -f FILE`: your own pods on a cluster of stand-ins with the cards for them."""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from services.admission.mutate import Patched, Policy
from services.admission.preview import Explained, explain_pod
from services.devices.model import PluginMode
from services.mappings.folder import load_folder
from services.mappings.kinds import FPGA_VERSION
from services.mappings.model import Mapping as OneMapping
from services.mappings.model import Mode
from services.names import DOMAIN, UNIT_RESOURCE
from services.pods.manifests import FoundPod
from services.pods.pod import quantity_text
from services.pods.requests import parse_count, requesting_containers
from services.process.errors import InvalidQuantity
from simulator.cards import NLB3, CardSpec
from simulator.client import Json
from simulator.demo.cluster import DemoPod, NodePlan, World

MOST_CARDS = 64
"""Of a resource: as many as a container may ask for."""

MOST_UNITS = 1024
"""Of a node in mode units."""

_DRIVERS = {Mode.AF: "opae", Mode.REGION: "dfl", Mode.REGIONDEVEL: "dfl"}


@dataclass(frozen=True, slots=True)
class OwnPods:
    """The pods of manifests, and a cluster that has what they ask for."""

    world: World
    problems: tuple[str, ...]
    """What is wrong with mappings of the folder, a sentence each."""


def read(found: Iterable[FoundPod], mappings: Path) -> OwnPods:
    """Plan a cluster for pods and a folder of mappings."""
    snapshot = load_folder(mappings)
    explained = [
        explain_pod(pod, snapshot.index, Policy(), namespace=pod.namespace_among(None))
        for pod in found
    ]
    asked: Counter[OneMapping] = Counter()
    units = 0
    for one in explained:
        known = snapshot.index.namespace(one.namespace)
        for resource, count in _requested(one):
            domain, _, name = resource.partition("/")
            resolving = (one for one in known.by_name.values() if one.resolution.resource == name)
            mapping = known.by_name.get(name) or next(resolving, None)
            if resource == UNIT_RESOURCE:
                units += count
            elif domain == DOMAIN and mapping is not None and not one.is_refused:
                asked[mapping] += count
    others, labels = _of_others(explained)
    every = tuple(
        mapping
        for namespace in snapshot.index.namespaces
        for mapping in snapshot.index.namespace(namespace).by_name.values()
    )
    namespaces = {one.namespace for one in explained} | {one.namespace for one in every}
    world = World(
        nodes=tuple(replace(plan, others=others, labels=labels) for plan in _nodes(asked, units)),
        mappings=tuple(_object(one) for one in every),
        folder=mappings.resolve(),
        pods=tuple(_pod(one, number) for number, one in enumerate(explained, 1)),
        namespaces=tuple(namespaces),
    )
    return OwnPods(world, (*snapshot.unread, *snapshot.problems))


def _requested(one: Explained) -> Iterator[tuple[str, int]]:
    """The resources that a pod requests of us, by any of the names, with their counts."""
    for place in requesting_containers(one.found.pod, (f"{DOMAIN}/", UNIT_RESOURCE)):
        resources = place.container.resources
        for resource, quantity in ((resources and resources.limits) or {}).items():
            with contextlib.suppress(InvalidQuantity):  # the API server says what is wrong with it
                yield resource, parse_count(quantity_text(quantity) or "0")


def _of_others(explained: Iterable[Explained]) -> tuple[Counter[str], dict[str, str]]:
    """The resources of other plugins that names stand for, and the labels of their nodes."""
    counts: Counter[str] = Counter()
    labels: dict[str, str] = {}
    patched = (one.result for one in explained if isinstance(one.result, Patched))
    for rewrite in (each for result in patched for each in result.rewrites):
        resolution = rewrite.mapping.resolution
        if (effects := resolution.effects) is not None:
            counts[resolution.resource] += rewrite.total * resolution.count
            counts.update({also.resource: rewrite.total * also.count for also in effects.also})
            labels |= dict(effects.node_selector)
    return counts, labels


def _pod(one: Explained, number: int) -> DemoPod:
    """The pod as it is created: one from a template gets a kind and a name."""
    manifest: Json = dict(one.found.manifest)
    metadata: Json = dict(manifest.get("metadata") or {})
    if one.found.is_template or not metadata.get("name"):
        metadata["name"] = f"{one.found.name.rstrip('-') or 'pod'}-{number}"
    metadata["namespace"] = one.namespace
    pod = {"apiVersion": "v1", "kind": "Pod", **manifest, "metadata": metadata}
    return DemoPod(f"Pod {one.namespace}/{metadata['name']}", pod)


def _object(mapping: OneMapping) -> Json:
    """A mapping as the custom resource that it was read from."""
    spec = {"interfaceId": mapping.resolution.interface_id}
    if mapping.resolution.afu_id is not None:
        spec |= {"afuId": mapping.resolution.afu_id, "mode": str(mapping.resolution.mode)}
    metadata = {"name": mapping.name, "namespace": mapping.namespace}
    return {"apiVersion": FPGA_VERSION, "kind": mapping.kind, "metadata": metadata, "spec": spec}


def _nodes(asked: Mapping[OneMapping, int], units: int) -> Iterator[NodePlan]:
    """A node for each mode that is asked for, with as many cards as the pods need at once."""
    if units:
        capacity = {UNIT_RESOURCE: min(units, MOST_UNITS)}
        yield NodePlan("node-units", str(PluginMode.UNITS), "", (), capacity)
        if not asked:
            return
    by_mode: dict[Mode, list[OneMapping]] = defaultdict(list)
    for mapping in asked:
        by_mode[mapping.resolution.mode or Mode.AF].append(mapping)
    by_mode = by_mode or {Mode.AF: []}  # for pods that ask for nothing
    for mode, mappings in by_mode.items():
        counts: Counter[str] = Counter()
        for mapping in mappings:
            counts[mapping.resolution.resource] += asked[mapping]
        first = {mapping.resolution.resource: mapping for mapping in mappings}
        wanted = {name: max(1, min(count, MOST_CARDS)) for name, count in counts.items()}
        yield NodePlan(
            name=f"node-{mode}",
            mode=str(mode),
            driver=_DRIVERS[mode].upper(),
            cards=tuple(
                _card(first[name], mode) for name, count in wanted.items() for _ in range(count)
            ),
            capacity={f"{DOMAIN}/{name}": count for name, count in wanted.items()},
            bitstreams=tuple(
                dict.fromkeys(filter(None, (one.resolution.function for one in mappings)))
            ),
        )


def _card(mapping: OneMapping, mode: Mode) -> CardSpec:
    """A card that a mapping asks for; a region comes with a function that nobody wants."""
    interface_id, afu_id = mapping.resolution.interface_id, mapping.resolution.afu_id
    carried = afu_id if mode is Mode.AF and afu_id else NLB3
    return CardSpec(driver=_DRIVERS[mode], interface_id=interface_id, afu_ids=(carried,))
