"""The chart renders what kustomize does, and each value changes what it says."""

import json
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from certs.authority import create_authority
from simulator.apiserver.resources import Resource
from simulator.apiserver.standin import ApiServerStandIn
from tests.docs import blocks
from tests.manifests.helm import (
    CHART,
    helm,
    leaves,
    refusal,
    run_helm,
    template,
    with_values,
)
from tests.manifests.rendering import (
    NAMESPACE,
    OVERLAYS,
    TWO_POOLS,
    Json,
    named,
    of_kind,
    one,
    own_overlay,
    pod_spec,
    rendered,
    workloads,
)
from tests.manifests.test_rendering import NEWEST, check
from tests.simulator.apiserver.support import client_of
from tests.support import REPOSITORY

EXAMPLES = REPOSITORY / "examples" / "helm"
KEPT = "helm.sh/resource-policy"
DRY_RUN = "dryRun=All&fieldValidation=Strict"
UNORDERED = {
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "tolerations": "key",
}
"""Lists whose order means nothing, with the key that tells their items apart."""


@pytest.fixture(autouse=True)
def _helm() -> None:
    helm()


def comparable(items: list[Json]) -> dict[str, Json]:
    """Objects by name, without what only Helm needs and in one order."""
    found = {}
    for item in items:
        metadata = item["metadata"]
        if metadata.get("annotations", {}).pop(KEPT, None) and not metadata["annotations"]:
            del metadata["annotations"]
        found[named(item)] = ordered(item)
    assert len(found) == len(items), "an object is there twice"
    return found


def ordered(value: Any, by: str = "") -> Any:
    """The same with lists in one order whose order means nothing.

    Args:
        value: Any part of an object.
        by: The key to sort a list by; empty leaves it as it is.
    """
    if isinstance(value, dict):
        return {key: ordered(inner, UNORDERED.get(key, "")) for key, inner in value.items()}
    if isinstance(value, str) and "\n" in value and "object." in value:
        return " ".join(value.split())  # CEL: kustomize adds a line break that means nothing
    if isinstance(value, list):
        items = [ordered(inner) for inner in value]
        return sorted(items, key=lambda item: str(item.get(by))) if by else items
    return value


def compare(chart: list[Json], kustomized: list[Json]) -> None:
    ours, theirs = comparable(chart), comparable(kustomized)
    assert set(ours) == set(theirs)
    for name, item in theirs.items():
        assert ours[name] == item, name


def test_the_defaults_are_the_default_overlay_without_its_namespace() -> None:
    kustomized = [item for item in rendered("overlays/af") if item["kind"] != "Namespace"]
    compare(template(), kustomized)


@pytest.mark.parametrize("name", [*OVERLAYS, "pools"])
def test_each_overlay_has_values_that_render_to_the_same(name: str) -> None:
    folder = TWO_POOLS if name == "pools" else f"overlays/{name}"
    given = () if name == "af" else ("--values", EXAMPLES / f"{name}.yaml")
    compare(template("--set", "namespace.create=true", *given), rendered(folder))


COMPONENTS: dict[str, tuple[str, Json]] = {
    "kubelet-root": ("af", {"kubelet": {"root": "/var/lib/k0s/kubelet"}}),
    "nfd": ("af", {"nodeFeatureRule": {"enabled": True}}),
    "cdi": ("af", {"pools": [{"name": "default", "cdi": True}]}),
    "pod-logs": ("af", {"pools": [{"name": "default", "podLogs": True}]}),
    "enforce-mappings": ("af", {"pools": [{"name": "default", "enforceMappings": "always"}]}),
    "tolerate-taints": (
        "af",
        {
            "pools": [
                {
                    "name": "default",
                    "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
                }
            ]
        },
    ),
}
"""Components that no overlay has, each with an overlay that it fits and values that do the same."""


@pytest.mark.parametrize("name", COMPONENTS)
def test_components_have_values_that_render_to_the_same(name: str, tmp_path: Path) -> None:
    overlay, values = COMPONENTS[name]
    kustomized = own_overlay(tmp_path, name, resources=(f"overlays/{overlay}",))
    if name == "nfd":  # its labels are applied to all objects, which have them already
        one(kustomized, "NodeFeatureRule", "accelbind")
    compare(with_values(values | {"namespace": {"create": True}}), kustomized)


