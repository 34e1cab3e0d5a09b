"""The DRA driver as a process of this machine, in the place of the plugin."""

import contextlib
import json
import re
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest
import yaml

from services.devices.dra import DRIVER
from services.mappings.kinds import ACCELERATOR, TABLE
from tests.e2e.api import Json, Place, accelbind, place_of, until
from tests.e2e.cluster import Cluster
from tests.e2e.hosts import Hosts
from tests.e2e.pods import SHOW, Pods, simple
from tests.support import Process

GROUP: Final = "resource.k8s.io/v1"
TEMPLATE: Final = "ResourceClaimTemplate"
NOT_ALLOCATED: Final = "the simulator allocates no claims"
SLICES: Final = Place(GROUP, "ResourceSlice")
PROGRAMMINGS: Final = re.compile(r'accelbind_programmings_total\{.*outcome="programmed".*\} (\d+)')
CLAIM: Final = "fpga"
"""The name of the claim in a pod that names a template."""


def require_claims(cluster: Cluster) -> None:
    """Skip a test where pods can have no claims."""
    if not cluster.is_real:
        pytest.skip(NOT_ALLOCATED)
    if not cluster.api.serves(GROUP, "deviceclasses"):
        pytest.skip(f"the API server has no {GROUP}: DRA needs Kubernetes 1.36")


def device_class(driver: str, labels: dict[str, str]) -> Json:
    """The class of all devices of a driver, by the driver's name."""
    selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
    about: Json = {"apiVersion": GROUP, "kind": "DeviceClass", "spec": {"selectors": [selector]}}
    return about | {"metadata": {"name": driver, "labels": labels}}


def claim_of(devices: Json, name: str, namespace: str, kind: str = TEMPLATE) -> Json:
    """A claim, or the template of claims."""
    spec: Json = {"devices": devices}
    about: Json = {"apiVersion": GROUP, "kind": kind, "spec": spec}
    about |= {"metadata": {"name": name, "namespace": namespace}}
    return about | {"spec": {"spec": spec}} if kind == TEMPLATE else about


def name_of(template: str, name: str, namespace: str, *, count: int = 1) -> Json:
    """An Accelerator that stands for claims of a template."""
    target = {"claimTemplate": template, "count": count}
    about: Json = {"apiVersion": TABLE[ACCELERATOR].api_version, "kind": ACCELERATOR}
    metadata = {"name": name, "namespace": namespace}
    return about | {"metadata": metadata, "spec": {"target": target}}


@dataclass(slots=True)
class Driver:
    """The driver, while it serves."""

    hosts: Hosts
    flags: tuple[str, ...] = ()
    port: int = 0

    @property
    def process(self) -> Process:
        return self.hosts.running["dra"]

    def start(self) -> None:
        of_dra = ("--api", "dra", "--cdi-dir", self.hosts.cluster.settings.cdi_dir)
        self.port = self.hosts.start_on_node("dra", *of_dra, "--healthy-after", "1", *self.flags)

    def slices(self) -> list[Json]:
        selector = f"spec.nodeName={self.hosts.cluster.node},spec.driver={DRIVER}"
        return self.hosts.cluster.api.list(SLICES, fieldSelector=selector)

    def devices(self) -> dict[str, Json]:
        return {one["name"]: one for item in self.slices() for one in item["spec"]["devices"]}

    def until_published(self, count: int) -> None:
        def look() -> None:
            assert len(self.devices()) == count, self.hosts.told("dra")

        patience = self.hosts.cluster.settings.patience
        until(look, seconds=patience, what=f"{count} devices in slices")

    def programmings(self) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return sum(map(int, PROGRAMMINGS.findall(text)))

    def logged(self, *events: str) -> list[Json]:
        lines = map(json.loads, self.process.stderr.splitlines())
        return [each for each in lines if each.get("event") in events]

    def carried(self, device: str) -> str:
        """The function in a port, by its node in a container."""
        (path,) = self.hosts.root.glob(f"sys/**/{device.rpartition('/')[2]}/afu_id")
        return path.read_text().strip()

    def print_classes(self) -> list[Json]:
        """The classes for the mappings of the cluster, as `accelbind dra classes` prints them."""
        api_server = self.hosts.cluster.settings.api_server
        text = accelbind("dra", "classes", "--api-server", api_server)
        return [each for each in yaml.safe_load_all(text) if each]

    def template(self, pods: Pods, mapping: str) -> str:
        """See that there is what `accelbind dra template` prints; returns its name."""
        api_server = self.hosts.cluster.settings.api_server
        where = ("--namespace", pods.namespace, "--api-server", api_server)
        item = yaml.safe_load(accelbind("dra", "template", mapping, *where))
        item["metadata"]["namespace"] = pods.namespace
        name: str = item["metadata"]["name"]
        if self.hosts.cluster.api.find(place_of(item), name) is None:
            self.hosts.cluster.api.create(item)
        return name


def with_template(name: str, template: str, script: str = SHOW) -> Json:
    item = simple(name, {}, script, resources={"claims": [{"name": CLAIM}]})
    item["spec"]["resourceClaims"] = [{"name": CLAIM, "resourceClaimTemplateName": template}]
    return item


@contextlib.contextmanager
def driver_of(hosts: Hosts, count: int, *flags: str) -> Iterator[Driver]:
    """Have the driver serve in the place of the plugin, with classes for all mappings."""
    cluster = hosts.cluster
    hosts.leave()
    hosts.put_functions_back()
    driver = Driver(hosts, flags)
    driver.start()
    try:
        for item in driver.print_classes():
            if cluster.api.find(Place(GROUP, "DeviceClass"), item["metadata"]["name"]) is None:
                item["metadata"].setdefault("labels", {}).update(cluster.labels)
                cluster.put(item)
        driver.until_published(count)
        yield driver
    finally:
        driver.process.terminate()
        del hosts.running["dra"]
        for item in driver.slices():
            cluster.remove(SLICES, item["metadata"]["name"])
