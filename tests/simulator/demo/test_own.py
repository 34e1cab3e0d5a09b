"""`accelbind demo -f`: your own pods and mappings, on stand-ins with the cards for them."""

import re
from pathlib import Path

from tests.support import REPOSITORY, Processes

UNITS_SAMPLE = REPOSITORY / "manifests" / "samples" / "pods" / "units.yaml"
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


def test_own_pods_of_several_files_run_wait_or_are_refused_as_in_a_cluster(
    processes: Processes, tmp_path: Path, short_dir: Path
) -> None:
    maps, pods = tmp_path / "maps", tmp_path / "pods.yaml"
    maps.mkdir()
    (maps / "opencl.yaml").write_text(OPENCL)
    pods.write_text(PODS)
    demo = processes.accelbind(
        *("demo", "-v", "-f", pods, "-f", UNITS_SAMPLE, "--mappings", maps),
        env={"TMPDIR": str(short_dir), "TERM": "dumb", "COLUMNS": "120"},
    )
    assert demo.wait(400) == 1, demo.transcript()
    assert max(map(len, demo.stdout.splitlines())) <= 120
    shown = re.sub(r"\s+", " ", demo.stdout)
    for expected in (
        "1 · Pod team-b/matrix-1",
        "- matrix",
        f"FPGA_AFU_2={CLOCKED}",
        "path: /spec/containers/0/resources/limits/fpga.intel.com~1matrix",
        "hostPath:",
        "programmed dfl-port.1 with AFU",
        "not running Unschedulable: 0/2 nodes are available: 2 Insufficient cpu.",
        'fpga.intel.com/matrix does not exist in namespace "default"',
        "node-units units none b-com.com/accelerator",
        "name: ACCELERATOR_UNITS",
        "matrix-1 2 x matrix node-region dfl-port.0 running",
        "elsewhere matrix - - refused",
        "2 of 4 pods ran; nothing is left running",
    ):
        assert expected in shown, demo.transcript()
    assert demo.stderr == ""
    assert list(short_dir.iterdir()) == []