def test_another_namespace_is_that_of_kustomize(tmp_path: Path) -> None:
    kustomized = own_overlay(
        tmp_path,
        resources=("overlays/cert-manager",),
        namespace="elsewhere",
        transformers=["namespace"],
    )
    values = {"namespace": {"create": True}, "certificates": {"source": "cert-manager"}}
    compare(with_values(values, namespace="elsewhere"), kustomized)


def test_what_helm_must_not_delete_is_kept() -> None:
    kept = {
        named(item)
        for item in template("--set", "namespace.create=true")
        if item["metadata"].get("annotations", {}).get(KEPT) == "keep"
    }
    assert kept == {
        *(f"Secret {NAMESPACE}/{name}" for name in ("accelbind-ca", "accelbind-webhook-tls")),
        *(
            f"CustomResourceDefinition /{plural}.fpga.intel.com"
            for plural in ("acceleratorfunctions", "fpgaregions")
        ),
        f"Namespace /{NAMESPACE}",
    }
    for item in template():
        assert not {"data", "stringData"} & set(item) or item["kind"] == "ConfigMap", "overwritten"
        for webhook in item.get("webhooks", ()):
            assert set(webhook["clientConfig"]) == {"service"}, "the bundle would be overwritten"


# What values do


class Case(NamedTuple):
    """A line of values.yaml beside this file, which says what its fields are."""

    values: Json
    kind: str
    name: str
    path: str
    expected: Any


PEM = create_authority(datetime.now(UTC), timedelta(days=1)).certificate_pem.decode()
CASES = [
    Case(*line)
    for line in yaml.safe_load(
        (Path(__file__).parent / "values.yaml")
        .read_text()
        .replace("DIGEST", f"sha256:{'0' * 64}")
        .replace("BUNDLE", json.dumps(PEM))
    )
]
checked: set[str] = set()
"""Objects that fit their schema, as text: most are the same with each value."""


def found(items: list[Json], case: Case) -> Any:
    item = one(items, case.kind, case.name)
    value: Any = item
    for step in case.path.split("."):
        if step == "pod":
            value = pod_spec(item)
        else:
            value = value[int(step) if isinstance(value, list) else step]
    return value


@pytest.mark.parametrize("case", CASES, ids=lambda case: json.dumps(case.values)[:60])
def test_a_value_changes_what_it_says(case: Case) -> None:
    items = with_values(case.values)
    if case.expected is None:
        assert case.name not in {each["metadata"]["name"] for each in of_kind(items, case.kind)}
    else:
        assert found(items, case) == case.expected
    for item in items:
        if (text := json.dumps(item, sort_keys=True)) not in checked:
            check(item, NEWEST)
            checked.add(text)


def all_values() -> Iterator[Json]:
    """The values of all tests."""
    yield from (case.values for case in CASES)
    yield from (values for _, values in COMPONENTS.values())
    yield from (yaml.safe_load(path.read_text()) for path in EXAMPLES.glob("*.yaml"))


@pytest.mark.anyio
async def test_an_api_server_would_take_what_each_value_gives(tmp_path: Path) -> None:
    """A server-side dry run of all objects."""
    rendered_ones = (item for values in [{}, *all_values()] for item in with_values(values))
    items = {json.dumps(item, sort_keys=True): item for item in rendered_ones}
    assert len(items) > 100
    api = ApiServerStandIn(tmp_path)
    async with api, client_of(api) as client:
        api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        for item in items.values():
            if item["kind"] != "Namespace":
                answer = await client.post(f"{collection(api, item)}?{DRY_RUN}", json=item)
                assert answer.status_code == 201, f"{named(item)}: {answer.text}"


def collection(api: ApiServerStandIn, item: Json) -> str:
    """The path where an object is created; the stand-in serves its kind from then on."""
    group, _, version = item["apiVersion"].rpartition("/")
    namespace = item["metadata"].get("namespace")
    served = {(each.group, each.kind): each.plural for each in api.table}
    plural = served.get((group, item["kind"]))
    if plural is None:
        plural = f"{item['kind'].lower()}s".replace("ys", "ies")
        api.table.put(
            Resource(group, version, plural, item["kind"], namespaced=namespace is not None)
        )
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


