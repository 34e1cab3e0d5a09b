"""The samples are what the webhook takes, each as its mode has it."""

from collections.abc import Callable
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from accelbind.cli import main
from tests.manifests.rendering import MANIFESTS, rendered
from tests.support import REPOSITORY

SAMPLES = MANIFESTS / "samples"
Explain = Callable[[Path, Path], tuple[int, str]]
BECOMES = {
    "af": "fpga.intel.com/af-ce4.d84.",
    "region": "fpga.intel.com/region-ce48969398f05f33946d560708be108a",
    "regiondevel": "fpga.intel.com/region-ce48969398f05f33946d560708be108a",
    "init-container": "fpga.intel.com/af-ce4.d84.",
    "non-root": "fpga.intel.com/af-ce4.d84.",
    "deployment": "fpga.intel.com/af-ce4.d84.",
    "units": "",
}


@pytest.fixture
def explain(capsys: pytest.CaptureFixture[str]) -> Explain:
    """Gives exit code and output of `accelbind explain` for a pod and a folder of mappings."""

    def run(sample: Path, mappings: Path) -> tuple[int, str]:
        code = main(["explain", "-f", str(sample), "--mappings", str(mappings)])
        printed = capsys.readouterr()
        assert "warning" not in printed.err
        return code, printed.out

    return run


def test_every_sample_is_known_here() -> None:
    assert {path.stem for path in (SAMPLES / "pods").glob("*.yaml")} == set(BECOMES)


@pytest.mark.parametrize("name", BECOMES)
def test_a_sample_is_admitted(name: str, explain: Explain) -> None:
    code, text = explain(SAMPLES / "pods" / f"{name}.yaml", SAMPLES / "mappings")
    assert code == 0, text
    wanted = BECOMES[name]
    assert f"becomes {wanted}" in text if wanted else "admitted unchanged" in text
    if name == "region":
        assert "FPGA_AFU_1" in text


@pytest.mark.parametrize("path", ["manifests/samples/pods", "examples/pods"])
def test_the_workload_without_root_passes_the_level_restricted(path: str) -> None:
    """Its list: kubernetes.io/docs/concepts/security/pod-security-standards."""
    pod = yaml.safe_load((REPOSITORY / path / "non-root.yaml").read_text())
    kubernetes_validate.validate(pod, "1.36", strict=True)
    spec = pod["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0, "runtimes take the nodes' owner from here"
    assert spec["securityContext"]["runAsGroup"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert {kind for volume in spec.get("volumes", ()) for kind in volume} <= {"name", "emptyDir"}
    (container,) = spec["containers"]
    own = container["securityContext"]
    assert own["allowPrivilegeEscalation"] is False
    assert own["capabilities"] == {"drop": ["ALL"]}
    limits = container["resources"]["limits"]
    assert {"hugepages-2Mi", "memory"} <= set(limits), "huge pages need CPU or memory as well"


def test_without_its_mapping_a_sample_is_refused(tmp_path: Path, explain: Explain) -> None:
    code, text = explain(SAMPLES / "pods" / "af.yaml", tmp_path)
    assert code == 1, text


def test_nothing_is_wrong_with_the_mappings() -> None:
    assert main(["check", "mappings", str(SAMPLES / "mappings")]) == 0


def test_what_is_mapped_comes_before_who_asks_for_it() -> None:
    kinds = [item["kind"] for item in rendered("samples")]
    mapped = {"AcceleratorFunction", "FpgaRegion"}
    assert kinds[0] == "Namespace"
    assert set(kinds[1:4]) == mapped
    assert not mapped & set(kinds[4:])
