"""The stand-in as a process, and clients that are not ours: lightkube and kubectl."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import lightkube
import pytest
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta

from tests.support import Process, Processes, python_module, require

AcceleratorFunction = create_namespaced_resource(
    "fpga.intel.com", "v2", "AcceleratorFunction", "acceleratorfunctions"
)


class Served:
    def __init__(self, process: Process, folder: Path, port: int) -> None:
        self.process = process
        self.folder = folder
        self.port = port
        self.kubeconfig = folder / "kubeconfig"


@pytest.fixture
def served(processes: Processes, tmp_path: Path) -> Iterator[Served]:
    folder, ports = tmp_path / "api", tmp_path / "ports"
    command = python_module("simulator.apiserver", "--dir", folder, "--ports-file", ports)
    process = processes.start(command, name="apiserver")
    yield Served(process, folder, process.ports(ports)["https"])
    assert process.terminate() == 0
    assert "Traceback" not in process.stderr


@pytest.fixture
def client(served: Served) -> Iterator[lightkube.Client]:
    client = lightkube.Client(lightkube.KubeConfig.from_file(served.kubeconfig))
    yield client
    client.close()


def test_lightkube_creates_lists_watches_patches_and_deletes(client: lightkube.Client) -> None:
    spec = {
        "afuId": "d8424dc4a4a3c413f89e433683f9040b",
        "interfaceId": "ce48969398f05f33946d560708be108a",
        "mode": "af",
    }
    for number in range(3):
        metadata = ObjectMeta(name=f"f{number}", namespace="default")
        client.create(AcceleratorFunction(metadata=metadata, spec=spec))
    listed = client.list(AcceleratorFunction, namespace="*", chunk_size=2)
    assert [one.metadata.name for one in listed if one.metadata] == ["f0", "f1", "f2"]
    patched = client.patch(
        AcceleratorFunction,
        "f0",
        {"spec": {"mode": "region"}},
        patch_type=lightkube.types.PatchType.MERGE,
    )
    assert patched["spec"]["mode"] == "region"
    client.delete(AcceleratorFunction, "f1")
    events = client.watch(AcceleratorFunction, resource_version="0", server_timeout=1)
    seen = [next(events)[1].metadata for _ in range(2)]
    assert [one.name for one in seen if one] == ["f0", "f2"]
    with pytest.raises(lightkube.ApiError) as caught:
        client.get(AcceleratorFunction, "f1")
    assert caught.value.status.code == 404


def kubectl(served: Served, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        [require("kubectl"), *arguments],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(served.folder),
            "KUBECONFIG": str(served.kubeconfig),
        },
        input=stdin,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kubectl_applies_gets_patches_and_deletes(served: Served) -> None:
    text = """
apiVersion: fpga.intel.com/v2
kind: AcceleratorFunction
metadata: {name: nlb0}
spec:
  afuId: d8424dc4a4a3c413f89e433683f9040b
  interfaceId: ce48969398f05f33946d560708be108a
  mode: af
"""
    for expected in ("created", "unchanged"):
        assert expected in kubectl(served, "apply", "-f", "-", stdin=text)
    text = text.replace("mode: af", "mode: region")
    assert "configured" in kubectl(served, "apply", "-f", "-", stdin=text)
    mode = kubectl(served, "get", "af", "nlb0", "-o", "jsonpath={.spec.mode}")
    assert mode == "region"
    kubectl(served, "patch", "af", "nlb0", "--type=merge", "-p", '{"spec":{"mode":"af"}}')
    assert "deleted" in kubectl(served, "delete", "af", "nlb0")