def test_every_value_and_every_field_of_a_pool_is_tried() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    wanted = {path.partition("pod-security")[0].strip(".") for path in leaves(values)}
    tried: set[str] = set()
    fields: set[str] = set()
    for each in all_values():
        tried |= leaves(each)
        fields |= {name for pool in each.get("pools", ()) for name in pool}
    untried = {path for path in wanted if not any(one.startswith(path) for one in tried)}
    assert untried == set()
    assert fields == set(schema["$defs"]["pool"]["properties"])
    assert set(schema["properties"]) - {"global"} == set(values)


PLUGIN = {"accelbind.dev/plugin": "true"}
AFFINITY: Json = {"nodeAffinity": {}}
HALF_A_PEM = PEM.partition("-----END")[0]


def test_the_chart_refuses_what_is_no_value() -> None:
    for values, said in (
        ({"webhook": {"replica": 1}}, "'replica' not allowed"),
        ({"pools": [{"name": "b", "node": {}}]}, "'node' not allowed"),
        ({"pools": [{"name": "b", "mode": "afx"}]}, "/pools/0/mode"),
        ({"pools": [{"name": "B"}]}, "/pools/0/name"),
        ({"pools": [{"name": "b"}, {"name": "b"}]}, "two pools are called b"),
        ({"pools": [{"name": "a"}, {"name": "b"}]}, "pools a and b select the same nodes"),
        ({"openshift": {"scc": True}, "webhook": {"hostNetwork": True}}, "exclude each other"),
        (
            a_and_b({}, {"nodeSelector": PLUGIN | {"pool": "b"}}),
            "of pool a also selects the nodes of pool b",
        ),
        (
            a_and_b({"nodeSelector": PLUGIN | {"x": ""}}, {}),
            "of pool b also selects the nodes of pool a",
        ),
        (a_and_b({"affinity": AFFINITY}, {"affinity": AFFINITY}), "pools a and b select the same"),
        (a_and_b({}, {"units": 7}), "/pools/1"),
        (a_and_b({}, {"mode": "af", "units": 7}), "/pools/1/mode"),
        (a_and_b({}, {"affinity": {"nonsense": 1}}), "'nonsense' not allowed"),
        (a_and_b({}, {"updateStrategy": rolling("many")}), "rollingUpdate/maxUnavailable"),
        (a_and_b({}, {"updateStrategy": rolling(0)}), "rollingUpdate/maxUnavailable"),
        (a_and_b({}, {"updateStrategy": rolling("0%")}), "rollingUpdate/maxUnavailable"),
        (
            {"pools": [{"name": "a", "env": [{"name": "ACCELBIND_MODE"}]}]},
            "sets ACCELBIND_MODE itself",
        ),
        ({"webhook": {"env": [{"name": "ACCELBIND_DOMAIN"}]}}, "sets ACCELBIND_DOMAIN itself"),
        ({"webhook": {"args": ["--domain=b.example"]}}, "use the value domains"),
        ({"monitoring": {"namespace": "m o"}}, "/monitoring/namespace"),
        ({"pools": [{"name": "b", "programming": "oci-hook"}]}, "needs mode region"),
        ({"certificates": {"source": "vault"}}, "/certificates/source"),
        ({"certificates": {"source": "existingSecret"}}, "/certificates"),
        ({"certificates": {"existingSecret": "x"}}, "/certificates/existingSecret"),
        ({"certificates": own_certificate(HALF_A_PEM)}, "/certificates/caBundle"),
        ({"certificates": own_certificate(PEM.replace("\nMI", "\nno"))}, "/certificates/caBundle"),
        ({"images": {"webhook": {"digest": "sha256:1"}}}, "/images/webhook/digest"),
        ({"domains": []}, "/domains"),
        ({"domains": ["b.example"]}, "domains lacks fpga.intel.com"),
        ({"domains": ["a'b.example"]}, "/domains/0"),
        ({"bitstreams": {"volume": {"nfs": {}, "hostPath": {}}}}, "/bitstreams/volume"),
        ({"bitstreams": {"volume": {"nonsense": {}}}}, "invalid propertyName 'nonsense'"),
        ({"bitstreams": {"volume": {"nfs": "x"}}}, "/bitstreams/volume/nfs"),
    ):
        assert said in refusal(values), values


