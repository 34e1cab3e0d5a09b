"""What the demo shows: the nodes with their cards, the pods, and what must come of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

import yaml

from services.names import DOMAIN, function_name, region_name
from simulator.cards import CardSpec
from simulator.demo.api import Json

ARRIA10_OPAE = "ce48969398f05f33946d560708be108a"
ARRIA10_DFL = "69528db6eb31577a8c3668f9faa081f6"
D5005 = "bfac4d851ee856fe8c95865ce1bbaa2d"
NLB0 = "d8424dc4a4a3c413f89e433683f9040b"
NLB3 = "f7df405cbd7acf7222f144b0b93acd18"

NAMESPACE = "default"


def _full(name: str) -> str:
    return f"{DOMAIN}/{name}"


LOOPBACK = _full(function_name(ARRIA10_OPAE, NLB0))
LOOPBACK_3 = _full(function_name(D5005, NLB3))
REGION = _full(region_name(ARRIA10_DFL))


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A node: its cards, the mode of its plugin, and the capacity that it must get.

    In mode region it keeps bitstreams, each of an interface id and an AFU id.
    """

    name: str
    mode: str
    driver: str
    cards: tuple[CardSpec, ...]
    capacity: Mapping[str, int]
    bitstreams: tuple[tuple[str, str], ...] = ()


NODES = (
    NodePlan(
        "node-af",
        "af",
        "OPAE",
        (
            CardSpec(driver="opae", interface_id=ARRIA10_OPAE, afu_ids=(NLB0,)),
            CardSpec(driver="opae", interface_id=ARRIA10_OPAE, afu_ids=(NLB0,), numa_node=1),
            CardSpec(driver="opae", interface_id=D5005, afu_ids=(NLB3,), numa_node=1),
        ),
        {LOOPBACK: 2, LOOPBACK_3: 1},
    ),
    NodePlan(
        "node-region",
        "region",
        "DFL",
        (
            CardSpec(driver="dfl", interface_id=ARRIA10_DFL, afu_ids=(NLB3,)),
            CardSpec(driver="dfl", interface_id=ARRIA10_DFL, afu_ids=(NLB3,), numa_node=1),
        ),
        {REGION: 2},
        bitstreams=((ARRIA10_DFL, NLB0),),
    ),
)


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """What a container must end up with: resources, number of devices, variables."""

    name: str
    limits: Mapping[str, int]
    devices: int
    env: Mapping[str, str] = field(default_factory=dict)
    init: bool = False


@dataclass(frozen=True, slots=True)
class PodPlan:
    """A pod to create, and what must come of it: a node and containers, or a refusal."""

    file: str
    title: str
    node: str = ""
    containers: tuple[ContainerPlan, ...] = ()
    refusal: tuple[str, ...] = ()
    """Words that the refusal must hold; empty where the pod must run."""
    programmed: tuple[str, ...] = ()
    """What the node's driver must have programmed when it runs, an AFU id a time."""

    def load(self) -> Json:
        """The pod as its author wrote it."""
        pod: Json = yaml.safe_load(self.text())
        return pod

    def text(self) -> str:
        """The file as its author wrote it."""
        return _folder("pods").joinpath(self.file).read_text()


@dataclass(frozen=True, slots=True)
class World:
    """What a cluster is laid out with.

    Args:
        nodes: their plugins' modes and their cards.
        mappings: as objects, for the API server.
        folder: the same as files, for the webhook.
        namespaces: those that must be there.
    """

    nodes: tuple[NodePlan, ...]
    mappings: tuple[Json, ...]
    folder: Path
    namespaces: tuple[str, ...] = (NAMESPACE,)


_REGION_ENV = {"FPGA_REGION_1": ARRIA10_DFL, "FPGA_AFU_1": NLB0}

PODS = (
    PodPlan(
        "1-function.yaml",
        "A function that a card carries already (mode af)",
        "node-af",
        (ContainerPlan("loopback", {LOOPBACK: 1}, 1),),
    ),
    PodPlan(
        "2-region.yaml",
        "A function in a region of its own, programmed before it starts (mode region)",
        "node-region",
        (ContainerPlan("loopback", {REGION: 1}, 1, {**_REGION_ENV, "MODE": "fast"}),),
        programmed=(NLB0,),
    ),
    PodPlan(
        "3-two-functions.yaml",
        "Two functions in one container",
        "node-af",
        (ContainerPlan("pipeline", {LOOPBACK: 1, LOOPBACK_3: 1}, 2),),
    ),
    PodPlan(
        "4-init-container.yaml",
        "An init container hands its device on: programmed once, reset twice",
        "node-region",
        (
            ContainerPlan("self-test", {REGION: 1}, 1, _REGION_ENV, init=True),
            ContainerPlan("loopback", {REGION: 1}, 1, _REGION_ENV),
        ),
        programmed=(NLB0,),
    ),
    PodPlan(
        "5-misspelt.yaml",
        "A name that the namespace doesn't have",
        refusal=("arria10-nbl0", "did you mean fpga.intel.com/arria10-nlb0?"),
    ),
    PodPlan(
        "6-forged.yaml",
        "A region asked for by its physical name, to programme what isn't mapped",
        refusal=("FPGA_AFU_1", "no mapping"),
    ),
)


def demo_world() -> World:
    """The demo's own nodes and mappings."""
    folder = mappings_folder()
    texts = [file.read_text() for file in sorted(folder.iterdir())]
    mappings = tuple(obj for text in texts for obj in yaml.safe_load_all(text))
    return World(NODES, mappings, folder)


def mappings_folder() -> Path:
    """The demo's mappings as files."""
    return _folder("mappings")


def _folder(name: str) -> Path:
    with resources.as_file(resources.files("simulator.demo") / name) as folder:
        return folder
