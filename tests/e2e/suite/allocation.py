"""Devices that a real scheduler allocates to names, on a node without a kubelet."""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from tests.e2e.api import Json, Place, until
from tests.e2e.cluster import NODES, Cluster
from tests.e2e.dra import GROUP, claim_of, device_class, name_of, require_claims
from tests.e2e.hosts import Hosts
from tests.e2e.pods import Pods, containers, simple

KINDS: Final = ("gpu", "nic", "shared", "tainted", "part")
DEVICES: Final = 128
LIMITED: Final = 32
"""Devices of a kind whose slices may have fewer."""
SHARES: Final = 8
DOMAIN: Final = "paper.example"
ROOT: Final = "resource.kubernetes.io/pcieRoot"
BATCHES: Final = 10
BATCH: Final = 20


def device(kind: str, number: int) -> Json:
    """A device of a kind; two of each kind are at one PCIe root."""
    root = {"string": f"pci0000:{number // 2:02x}"}
    model = {"string": "large" if number % 4 == 3 else "small"}
    more: Mapping[str, Json] = {
        "shared": {
            "allowMultipleAllocations": True,
            "capacity": {"shares": {"value": str(SHARES), "requestPolicy": {"default": "1"}}},
        },
        "tainted": {"taints": [{"key": f"{DOMAIN}/worn", "effect": "NoSchedule"}]},
        "part": {
            "consumesCounters": [
                {"counterSet": f"card-{number // 4}", "counters": {"slots": {"value": "2"}}}
            ]
        },
    }
    attributes = {ROOT: root, f"{DOMAIN}/model": model}
    return {"name": f"{kind}-{number:03}", "attributes": attributes} | more.get(kind, {})