def a_and_b(a: Json, b: Json) -> Json:
    """Values with two pools."""
    return {"pools": [{"name": "a", **a}, {"name": "b", **b}]}


def rolling(unavailable: int | str) -> Json:
    return {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": 0},
    }


def own_certificate(bundle: str) -> Json:
    return {"source": "existingSecret", "existingSecret": "own", "caBundle": bundle}


@pytest.mark.parametrize(
    "pools",
    [
        a_and_b({"nodeSelector": {"x": "1", "y": "1"}}, {"nodeSelector": {"x": "2"}}),
        a_and_b({"nodeSelector": {"x": "1"}}, {"nodeSelector": {"y": ""}}),
        a_and_b({"affinity": AFFINITY}, {}),
        a_and_b({}, {"nodeSelector": PLUGIN | {"pool": "b"}, "affinity": AFFINITY}),
        a_and_b(
            {"updateStrategy": rolling(1), "nodeSelector": {"x": "1"}},
            {"updateStrategy": rolling("100%")},
        ),
    ],
)
def test_pools_that_nothing_shows_to_overlap_are_taken(pools: Json) -> None:
    assert len(of_kind(with_values(pools), "DaemonSet")) == 2


def test_env_cannot_repeat_a_variable_of_the_plugin() -> None:
    """Each that the chart sets with any values, so that none is missing in its list."""
    given = {
        variable["name"]
        for values in all_values()
        for item in of_kind(with_values(values), "DaemonSet")
        for variable in pod_spec(item)["containers"][0]["env"]
    } - {"A"}
    assert len(given) > 10
    for name in given:
        pools = [{"name": "default", "env": [{"name": name}]}]
        assert f"sets {name} itself" in refusal({"pools": pools})


def test_conditions_of_the_webhooks_are_those_of_the_domains() -> None:
    (first, *_), (last, *_) = (
        one(with_values({"domains": ["fpga.intel.com", "b.example"]}), kind, "accelbind")[
            "webhooks"
        ]
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    )
    either = "k.startsWith('fpga.intel.com/') || k.startsWith('b.example/')"
    for webhook in (first, last):
        (condition,) = webhook["matchConditions"]
        assert condition["expression"].count(either) == 2
        plain = condition["expression"].replace(either, "k.startsWith('fpga.intel.com/')")
        (known,) = one(rendered("base"), "MutatingWebhookConfiguration", "accelbind")["webhooks"][
            0
        ]["matchConditions"]
        assert plain.split() == known["expression"].split()


def test_a_bundle_of_ones_own_is_in_every_webhook() -> None:
    items = with_values({"certificates": own_certificate(f"{PEM}\n# the next one\n{PEM}")})
    bundles = {
        webhook["clientConfig"]["caBundle"]
        for item in items
        for webhook in item.get("webhooks", ())
    }
    assert len(bundles) == 1
    assert "accelbind-certs" not in workloads(items)


def test_nothing_is_wrong_with_the_chart_and_its_package_is_whole(tmp_path: Path) -> None:
    linted = run_helm("lint", "--strict", CHART)
    assert linted.returncode == 0, linted.stdout
    packed = run_helm("package", CHART, "--destination", tmp_path)
    assert packed.returncode == 0, packed.stderr
    (archive,) = tmp_path.glob("*.tgz")
    done = run_helm("template", "accelbind", archive, "--namespace", NAMESPACE)
    assert done.returncode == 0, done.stderr
    packaged = [item for item in yaml.safe_load_all(done.stdout) if item]
    assert comparable(packaged) == comparable(template())


def test_commands_of_the_documents_name_flags_that_helm_has() -> None:
    named = [each for page in blocks.pages() for each in blocks.commands(page)]
    typed = [each.text for each in named if each.text.startswith("helm ")]
    assert len(typed) > 2
    for text in typed:
        _, command, *words = shlex.split(text.partition("|")[0])
        assert "accelbind" in words
        assert CHART in {REPOSITORY / word.removeprefix("../") for word in words}
        known = run_helm(command, "--help").stdout
        assert all(f"{each} " in known for each in words if each.startswith("--")), text
