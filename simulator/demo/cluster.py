"""The content of the demo: nodes with cards, pods, and what must become of the pods."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from services.names import DEVICE_DOMAIN, DOMAIN, function_name, region_name
from simulator.cards import A10_INTERFACE, D5005_INTERFACE, NLB0, NLB3, CardSpec
from simulator.client import Json

ARRIA10_DFL = "69528db6eb31577a8c3668f9faa081f6"
NAMESPACE = "default"
_FOLDER = Path(__file__).parent


def _full(name: str) -> str:
    return f"{DOMAIN}/{name}"


LOOPBACK = _full(function_name(A10_INTERFACE, NLB0))
LOOPBACK_3 = _full(function_name(D5005_INTERFACE, NLB3))
REGION = _full(region_name(ARRIA10_DFL))
NPU = "intel-npu"
"""A device type, of the same name as its resource."""


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
    devices: tuple[str, ...] = ()
    """The device types of its devices besides the cards."""
    others: Mapping[str, int] = field(default_factory=dict)
    """Resources of other vendors' plugins, and how many devices each has."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that come with them."""
    types: Path | None = None
    """Folder of a user's device types, in place of those of the devices."""
    root: Path | None = None
    """Tree of a user with `sys` and `dev`, in place of a synthetic one."""


NODES = (
    NodePlan(
        "node-af",
        "af",
        "OPAE",
        (
            CardSpec(driver="opae", interface_id=A10_INTERFACE, afu_ids=(NLB0,)),
            CardSpec(driver="opae", interface_id=A10_INTERFACE, afu_ids=(NLB0,), numa_node=1),
            CardSpec(driver="opae", interface_id=D5005_INTERFACE, afu_ids=(NLB3,), numa_node=1),
        ),
        {LOOPBACK: 2, LOOPBACK_3: 1, f"{DEVICE_DOMAIN}/{NPU}": 1},
        devices=(NPU,),
        others={"nvidia.com/mig-1g.10gb": 1},
        labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
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
class Expected:
    """The expected end of a pod: it runs on a node, or it is refused."""

    node: str = ""
    devices: int = 0
    """How many device nodes its containers must get together."""
    programmed: tuple[str, ...] | None = ()
    """AFU ids that the driver must have programmed before the pod runs, one per call.

    None where the cards may still have the functions of an earlier run.
    """
    refusal: tuple[str, ...] = ()
    """Words that the refusal must contain; empty where the pod must run."""


@dataclass(frozen=True, slots=True)
class DemoPod:
    title: str
    pod: Json
    expected: Expected | None = None
    """None where anything may become of it."""
    in_digest: bool = False
    """Whether it is among the first, which are shown before all others, a line each."""
    in_picture: bool = False
    shows_variables: bool = False
    """Whether the variables of its containers are shown."""

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def collection(self) -> str:
        """The API path of the pods of its namespace."""
        namespace = self.pod["metadata"].get("namespace", NAMESPACE)
        return f"/api/v1/namespaces/{namespace}/pods"


@dataclass(frozen=True, slots=True)
class World:
    """The nodes and objects of a cluster, and the pods that are created on it."""

    nodes: tuple[NodePlan, ...]
    mappings: tuple[Json, ...]
    """As objects, for the API server."""
    folder: Path
    """The mappings as files, for the webhook."""
    pods: tuple[DemoPod, ...]
    namespaces: tuple[str, ...] = (NAMESPACE,)


_PODS = {
    "1-gpu.yaml": (
        "A GPU by name, which its vendor's plugin serves",
        Expected("node-af", devices=1),
    ),
    "2-function.yaml": (
        "A function of an FPGA by name, which a card has already (mode af)",
        Expected("node-af", devices=1),
    ),
    "3-misspelled.yaml": (
        "A misspelled name is refused",
        Expected(refusal=("arria10-nbl0", "did you mean arria10-nlb0?")),
    ),
    "4-region.yaml": (
        "The function is programmed before the container starts (mode region)",
        Expected("node-region", devices=1, programmed=(NLB0,)),
    ),
    "5-two-functions.yaml": (
        "Two functions in one container",
        Expected("node-af", devices=2),
    ),
    "6-init-container.yaml": (
        "An init container and a container share a device: programmed once",
        Expected("node-region", devices=1, programmed=(NLB0,)),
    ),
    "7-device.yaml": (
        "A device of another kind, by its device type",
        Expected("node-af", devices=1),
    ),
    "8-forged.yaml": (
        "A function without a mapping is refused",
        Expected(refusal=("FPGA_AFU_1", "no mapping")),
    ),
}
_IN_DIGEST = 3
"""How many of these say what accelbind does."""
_PICTURED = ("1-gpu.yaml", "3-misspelled.yaml")


def demo_world() -> World:
    mappings = tuple(
        item
        for file in sorted(mappings_folder().iterdir())
        for item in yaml.safe_load_all(file.read_text())
    )
    pods = tuple(
        DemoPod(
            title,
            yaml.safe_load((_FOLDER / "pods" / file).read_text()),
            expected,
            number < _IN_DIGEST,
            file in _PICTURED,
        )
        for number, (file, (title, expected)) in enumerate(_PODS.items())
    )
    return World(NODES, mappings, mappings_folder(), pods)


def device_type(name: str) -> Path:
    return _FOLDER / "types" / f"{name}.yaml"


def mappings_folder() -> Path:
    return _FOLDER / "mappings"
