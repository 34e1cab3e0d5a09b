"""Devices of device types through DRA: their metadata in containers, shares, the claims' status."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import yaml

from services.names import DEVICE_DOMAIN
from simulator.devices import DeviceTree, vector_engine
from tests.e2e.api import Json, Place, accelbind, until
from tests.e2e.cluster import Cluster
from tests.e2e.dra import GROUP, Driver, claim_of, driver_of, require_claims
from tests.e2e.hosts import CARDS, Hosts
from tests.e2e.pods import STAY, Pods, simple
from tests.e2e.suite.kubelet import restart
from tests.support import REPOSITORY

pytestmark = pytest.mark.usefixtures("can_run")

ENGINES = 2
SHARES = 100
ENGINE = "nec-vector-engine"
RANDOM = "hw-random"
DRIVER = "accelbind.dev"
TYPE = f"""\
apiVersion: accelbind.dev/v1alpha1
kind: DeviceType
metadata: {{name: {RANDOM}}}
spec:
  match: [{{class: {{name: misc, entry: [hw_random]}}}}]
  resource: {{domain: {DEVICE_DOMAIN}, name: {RANDOM}}}
  sharing: {{replicas: {SHARES}}}
"""
READ = """\
cd /var/run/kubernetes.io/dra-device-attributes
{ for each in $(find . -type f); do
    echo "$each $(wc -l <$each)"
    head -n 1 $each
    (echo >>$each) 2>/dev/null && echo written
  done
} >/dev/termination-log; true"""
CLAIMS = "resourceclaims"
TEMPLATES = "resourceclaimtemplates"


@pytest.fixture(scope="module")
def driver(cluster: Cluster, pods: Pods, hosts: Hosts) -> Iterator[Driver]:
    """The driver, with two Vector Engines and a device of which there are shares."""
    require_claims(cluster)
    assert pods.namespace, "its mappings are made"
    types = hosts.folder / "generic-types"  # no other part serves these
    types.mkdir(exist_ok=True)
    source = REPOSITORY / f"manifests/device-types/{ENGINE}.yaml"
    (types / source.name).write_text(source.read_text())
    (types / f"{RANDOM}.yaml").write_text(TYPE)
    tree = DeviceTree(hosts.root, devices=cluster.is_real)
    for number in range(ENGINES):
        vector_engine(tree, number)
    place = tree.entry("", "misc", "hw_random", "10:183", "hwrng")
    for item in yaml.safe_load_all(accelbind("dra", "classes", "--device-types", str(types))):
        item["metadata"].setdefault("labels", {}).update(cluster.labels)
        cluster.put(item)
    with driver_of(hosts, CARDS + ENGINES + 1, "--device-types", str(types)) as running:
        yield running
        pods.tidy()
    tree.remove(place)


def request(name: str, of: str, **more: Any) -> Json:
    return {"name": name, "exactly": {"deviceClassName": f"{of}.{DRIVER}"} | more}


def put_claim(pods: Pods, kind: str, name: str, *requests: Json) -> None:
    devices = {"requests": list(requests)}
    pods.cluster.api.create(claim_of(devices, name, pods.namespace, kind))


def pod_with(name: str, script: str, source: Json, uses: Sequence[Json] = ()) -> Json:
    """A pod with a claim that it calls `mine`, used by a container or by each of several."""
    item = simple(name, {}, script, resources={"claims": [{"name": "mine"}]})
    item["spec"]["resourceClaims"] = [{"name": "mine"} | source]
    (shown,) = item["spec"]["containers"]
    item["spec"]["containers"] = [
        shown | {"name": each["request"], "resources": {"claims": [{"name": "mine"} | each]}}
        for each in uses
    ] or [shown]
    return item


def metadata(pods: Pods, name: str) -> dict[str, dict[str, Json]]:
    """The metadata that each container of a pod has read, by path."""

    def look() -> dict[str, dict[str, Json]]:
        pod = pods.begun(name)
        assert pod["status"]["phase"] == "Succeeded"
        return {
            each["name"]: dict(_read(each["state"]["terminated"].get("message", "")))
            for each in pod["status"]["containerStatuses"]
        }

    return until(look, seconds=pods.patience, what=f"pod {name} to tell what it has read")


def _read(text: str) -> Iterator[tuple[str, Json]]:
    lines = text.splitlines()
    assert "written" not in lines, "it can be written"
    for head, content in zip(lines[::2], lines[1::2], strict=True):
        path, objects = head.removeprefix("./").split()
        assert objects == "2", "one for each version"
        yield path, json.loads(content)


def one_request(pods: Pods, name: str) -> tuple[str, Json]:
    """The only file of a pod's only container: its path, and its request."""
    ((_, files),) = metadata(pods, name).items()
    ((path, content),) = files.items()
    assert content["apiVersion"] == "metadata.resource.k8s.io/v1beta1"
    assert content["metadata"]["namespace"] == pods.namespace
    (found,) = content["requests"]
    pods.remove(name)
    return path, found