def slices(kind: str, node: str) -> Iterator[Json]:
    """The slices of a driver; the cards of partitions have two slots for four of two."""
    count = LIMITED if kind in ("tainted", "part") else DEVICES
    content: list[Json] = [{"devices": [device(kind, number) for number in range(count)]}]
    if kind == "part":
        cards = [
            {"name": f"card-{number}", "counters": {"slots": {"value": "4"}}}
            for number in range(LIMITED // 4)
        ]
        content.append({"sharedCounters": cards})
    for number, part in enumerate(content):
        pool = {"name": node, "generation": 1, "resourceSliceCount": len(content)}
        spec = {"driver": f"{kind}.{DOMAIN}", "nodeName": node, "pool": pool, **part}
        metadata = {"name": f"{node}-{kind}-{number}"}
        yield {"apiVersion": GROUP, "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


class Paper(Pods):
    """Pods that are scheduled to a node on which nothing runs, and never start."""

    def __init__(self, cluster: Cluster, namespace: str, node: str) -> None:
        super().__init__(cluster, namespace)
        self._node = node

    def _bound(self) -> Json:
        return {"nodeSelector": {"kubernetes.io/hostname": self._node}}

    def template(self, name: str, devices: Json, *, count: int = 1) -> None:
        """Create a template, and an Accelerator that stands for claims of it."""
        self.cluster.api.create(claim_of(devices, name, self.namespace))
        self.cluster.api.create(name_of(name, name, self.namespace, count=count))

    def allocated(self, name: str) -> dict[str, Json]:
        """The allocation of each claim of a scheduled pod, by the claim's name in the pod."""
        claims = Place(GROUP, "ResourceClaim", self.namespace)

        def look() -> dict[str, Json]:
            pod = self.get(name)
            assert pod["spec"].get("nodeName") == self._node, self.described(pod)
            made = {
                each["name"]: each["resourceClaimName"]
                for each in pod["status"].get("resourceClaimStatuses") or ()
            }
            return {
                own: self.cluster.api.get(claims, made[own])["status"]["allocation"]["devices"]
                for own in (each["name"] for each in pod["spec"].get("resourceClaims") or ())
            }

        return until(look, seconds=self.patience, what=f"pod {name} to be scheduled")

    def scheduled(self, item: Json) -> dict[str, Json]:
        """Create a pod, and return what it is allocated."""
        return self.allocated(self.create(item))

    def remove(self, *names: str) -> None:
        """Remove pods, for which no kubelet has anything to do, and wait for the end of claims."""
        for name in names:
            self.cluster.api.delete(self.place, name, grace=0)
        self.until_unclaimed()


@pytest.fixture(scope="module")
def on_paper(cluster: Cluster, hosts: Hosts) -> Paper:
    """A node that is an object only, its devices, and a namespace for names of them."""
    require_claims(cluster)
    del hosts  # whose webhook replaces the names
    name = cluster.name("paper")
    labels = cluster.labels | {"kubernetes.io/hostname": name}
    about = {"metadata": {"name": name, "labels": labels}}
    taint = {"key": f"{DOMAIN}/paper", "effect": "NoSchedule"}
    cluster.put({"apiVersion": "v1", "kind": "Node", "spec": {"taints": [taint]}} | about)
    room = {"cpu": "64", "memory": "64Gi", "pods": "500"}
    status = {"status": {"capacity": room, "allocatable": room}}
    cluster.api.ask(
        *("PATCH", f"{NODES.path}/{name}/status"),
        body=status,
        content_type="application/merge-patch+json",
    )
    for kind in KINDS:
        for item in slices(kind, name):
            item["metadata"]["labels"] = cluster.labels
            cluster.put(item)
        cluster.put(device_class(f"{kind}.{DOMAIN}", cluster.labels))
    namespace = cluster.namespace("paper", **{"resource.kubernetes.io/admin-access": "true"})
    return Paper(cluster, namespace, name)


@pytest.fixture
def paper(on_paper: Paper) -> Iterator[Paper]:
    """The same, without pods and claims of the test before."""
    yield on_paper
    on_paper.tidy()


def exactly(kind: str, name: str = "r", **more: Any) -> Json:
    return {"name": name, "exactly": {"deviceClassName": f"{kind}.{DOMAIN}"} | more}


def where(text: str) -> list[Json]:
    return [{"cel": {"expression": f'device.attributes["{DOMAIN}"].{text}'}}]


# 200 pods -----------------------------------------------------------------------------------------

TEMPLATES: Final[Mapping[str, Json]] = {
    "pair": {
        "requests": [exactly("gpu", "a"), exactly("nic", "b")],
        "constraints": [{"requests": ["a", "b"], "matchAttribute": ROOT}],
    },
    "large": {"requests": [exactly("gpu", selectors=where('model == "large"'))]},
    "gpu": {"requests": [exactly("gpu")]},
    "share": {"requests": [exactly("shared", capacity={"requests": {"shares": "3"}})]},
    "choice": {
        "requests": [
            {
                "name": "r",
                "firstAvailable": [
                    {
                        "name": "no",
                        "deviceClassName": f"nic.{DOMAIN}",
                        "selectors": where('model == "huge"'),
                    },
                    {"name": "yes", "deviceClassName": f"nic.{DOMAIN}"},
                ],
            }
        ]
    },
}
COUNTS: Final = {"gpu": 2}
"""Claims of a unit, where it is not one."""


def random_pod(chance: random.Random, number: int) -> Json:
    """A pod with containers of all sorts that request names."""
    item = simple(f"random-{number}", {}, "true")
    (app,) = item["spec"]["containers"]
    sorts = [*chance.choices(("init", "sidecar", "app"), k=chance.randint(0, 2)), "app"]
    for place, sort in enumerate(sorts):
        names = chance.sample([*TEMPLATES], chance.choice((0, 1, 1, 2)))
        limits = {f"accelbind.dev/{name}": 1 for name in names}
        made: Json = app | {"name": f"c{place}", "resources": {"limits": limits}}
        if sort == "sidecar":
            made["restartPolicy"] = "Always"
        group = "containers" if sort == "app" else "initContainers"
        item["spec"].setdefault(group, []).append(made)
    item["spec"]["containers"].remove(app)
    return item


def by_hand(item: Json) -> Json:
    """The same pod with claims in place of names, as a person would write it."""
    item = {**item, "spec": dict(item["spec"])}
    free = defaultdict[str, list[str]](list)  # claims of earlier init containers, by template
    entries: list[Json] = []
    for group in ("initContainers", "containers"):
        written = []
        for container in item["spec"].get(group, ()):
            own, passed_on = [], defaultdict[str, list[str]](list)
            for key in sorted(container["resources"]["limits"]):
                template = key.partition("/")[2]
                for _ in range(COUNTS.get(template, 1)):
                    if free[template]:
                        name = free[template].pop(0)
                    else:
                        name = f"mine-{len(entries)}"
                        entries.append({"name": name, "resourceClaimTemplateName": template})
                    own.append({"name": name})
                    passed_on[template].append(name)
            if group == "initContainers" and "restartPolicy" not in container:
                for template, names in passed_on.items():
                    free[template] = names + free[template]
            written.append({**container, "resources": {"claims": own} if own else {}})
        if written:
            item["spec"][group] = written
    if entries:
        item["spec"]["resourceClaims"] = entries
    return item


def renamed(pod: Json) -> Json:
    """The spec of a pod whose claims are called by their order."""
    spec: Json = pod["spec"]
    entries = spec.pop("resourceClaims", [])
    names = {each["name"]: f"claim-{number}" for number, each in enumerate(entries)}
    for each in containers(pod):
        for claim in each["resources"].get("claims", ()):
            claim["name"] = names[claim["name"]]
    listed = [each | {"name": names[each["name"]]} for each in entries]
    return spec | {"resourceClaims": listed}


def test_200_random_pods_get_by_name_what_they_get_by_hand(paper: Paper) -> None:
    """As many pods of each way, one after another; half a second each, in which claims are made."""
    for name, devices in TEMPLATES.items():
        paper.template(name, devices, count=COUNTS.get(name, 1))
    chance = random.Random(38)  # noqa: S311 - the same pods in each run
    paper.admitted(simple("all", {f"accelbind.dev/{name}": 1 for name in TEMPLATES}))
    claims = 0
    for batch in range(BATCHES):
        items = [random_pod(chance, batch * BATCH + number) for number in range(BATCH)]
        for item in items:
            named, written = paper.try_out(item), paper.try_out(by_hand(item))
            assert renamed(named) == renamed(written), item
        ways = []
        for way in (items, [*map(by_hand, items)]):
            ways.append([[*paper.scheduled(item).values()] for item in way])
            paper.remove(*(item["metadata"]["name"] for item in way))
        for one, other in zip(*ways, strict=True):
            assert [*map(_devices, one)] == [*map(_devices, other)]
            claims += len(one)
    assert claims > BATCHES * BATCH


def _devices(allocation: Json) -> list[tuple[str, str]]:
    return [(each["request"], each["device"]) for each in allocation["results"]]


# Demonstrations -----------------------------------------------------------------------------------

CONFIG: Final = {"requests": ["r"], "opaque": {"driver": f"gpu.{DOMAIN}", "parameters": {"a": 1}}}
TOLERATION: Final = {"key": f"{DOMAIN}/worn", "operator": "Exists", "effect": "NoSchedule"}
EVERY: Final[Json] = {
    "allocationMode": "All",
    "adminAccess": True,
    "selectors": where('model == "large"'),
}
LARGE: Final = " ".join(f"gpu-{number:03}" for number in range(3, DEVICES, 4))
ALTERNATIVES: Final = [
    {"name": "two", "deviceClassName": f"gpu.{DOMAIN}", "selectors": where('model == "huge"')},
    {"name": "one", "deviceClassName": f"gpu.{DOMAIN}"},
]


@pytest.mark.parametrize(
    ("name", "devices", "units", "expected"),
    [
        pytest.param(
            "one", [exactly("gpu")], [1, 1], "gpu-000 | gpu-001", id="a device for each pod"
        ),
        pytest.param(
            "requests", [exactly("gpu", "a"), exactly("gpu", "b")], [1], "gpu-000 gpu-001", id="two"
        ),
        pytest.param(
            "selected", [exactly("gpu", selectors=where('model == "large"'))], [1], "gpu-003"
        ),
        pytest.param("first", [{"name": "r", "firstAvailable": ALTERNATIVES}], [1], "gpu-000"),
        pytest.param(
            "bandwidth",
            [exactly("shared", capacity={"requests": {"shares": "4"}})],
            *([1, 1, 1], "shared-000 | shared-000 | shared-001"),
        ),
        pytest.param("parts", [exactly("part", count=3)], [1], "part-000 part-001 part-004"),
        pytest.param("worn", [exactly("tainted", tolerations=[TOLERATION])], [1], "tainted-000"),
        pytest.param("watch", [exactly("gpu", **EVERY)], [1, 1], f"{LARGE} | {LARGE}"),
    ],
)
def test_a_demonstration_by_one_line_gets_these_devices(
    paper: Paper, name: str, devices: list[Json], units: list[int], expected: str
) -> None:
    """Pods that request so many units of a name get devices, in order."""
    paper.template(name, {"requests": devices})
    items = [
        simple(f"{name}-{number}", {f"accelbind.dev/{name}": amount}, "true")
        for number, amount in enumerate(units)
    ]
    paper.admitted(items[0])
    found = [paper.scheduled(item).values() for item in items]
    given = [" ".join(each["device"] for one in pod for each in one["results"]) for pod in found]
    assert " | ".join(given) == expected


def test_configuration_comes_with_the_claim_of_a_name(paper: Paper) -> None:
    paper.template("tuned", {"requests": [exactly("gpu")], "config": [CONFIG]})
    item = simple("tuned", {"accelbind.dev/tuned": 1}, "true")
    paper.admitted(item)
    (allocation,) = paper.scheduled(item).values()
    (config,) = allocation["config"]
    assert config["opaque"]["parameters"] == {"a": 1}


def test_a_device_with_a_taint_that_is_not_tolerated_is_not_given(paper: Paper) -> None:
    paper.template("taint", {"requests": [exactly("tainted")]})
    item = simple("taint", {"accelbind.dev/taint": 1}, "true")
    paper.admitted(item)
    paper.create(item)
    paper.until_waiting("taint", "cannot allocate all claims")
