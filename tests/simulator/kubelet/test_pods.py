"""Reading pods."""

import pytest

from simulator.kubelet.pods import EnvVar, InvalidPod, is_extended_resource, read_pod
from tests.simulator.kubelet.fake_plugin import RESOURCE, pod


def test_a_pod_is_read_as_a_kubelet_needs_it() -> None:
    read = read_pod(
        pod(
            "p",
            init={"side": 0, "init": 1},
            containers={"main": 2},
            sidecars=["side"],
            env=[
                {"name": "B", "value": "$(A)"},
                {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "EMPTY"},
            ],
        )
    )
    assert (read.uid, read.namespace, read.name) == ("uid-p", "default", "p")
    assert read.log_folder == "default_p_uid-p"
    assert [each.name for each in read.all_containers] == ["side", "init", "main"]
    assert [each.runs_to_completion for each in read.all_containers] == [False, True, False]
    assert read.containers[0].limits == ((RESOURCE, 2),)
    assert read.containers[0].env == (
        EnvVar("B", "$(A)"),
        EnvVar("A", "", "fieldRef"),
        EnvVar("EMPTY", ""),
    )
    assert read.containers[0].field_path == "spec.containers{main}"
    assert read.init_containers[0].field_path == "spec.initContainers{side}"


def test_what_the_api_server_would_have_filled_in_is_filled_in() -> None:
    read = read_pod({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}})
    assert read.uid
    assert read.namespace == "default"
    assert read.restart_policy == "Always"


@pytest.mark.parametrize(("written", "count"), [("2", 2), (3, 3), ("1e1", 10), ("0", 0)])
def test_counts_are_read(written: object, count: int) -> None:
    container = {"name": "c", "resources": {"limits": {RESOURCE: written, "cpu": "100m"}}}
    read = read_pod({"metadata": {"name": "p"}, "spec": {"containers": [container]}})
    assert read.containers[0].limits == ((RESOURCE, count),)


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"metadata": {"name": "p"}, "spec": {"containers": []}},
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}, {"name": "c"}]}},
        {"metadata": {}, "spec": {"containers": [{"name": "c"}]}},
        {"metadata": {"name": "p"}, "spec": {"containers": ["c"]}},
        *(
            {
                "metadata": {"name": "p"},
                "spec": {"containers": [{"name": "c", "resources": {"limits": {RESOURCE: count}}}]},
            }
            for count in ("half", "0.5", "-1", "NaN", "Infinity")
        ),
    ],
)
def test_what_is_no_pod_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(InvalidPod):
        read_pod(broken)


@pytest.mark.parametrize(
    ("name", "extended"),
    [
        ("fpga.intel.com/region-0", True),
        ("b-com.com/accelerator", True),
        ("cpu", False),
        ("kubernetes.io/x", False),
        ("hugepages-2Mi", False),
        ("requests.fpga.intel.com/x", False),
        ("/x", False),
        ("x/", False),
    ],
)
def test_extended_resources_are_told_from_kubernetes_own(name: str, *, extended: bool) -> None:
    assert is_extended_resource(name) is extended
