"""Names that stand for claims, with drivers of somebody else beside ours."""

from collections.abc import Iterator
from itertools import count
from typing import Any, Final

import pytest
import yaml

from services.mappings.kinds import ACCELERATOR, TABLE
from tests.e2e.api import Json, Place, accelbind, place_of, until
from tests.e2e.cluster import Cluster
from tests.e2e.dra import GROUP, SLICES
from tests.e2e.hosts import Hosts
from tests.e2e.pods import STAY, Pods, containers, simple
from tests.support import python_module

pytestmark = pytest.mark.usefixtures("can_run")

DRIVERS: Final = tuple(f"{kind}.foreign.example" for kind in ("gpu", "nic", "shared", "rare"))
GPU, NIC, SHARED, RARE = DRIVERS
TOGETHER: Final = "resource.kubernetes.io/pcieRoot"
SHOW: Final = "env | grep ^FOREIGN_ >/dev/termination-log; true"
BUNDLES: Final[dict[str, Json]] = {
    "pair": {"devices": [{"class": GPU}, {"class": NIC}], "together": TOGETHER},
    "fallback": {"devices": [{"prefer": [{"class": RARE}, {"class": GPU}]}]},
    "gpu": {"devices": [{"class": GPU}]},
    "share": {"devices": [{"class": SHARED, "share": {"capacity": {"memory": "4Gi"}}}]},
}
numbers = count()


@pytest.fixture(scope="module", autouse=True)
def foreign(cluster: Cluster, hosts: Hosts, pods: Pods) -> Iterator[None]:
    """The drivers, their classes, and names with templates for claims of them."""
    if not cluster.api.serves(GROUP, "deviceclasses"):
        pytest.skip(f"the API server has no {GROUP}")
    settings = cluster.settings
    where = (cluster.node, settings.api_server, settings.kubelet_dir, settings.cdi_dir)
    running = []
    for name in DRIVERS:
        selector = {"cel": {"expression": f'device.driver == "{name}"'}}
        metadata = {"name": name, "labels": cluster.labels}
        spec = {"selectors": [selector]}
        about = {"apiVersion": GROUP, "kind": "DeviceClass"}
        cluster.put(about | {"metadata": metadata, "spec": spec})
        if name != RARE:  # no node has devices of that class
            command = python_module("simulator.foreign_driver", name, *map(str, where))
            running.append(hosts.processes.start(command, name=name))
    for name, bundle in BUNDLES.items():
        file = hosts.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(bundle))
        printed = accelbind("dra", "template", name, "-f", str(file), "-n", pods.namespace)
        cluster.api.create(yaml.safe_load(printed))
        cluster.api.create(
            {
                "apiVersion": TABLE[ACCELERATOR].api_version,
                "kind": ACCELERATOR,
                "metadata": {"name": f"a-{name}", "namespace": pods.namespace},
                "spec": {"target": {"claimTemplate": name}},
            }
        )
    until(lambda: _published(cluster, len(running)), seconds=60, what="slices of the drivers")
    yield
    for process in running:
        process.terminate()
    for name in DRIVERS:
        cluster.remove(SLICES, f"{cluster.node}-{name}")


def _published(cluster: Cluster, number: int) -> None:
    found = [each["spec"]["driver"] for each in cluster.api.list(SLICES)]
    assert len([each for each in found if each in DRIVERS]) == number, found


def named(script: str = SHOW, **names: int) -> Json:
    """A pod of one container that asks for names."""
    limits = {f"accelbind.dev/a-{name}": number for name, number in names.items()}
    return simple(f"names-{next(numbers)}", limits, script)


def claims(pods: Pods) -> list[Json]:
    return pods.cluster.api.list(Place(GROUP, "ResourceClaim", pods.namespace))


def devices_of(pods: Pods, *names: str) -> dict[str, list[list[str]]]:
    """The devices of each claim of pods."""
    found: dict[str, list[list[str]]] = {}
    for claim in claims(pods):
        results = claim["status"]["allocation"]["devices"]["results"]
        owner = claim["metadata"]["ownerReferences"][0]["name"]
        found.setdefault(owner, []).append([each["device"] for each in results])
    return {name: sorted(found.get(name, [])) for name in names}


def start(pods: Pods, item: Json) -> str:
    name = pods.start(item)
    pods.begun(name)
    return name


def no_claims(pods: Pods) -> None:
    def look() -> None:
        assert not claims(pods), [each["metadata"]["name"] for each in claims(pods)]

    until(look, seconds=pods.patience, what="the end of all claims")


def test_two_pods_of_one_line_get_pairs_at_one_root_each(pods: Pods) -> None:
    names = [start(pods, named(STAY, pair=1)) for _ in range(2)]
    found = devices_of(pods, *names)
    numbers = [[one.rpartition("-")[2] for one in each] for (each,) in found.values()]
    assert all(gpu == nic for gpu, nic in numbers), found
    assert numbers[0] != numbers[1]
    pods.remove(*names)
    no_claims(pods)


def test_two_units_are_two_pairs_and_the_container_sees_them(pods: Pods) -> None:
    given = pods.given(pods.start(named(pair=2)))["show"].env
    assert set(given) >= {"FOREIGN_gpu", "FOREIGN_nic"}
    assert given["FOREIGN_gpu"][-1] == given["FOREIGN_nic"][-1]


def test_the_second_choice_is_given_where_the_first_one_is_missing(pods: Pods) -> None:
    name = start(pods, named(STAY, fallback=1))
    assert devices_of(pods, name)[name] == [["gpu-0"]]


def test_pods_share_a_device(pods: Pods) -> None:
    names = [start(pods, named(STAY, share=1)) for _ in range(2)]
    assert devices_of(pods, *names) == {name: [["shared-0"]] for name in names}


def test_init_containers_and_sidecars_reuse_claims(pods: Pods) -> None:
    """As the kubelet reuses devices: the sidecar keeps what the init container had."""
    item = named(gpu=1)
    (app,) = item["spec"]["containers"]
    init = app | {"name": "init"}
    sidecar: dict[str, Any] = app | {"name": "sidecar", "restartPolicy": "Always"}
    item["spec"]["initContainers"] = [init, sidecar | {"command": ["sh", "-c", STAY]}]
    name = start(pods, item)
    pod = pods.get(name)
    used = {
        each["name"]: [one["name"] for one in each["resources"]["claims"]]
        for each in containers(pod)
    }
    assert used == {"init": ["a-gpu-0"], "sidecar": ["a-gpu-0"], "show": ["a-gpu-1"]}
    assert len(claims(pods)) == 2
    pods.remove(name)
    no_claims(pods)


def test_a_name_without_its_template_waits_with_the_controllers_event(elsewhere: Pods) -> None:
    accelerator = {
        "apiVersion": TABLE[ACCELERATOR].api_version,
        "kind": ACCELERATOR,
        "metadata": {"name": "a-gpu", "namespace": elsewhere.namespace},
        "spec": {"target": {"claimTemplate": "gpu"}},
    }
    elsewhere.cluster.api.create(accelerator)
    name = elsewhere.start(named(gpu=1))
    elsewhere.until_waiting(name, '"gpu" not found')
    flags = ("--api-server", elsewhere.cluster.settings.api_server, "-n", elsewhere.namespace)
    told = accelbind("check", "mappings", *flags, codes=(1,))
    assert "ResourceClaimTemplate gpu does not exist" in told
    elsewhere.remove(name)
    elsewhere.cluster.remove(place_of(accelerator), "a-gpu")