def test_containers_read_the_metadata_of_each_kind_of_claim(pods: Pods, driver: Driver) -> None:
    engine, end = request("r", ENGINE), f"{DRIVER}-metadata.json"
    put_claim(pods, "ResourceClaimTemplate", "one", engine)
    put_claim(pods, "ResourceClaim", "named", engine)
    put_claim(pods, "ResourceClaimTemplate", "two", request("r", ENGINE, count=2))
    put_claim(pods, "ResourceClaimTemplate", "random", request("r", RANDOM))
    none = {"cel": {"expression": "false"}}
    subrequest = {"deviceClassName": f"{ENGINE}.{DRIVER}"}
    choice = [{"name": "big", "selectors": [none]} | subrequest, {"name": "small"} | subrequest]
    put_claim(pods, "ResourceClaimTemplate", "list", {"name": "r", "firstAvailable": choice})

    cases = {
        "one": (f"{TEMPLATES}/mine/r", "r", 1, {"resourceClaimTemplateName": "one"}),
        "named": (f"{CLAIMS}/named/r", "r", 1, {"resourceClaimName": "named"}),
        "two": (f"{TEMPLATES}/mine/r", "r", 2, {"resourceClaimTemplateName": "two"}),
        "share": (f"{TEMPLATES}/mine/r", "r", 1, {"resourceClaimTemplateName": "random"}),
        "list": (f"{TEMPLATES}/mine/r", "r/small", 1, {"resourceClaimTemplateName": "list"}),
    }
    for case, (place, reference, count, source) in cases.items():
        name = pods.create(pod_with(f"reads-{case}", READ, source))
        path, found = one_request(pods, name)
        assert (path, found["name"]) == (f"{place}/{end}", reference), case
        names = {each["name"] for each in found["devices"]}
        assert len(names) == count
        assert names <= driver.devices().keys()
        if case != "share":
            assert "resource.kubernetes.io/pciBusID" in found["devices"][0]["attributes"]
    extended = simple("reads-extended", {f"{DEVICE_DOMAIN}/vector-engine": 1}, READ)
    path, found = one_request(pods, pods.create(extended))
    assert path.startswith(f"{CLAIMS}/reads-extended-extended-resources-")
    assert path.endswith(f"/container-0-request-0/{end}")


def test_a_container_reads_the_metadata_of_its_own_request_only(pods: Pods, driver: Driver) -> None:
    assert driver.devices()
    put_claim(pods, "ResourceClaimTemplate", "both", *(request(each, ENGINE) for each in "ab"))
    uses = [{"request": each} for each in "ab"]
    item = pod_with("reads-own", READ, {"resourceClaimTemplateName": "both"}, uses)
    found = metadata(pods, pods.create(item))
    assert {name: [*files] for name, files in found.items()} == {
        each: [f"{TEMPLATES}/mine/{each}/{DRIVER}-metadata.json"] for each in "ab"
    }
    devices = {
        device["name"]
        for files in found.values()
        for content in files.values()
        for each in content["requests"]
        for device in each["devices"]
    }
    assert len(devices) == ENGINES
    pods.tidy()


def claim_of_pod(pods: Pods, name: str) -> Json:
    statuses = pods.get(name)["status"].get("resourceClaimStatuses") or [{}]
    place = Place(GROUP, "ResourceClaim", pods.namespace)
    return pods.cluster.api.find(place, statuses[0].get("resourceClaimName", "none")) or {}


def running(pods: Pods, names: Sequence[str]) -> list[str]:
    return [each for each in names if pods.get(each)["status"].get("phase") == "Running"]


def test_two_pods_race_for_the_last_share_of_a_device(
    cluster: Cluster, pods: Pods, driver: Driver
) -> None:
    device = driver.devices()[f"{RANDOM}-hw-random"]
    assert device["capacity"]["shares"]["value"] == str(SHARES)
    most = request("r", RANDOM, capacity={"requests": {"shares": str(SHARES - 1)}})
    put_claim(pods, "ResourceClaimTemplate", "most", most)
    put_claim(pods, "ResourceClaimTemplate", "a-share", request("r", RANDOM))
    first = pod_with("most", STAY, {"resourceClaimTemplateName": "most"})
    pods.begun(pods.create(first))
    names = [
        pods.create(pod_with(each, STAY, {"resourceClaimTemplateName": "a-share"}))
        for each in ("left", "right")
    ]

    def raced() -> None:
        assert len(running(pods, names)) == 1, str(names)

    until(raced, seconds=pods.patience, what="one of two pods to run")
    (winner,) = running(pods, names)
    (loser,) = {*names} - {winner}
    pods.until_waiting(loser, "cannot allocate all claims")
    driver.process.terminate()
    driver.start()
    if cluster.settings.kubelet_restart:
        restart(cluster)
    driver.until_published(CARDS + ENGINES + 1)
    assert running(pods, names) == [winner]
    pods.until_waiting(loser, "cannot allocate all claims")
    pods.remove(winner)
    pods.begun(loser)
    pods.tidy()


def test_the_status_of_a_claim_says_which_device_it_has(pods: Pods, driver: Driver) -> None:
    put_claim(pods, "ResourceClaimTemplate", "shown", request("r", RANDOM))
    name = pods.create(pod_with("shown", STAY, {"resourceClaimTemplateName": "shown"}))
    pods.begun(name)

    def look() -> Json:
        devices = claim_of_pod(pods, name)["status"].get("devices")
        assert devices, driver.hosts.told("dra")
        found: Json
        (found,) = devices
        return found

    device = until(look, seconds=pods.patience, what="the status of the claim")
    (result,) = claim_of_pod(pods, name)["status"]["allocation"]["devices"]["results"]
    assert device["shareID"] == result["shareID"]
    assert device["data"] == {"type": RANDOM, "card": "hw-random", "shares": 1}
    (condition,) = device["conditions"]
    assert (condition["type"], condition["status"]) == ("Ready", "True")
    pods.tidy()
