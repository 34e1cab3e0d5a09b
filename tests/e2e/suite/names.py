"""Names that stand for claims, with drivers of somebody else beside ours."""

from collections.abc import Iterator
from itertools import count
from typing import Any, Final

import pytest
import yaml

from tests.e2e.api import Json, Refused, accelbind, place_of, until
from tests.e2e.cluster import GUARD_LABEL, Cluster, documents
from tests.e2e.dra import GROUP, SLICES, TEMPLATE, claim_of, device_class, name_of, require_claims
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
    "share": {"devices": [{"class": SHARED, "share": {"capacity": {"shares": 4}}}]},
}
numbers = count()
TENANT: Final = "tenant-of-e2e"
RIGHTS: Final = "rbac.authorization.k8s.io/v1"
POLICIES: Final = "components/guard-claims/policy.yaml"


@pytest.fixture(scope="module", autouse=True)
def foreign(cluster: Cluster, hosts: Hosts, pods: Pods) -> Iterator[None]:
    """The drivers, their classes, and names with templates for claims of them."""
    require_claims(cluster)
    settings = cluster.settings
    where = (cluster.node, settings.api_server, settings.kubelet_dir, settings.cdi_dir)
    running = []
    for name in DRIVERS:
        cluster.put(device_class(name, cluster.labels))
        if name != RARE:  # no node has devices of that class
            command = python_module("tests.e2e.foreign_driver", name, *map(str, where))
            running.append(hosts.processes.start(command, name=name))
    for name, bundle in BUNDLES.items():
        file = hosts.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(bundle))
        printed = accelbind("dra", "template", name, "-f", str(file), "-n", pods.namespace)
        cluster.api.create(yaml.safe_load(printed))
        cluster.api.create(name_of(name, f"a-{name}", pods.namespace))
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


def devices_of(pods: Pods, *names: str) -> dict[str, list[list[str]]]:
    """The devices of each claim of pods."""
    found: dict[str, list[list[str]]] = {}
    for claim in pods.claims():
        results = claim["status"]["allocation"]["devices"]["results"]
        owner = claim["metadata"]["ownerReferences"][0]["name"]
        found.setdefault(owner, []).append([each["device"] for each in results])
    return {name: sorted(found.get(name, [])) for name in names}


def start(pods: Pods, item: Json) -> str:
    name = pods.start(item)
    pods.begun(name)
    return name


def test_two_pods_of_one_line_get_pairs_at_one_root_each(pods: Pods) -> None:
    names = [start(pods, named(STAY, pair=1)) for _ in range(2)]
    found = devices_of(pods, *names)
    numbers = [[one.rpartition("-")[2] for one in each] for (each,) in found.values()]
    assert all(gpu == nic for gpu, nic in numbers), found
    assert numbers[0] != numbers[1]
    pods.remove(*names)
    pods.until_unclaimed()


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
    assert len(pods.claims()) == 2
    pods.remove(name)
    pods.until_unclaimed()


def test_a_name_without_its_template_waits_with_the_controllers_event(elsewhere: Pods) -> None:
    accelerator = name_of("gpu", "a-gpu", elsewhere.namespace)
    elsewhere.cluster.api.create(accelerator)
    name = elsewhere.start(named(gpu=1))
    elsewhere.until_waiting(name, '"gpu" not found')
    flags = ("--api-server", elsewhere.cluster.settings.api_server, "-n", elsewhere.namespace)
    told = accelbind("check", "mappings", *flags, codes=(1,))
    assert "ResourceClaimTemplate gpu does not exist" in told
    elsewhere.remove(name)
    elsewhere.cluster.remove(place_of(accelerator), "a-gpu")


