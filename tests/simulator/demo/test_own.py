"""`accelbind demo -f`: somebody's own pods and mappings, on stand-ins with the cards for them."""

import re
from pathlib import Path

import pytest

from accelbind.manifests import read_pods
from services.process.errors import InvalidManifest
from simulator.demo import own
from tests.support import REPOSITORY, Processes

MAPPINGS = REPOSITORY / "examples" / "mappings"
CLOCKED = "40007c0623210742000ebc58df6f5343e668b03a"
"""The id of an OpenCL program, which comes as an AOCX."""

OPENCL = f"""
apiVersion: fpga.intel.com/v2
kind: AcceleratorFunction
metadata: {{name: matrix, namespace: team-b}}
spec:
  afuId: {CLOCKED}
  interfaceId: bfac4d851ee856fe8c95865ce1bbaa2d
  mode: region
"""
PODS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: matrix, namespace: team-b}
spec:
  template:
    spec:
      containers:
      - {name: c, image: i, resources: {limits: {fpga.intel.com/matrix: 2}}}
---
apiVersion: v1
kind: Pod
metadata: {name: too-big}
spec:
  containers: [{name: c, image: i, resources: {limits: {cpu: 100000}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: elsewhere}
spec:
  containers: [{name: c, image: i, resources: {limits: {fpga.intel.com/matrix: 1}}}]
"""


def test_own_pods_run_wait_or_are_refused_as_in_a_cluster(
    processes: Processes, tmp_path: Path, short_dir: Path
) -> None:
    maps, pods = tmp_path / "maps", tmp_path / "pods.yaml"
    maps.mkdir()
    (maps / "opencl.yaml").write_text(OPENCL)
    pods.write_text(PODS)
    demo = processes.accelbind(
        *("demo", "-f", pods, "--mappings", maps), env={"TMPDIR": str(short_dir), "TERM": "dumb"}
    )
    assert demo.wait(400) == 1, demo.transcript()
    shown = re.sub(r"\s+", " ", demo.stdout)
    for expected in (
        "1 · Pod team-b/matrix-1",
        "- /spec/containers/0/resources/limits/fpga.intel.com/matrix",
        f"FPGA_AFU_2={CLOCKED}",
        "devices dfl-fme.0, dfl-fme.1",
        "dfl-port.1 programmed with AFU",
        "it does not run Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.",
        'which is not mapped in namespace "default"',
        "1 of 3 pods ran, nothing is left running",
    ):
        assert expected in shown, demo.transcript()
    assert demo.stderr == ""
    assert list(short_dir.iterdir()) == []


def test_a_node_has_what_the_pods_ask_for_by_either_name(tmp_path: Path) -> None:
    pods = tmp_path / "pods.yaml"
    physical = "af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs"
    asking = ", ".join(
        f"{{name: c{number}, image: i, resources: {{limits: {{fpga.intel.com/{name}: 2}}}}}}"
        for number, name in enumerate((physical, "arria10.dcp1.0-nlb0-preprogrammed"))
    )
    pods.write_text(f"kind: Pod\nmetadata: {{generateName: x-}}\nspec: {{containers: [{asking}]}}")
    found = own.read(read_pods([pods]), MAPPINGS)
    (node,) = found.world.nodes
    assert (node.name, dict(node.capacity)) == ("node-af", {f"fpga.intel.com/{physical}": 4})
    assert len(node.cards) == 4
    assert found.pods[0].pod["metadata"] == {
        "generateName": "x-",
        "name": "x-1",
        "namespace": "default",
    }
    assert set(found.world.namespaces) == {"default", "team-a"}


UNITS = "kind: Pod\nmetadata: {{name: u}}\nspec: {{containers: [{asking}]}}"


@pytest.mark.parametrize(
    ("counts", "units"), [((2,), 2), ((2, 3), 5), ((5000,), 1024), ((2, "half"), 2)]
)
def test_units_that_need_no_mapping_are_on_a_node_without_cards(
    tmp_path: Path, counts: tuple[int | str, ...], units: int
) -> None:
    pods = tmp_path / "pods.yaml"
    asking = ", ".join(
        f"{{name: c{at}, image: i, resources: {{limits: {{b-com.com/accelerator: {count}}}}}}}"
        for at, count in enumerate(counts)
    )
    pods.write_text(UNITS.format(asking=asking))
    (node,) = own.read(read_pods([pods]), MAPPINGS).world.nodes
    assert (node.name, node.mode, node.cards) == ("node-units", "units", ())
    assert dict(node.capacity) == {"b-com.com/accelerator": units}


def test_the_sample_of_units_runs(processes: Processes, short_dir: Path) -> None:
    sample = REPOSITORY / "manifests" / "samples" / "pods" / "units.yaml"
    demo = processes.accelbind(
        *("demo", "-f", sample), env={"TMPDIR": str(short_dir), "TERM": "dumb"}
    )
    assert demo.wait(400) == 0, demo.transcript()
    shown = re.sub(r"\s+", " ", demo.stdout)
    assert "mode units, no cards" in shown
    assert "ACCELERATOR_UNITS=" in shown
    assert "1 of 1 pods ran" in shown


@pytest.mark.parametrize("text", ["kind: Service", "{", "kind: Pod\nspec: 7"])
def test_what_holds_no_pods_is_refused_before_anything_starts(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(InvalidManifest):
        own.read(read_pods([tmp_path / "x.yaml"]), MAPPINGS)


def test_mappings_alone_are_refused(processes: Processes) -> None:
    demo = processes.accelbind("demo", "--mappings", MAPPINGS)
    assert demo.wait(200) == 2
    assert "--mappings goes with -f" in demo.stderr
