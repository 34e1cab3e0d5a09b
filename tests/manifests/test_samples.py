"""The samples are what the webhook takes, each as its mode has it."""

import kubernetes_validate
import pytest
import yaml

from accelbind.cli import main
from tests.manifests.rendering import MANIFESTS, rendered
from tests.support import REPOSITORY

SAMPLES = MANIFESTS / "samples"


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


def test_nothing_is_wrong_with_the_mappings() -> None:
    assert main(["check", "mappings", str(SAMPLES / "mappings")]) == 0


def test_mappings_come_before_the_pods_that_use_them() -> None:
    kinds = [item["kind"] for item in rendered("samples")]
    mapped = {"AcceleratorFunction", "FpgaRegion"}
    assert kinds[0] == "Namespace"
    assert set(kinds[1:4]) == mapped
    assert not mapped & set(kinds[4:])