# Ways round the guard -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(cluster: Cluster, hosts: Hosts) -> Pods:
    """A guarded namespace with a name, its template, and a tenant who may use the class NIC."""
    del hosts  # whose webhook is the guard
    namespace = cluster.namespace("claims", **{GUARD_LABEL: "true"})
    policy, binding = documents(POLICIES)
    name = cluster.name("guard-claims")
    for item in (policy, binding):
        item["metadata"] = {"name": name, "labels": cluster.labels}
    selector = {"matchLabels": cluster.labels | {GUARD_LABEL: "true"}}
    policy["spec"]["matchConstraints"]["namespaceSelector"] = selector
    binding["spec"]["policyName"] = name
    claims = {"apiGroups": ["resource.k8s.io"], "verbs": ["*"]}
    rules: list[Json] = [
        claims | {"resources": ["resourceclaims", "resourceclaimtemplates"]},
        claims | {"resources": ["deviceclasses"], "resourceNames": [NIC], "verbs": ["use"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]},
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": TENANT}
    about = {"apiVersion": RIGHTS, "metadata": {"name": name, "labels": cluster.labels}}
    for item in (
        *(policy, binding, about | {"kind": "ClusterRole", "rules": rules}),
        about | {"kind": "ClusterRoleBinding", "roleRef": role, "subjects": [user]},
    ):
        cluster.put(item)
    gpu = {"name": "r", "exactly": {"deviceClassName": GPU}}
    cluster.api.create(claim_of({"requests": [gpu]}, "gpu", namespace))
    cluster.api.create(name_of("gpu", "a-gpu", namespace))
    return Pods(cluster, namespace)


def by_tenant(cluster: Cluster, item: Json, method: str = "POST") -> str:
    """Why a tenant may not write an object; empty if it may."""
    path = place_of(item).path + (f"/{item['metadata']['name']}" if method == "PUT" else "")
    tenant = {"Impersonate-User": TENANT}
    try:
        cluster.api.ask(method, path, params={"dryRun": "All"}, body=item, headers=tenant)
    except Refused as error:
        return error.text
    return ""


ANY_CLASS: Final = "may not use DeviceClass"
EXTENDED: Final = "nvidia.com/of-a-class"
"""In the guard's list, see `GUARDED`."""
NOT_BY_NAME: Final = 'admission webhook "guard-claims.accelbind.dev" denied the request'


def test_eight_ways_round_the_guard_of_claims_are_refused(guarded: Pods, pods: Pods) -> None:
    cluster, namespace = guarded.cluster, guarded.namespace

    def claim(request: Json, *, template: bool = False) -> str:
        kind = TEMPLATE if template else "ResourceClaim"
        devices = {"requests": [{"name": "r", **request}]}
        return by_tenant(cluster, claim_of(devices, "own", namespace, kind))

    def in_pod(limits: dict[str, int], **entry: str) -> str:
        item = guarded.fitted(simple("round", limits))
        if entry:
            item["spec"]["resourceClaims"] = [{"name": "c", **entry}]
            item["spec"]["containers"][0]["resources"] = {"claims": [{"name": "c"}]}
        return by_tenant(cluster, item)

    gpu, nic = ({"deviceClassName": each} for each in (GPU, NIC))
    until(lambda: _says(claim({"exactly": gpu}), ANY_CLASS), seconds=60, what="the policy")
    assert claim({"exactly": nic}) == "", "what the tenant may use"
    assert claim({"exactly": nic}, template=True) == ""
    _says(claim({"exactly": gpu}, template=True), ANY_CLASS)
    alternatives = [{"name": "a", **nic}, {"name": "b", **gpu}]
    _says(claim({"firstAvailable": alternatives}), f"{ANY_CLASS} {GPU}")
    _says(claim({"exactly": {"deviceClassName": "no-selector"}}), ANY_CLASS)
    by_class = {f"deviceclass.resource.kubernetes.io/{GPU}": 1}
    until(lambda: _says(in_pod(by_class), NOT_BY_NAME), seconds=60, what="the guard")
    named = {"metadata": {"name": cluster.name("named"), "labels": cluster.labels}}
    spec = {"spec": {"extendedResourceName": EXTENDED}}
    cluster.put({"apiVersion": GROUP, "kind": "DeviceClass"} | named | spec)
    _says(in_pod({EXTENDED: 1}), f"{EXTENDED} is guarded")
    _says(in_pod({}, resourceClaimTemplateName="gpu"), "request a-gpu instead")
    _says(in_pod({}, resourceClaimName="anybodys"), "ResourceClaim/anybodys is guarded")
    devices = {"requests": [{"name": "r", "exactly": gpu}]}
    elsewhere = claim_of(devices, "of-elsewhere", pods.namespace)
    cluster.api.create(elsewhere)
    _says(in_pod({}, resourceClaimTemplateName="of-elsewhere"), NOT_BY_NAME)
    stored = cluster.api.get(place_of(elsewhere | {"metadata": {"namespace": namespace}}), "gpu")
    stored["spec"]["spec"]["devices"]["requests"][0]["exactly"] = {"deviceClassName": SHARED}
    _says(by_tenant(cluster, stored, "PUT"), "field is immutable")
    assert in_pod({"accelbind.dev/a-gpu": 1}) == "", "what the name stands for"


def _says(text: str, words: str) -> None:
    assert words in text, text
