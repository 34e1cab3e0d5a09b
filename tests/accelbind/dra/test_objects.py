"""Which templates, classes and devices names of claims lack, and which commands say so."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from accelbind.dra.objects import read_claim_objects
from simulator.apiserver.standin import ApiServerStandIn
from tests.accelbind.doctor.answers import answering, device_class, published
from tests.accelbind.explain.test_cluster import may
from tests.accelbind.running import Done, run_process
from tests.services.building import accelerator, container, pod


def template(*requests: dict[str, Any], namespace: str = "default") -> dict[str, Any]:
    metadata = {"name": "pair", "namespace": namespace}
    spec = {"spec": {"devices": {"requests": list(requests)}}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"} | {
        "metadata": metadata,
        "spec": spec,
    }


def of(name: str) -> dict[str, Any]:
    return {"name": "r", "exactly": {"deviceClassName": name}}


def either(*names: str) -> dict[str, Any]:
    listed = [{"name": f"s{n}", "deviceClassName": name} for n, name in enumerate(names)]
    return {"name": "r", "firstAvailable": listed}


def slice_of(driver: str, devices: int = 1) -> dict[str, Any]:
    return published("n", *[{}] * devices, driver=driver)


CLASSES = (
    device_class("gpu", "", 'device.driver == "gpu.example" && true'),
    device_class("nic", "", "device.driver=='nic.example'"),
    device_class("any"),
    device_class("not", "", '!(device.driver == "gpu.example")'),
    device_class("or", "", 'device.driver == "gpu.example" || device.driver.endsWith("x")'),
)


@pytest.mark.parametrize(
    ("requests", "drivers", "words"),
    [
        ([of("gpu"), of("nic")], ["gpu.example", "nic.example"], ""),
        ([of("gpu"), of("nic")], ["gpu.example"], "a device of driver nic.example, so DeviceClass"),
        ([of("gpu"), of("tpu")], ["gpu.example"], "DeviceClass tpu of ResourceClaimTemplate"),
        ([either("gpu", "nic")], ["nic.example"], ""),
        ([either("gpu", "nic")], ["x"], "of driver gpu.example or nic.example, so DeviceClass gpu"),
        ([either("gpu", "tpu")], ["gpu.example"], "DeviceClass tpu of"),
        ([of("any")], ["x"], ""),
        ([of("not"), of("or")], ["x"], ""),
        ([of("any")], [], "no node publishes a device, so DeviceClass any of"),
        ([], [], ""),
    ],
)
def test_a_template_needs_its_classes_and_a_device_of_each(
    requests: list[dict[str, Any]], drivers: list[str], words: str
) -> None:
    slices = [*map(slice_of, drivers), slice_of("nic.example", 0)]
    objects = read_claim_objects([template(*requests)], CLASSES, slices)
    problem = objects.problem("default", "ResourceClaimTemplate/pair")
    assert (words in problem, bool(problem)) == (True, bool(words))


def test_a_template_of_another_namespace_is_none() -> None:
    objects = read_claim_objects([template(namespace="elsewhere")], (), ())
    assert "ResourceClaimTemplate pair does not exist in namespace default" in objects.problem(
        "default", "ResourceClaimTemplate/pair"
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [("gpu", ""), ("nic", "of driver nic.example, so"), ("tpu", "DeviceClass tpu does not exist")],
)
def test_a_name_of_a_class_needs_the_class_and_a_device(name: str, words: str) -> None:
    objects = read_claim_objects((), CLASSES, [slice_of("gpu.example")])
    problem = objects.problem("default", f"deviceclass.resource.kubernetes.io/{name}")
    assert (words in problem, bool(problem)) == (True, bool(words))


async def test_commands_say_which_claims_no_pod_gets(tmp_path: Path) -> None:
    manifest = tmp_path / "pod.json"
    manifest.write_text(json.dumps(pod(container("app", {"accelbind.dev/both": "1"}))))

    async def command(*words: str | Path) -> Done:
        return await asyncio.to_thread(run_process, *words, "--api-server", api.address)

    async def everywhere(words: str) -> None:
        checked = await command("check", "mappings")
        assert (checked.returncode, words in checked.stdout) == (1, True), checked
        explained = await command("explain", "-f", manifest)
        assert (explained.returncode, words in explained.stdout) == (0, True), explained

    async with ApiServerStandIn(tmp_path) as api:
        # No webhook is registered, so the pod is evaluated.
        with answering(api, may(allowed=False)):
            api.put(accelerator("both", "", target={"claimTemplate": "pair"}))
            await everywhere("ResourceClaimTemplate pair does not exist in namespace default")
            api.put(template(of("gpu")))
            await everywhere("DeviceClass gpu of ResourceClaimTemplate default/pair does not exist")
            api.put(CLASSES[0])
            await everywhere("no node publishes a device of driver gpu.example")
            api.put(slice_of("gpu.example"))
            assert (await command("check", "mappings")).returncode == 0
            explained = await command("explain", "-f", manifest)
            assert (explained.returncode, "in no manifest" in explained.stdout) == (0, False)
            with api.faults.failing(403, matches=lambda request: "templates" in request.path):
                done = await command("explain", "-f", manifest)
            assert (done.returncode, "what claims get is not checked" in done.stderr) == (0, True)
