"""DeviceClasses for names of Accelerators, and the quotas that keep them in their namespaces."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from accelbind.dra.named import NamedClass, named_classes, quotas
from simulator.apiserver.standin import ApiServerStandIn
from tests.accelbind.doctor.answers import device_class
from tests.accelbind.dra.test_objects import either, of, template
from tests.accelbind.running import run_process
from tests.services.building import accelerator, index

CLASS = "deviceclass.resource.kubernetes.io/gpu"
GPU = device_class("gpu", "example.com/gpu", "true")
GPU["spec"]["config"] = [{"opaque": {"driver": "a.b", "parameters": {"x": 1}}}]


def bundle(name: str = "x", **spec: Any) -> dict[str, Any]:
    return accelerator(name, "", target={"claimTemplate": "pair"} | spec)


def exactly(**more: object) -> dict[str, Any]:
    return {"name": "r", "exactly": {"deviceClassName": "gpu", **more}}


def made(obj: dict[str, Any], *requests: dict[str, Any], **devices: Any) -> NamedClass:
    """What becomes of a name, with a template of these requests if there are any."""
    item = template(*requests)
    item["spec"]["spec"]["devices"] |= devices
    templates = {("default", "pair"): item} if requests else {}
    (one,) = named_classes(index(obj), {"gpu": GPU}, templates)
    return one


def test_a_class_has_what_the_class_behind_the_name_has() -> None:
    manifest = made(accelerator("small", CLASS)).manifest
    assert manifest is not None
    assert manifest["metadata"]["name"] == "default.small"
    assert manifest["spec"] == GPU["spec"] | {"extendedResourceName": "default.accelbind.dev/small"}


def test_a_template_with_one_exact_request_adds_its_selectors_and_configuration() -> None:
    own = {"cel": {"expression": "own"}}
    request = exactly(selectors=[own], count=1, allocationMode="ExactCount")
    config = {"requests": ["r"], "opaque": {"driver": "a.b", "parameters": {"x": 2}}}
    manifest = made(bundle(), request, config=[config]).manifest
    assert manifest is not None
    assert manifest["spec"]["selectors"] == [*GPU["spec"]["selectors"], own]
    assert [each["opaque"]["parameters"]["x"] for each in manifest["spec"]["config"]] == [1, 2]


DEVICES = "; in a ResourceQuota: gpu.deviceclass.resource.k8s.io/devices"


@pytest.mark.parametrize(
    ("obj", "requests", "words"),
    [
        (bundle(), [], "its ResourceClaimTemplate does not exist"),
        (bundle(), [of("gpu"), of("gpu")], "its template is a bundle, and a class is one"),
        (bundle(), [either("gpu", "nic")], "gpu.deviceclass.resource.k8s.io/devices, nic.device"),
        (bundle(), [exactly(count=2)], f"a unit is more than one device{DEVICES}"),
        (bundle(), [exactly(allocationMode="All")], "a unit is more than one device"),
        (bundle(), [exactly(capacity={}, tolerations=[])], "has capacity and tolerations, which"),
        (bundle(), [exactly(selectors=[{"cel": {"expression": "own"}}] * 32)], "more than 32 sel"),
        (bundle(), [of("tpu")], "DeviceClass tpu does not exist"),
        (bundle(count=2), [of("gpu")], "a unit is 2 devices"),
        (bundle("Big"), [of("gpu")], "its name is not that of a class"),
        (accelerator("x", "nvidia.com/gpu"), [], "request it directly; in a ResourceQ"),
        (accelerator("x", CLASS, nodeSelector={"a": "b"}), [], "brings more than devices"),
    ],
)
def test_other_names_get_a_comment_with_the_reason(
    obj: dict[str, Any], requests: list[dict[str, Any]], words: str
) -> None:
    one = made(obj, *requests)
    assert one.manifest is None
    assert words in one.comment
    assert one.comment.startswith("# Accelerator default/")


@pytest.mark.parametrize(
    ("namespace", "name", "other", "words"),
    [
        ("gpu", "example.com", {}, "DeviceClass gpu.example.com is somebody else's"),
        ("device", "x", {}, "accelbind's own device types"),
        ("a", "x", {"extendedResourceName": "a.accelbind.dev/x"}, "gpu.example.com has a.accel"),
    ],
)
def test_no_class_and_no_resource_of_others_is_taken(
    namespace: str, name: str, other: dict[str, Any], words: str
) -> None:
    obj = accelerator(name, CLASS, namespace=namespace)
    theirs = device_class("gpu.example.com", "", "true")
    theirs["spec"] |= other
    (one,) = named_classes(index(obj), {"gpu": GPU, "gpu.example.com": theirs}, {})
    assert one.manifest is None
    assert words in one.comment


def test_the_other_namespaces_get_a_quota_of_0() -> None:
    one = made(accelerator("small", CLASS))
    (quota,) = quotas([one], ["default", "team"])
    assert quota["metadata"]["namespace"] == "team"
    assert quota["spec"]["hard"] == {
        "requests.default.accelbind.dev/small": "0",
        "requests.deviceclass.resource.kubernetes.io/default.small": "0",
    }


async def test_the_command_reads_the_cluster(tmp_path: Path) -> None:
    async with ApiServerStandIn(tmp_path) as api:
        for each in (GPU, accelerator("small", CLASS), accelerator("other", "nvidia.com/gpu")):
            api.put(each)
        api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        flags = ("--names", "--api-server", api.address)
        done = await asyncio.to_thread(run_process, "dra", "classes", *flags)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# Accelerator default/other: ")
    items = [*yaml.safe_load_all(done.stdout)]
    found = [(each["kind"], each["metadata"].get("namespace")) for each in items]
    assert ("DeviceClass", None) in found
    assert ("ResourceQuota", "team") in found
    assert ("ResourceQuota", "default") not in found
