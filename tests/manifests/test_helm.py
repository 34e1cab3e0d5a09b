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
    """Values, and what they change.

    Args:
        values: As in values.yaml; a pool's go to the pool `default`.
        kind: Of the object.
        name: Of the object.
        path: Where in the object, or in its pods' spec where it begins with `pod`.
        expected: What is there; None if the object must be missing.
    """

    values: Json
    kind: str
    name: str
    path: str
    expected: Any


WEBHOOK = ("Deployment", "accelbind-webhook")
CERTS = ("Deployment", "accelbind-certs")
PLUGIN = ("DaemonSet", "accelbind-plugin")
DIGEST = f"sha256:{'0' * 64}"
RESOURCES = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
PEM = create_authority(datetime.now(UTC), timedelta(days=1)).certificate_pem.decode()
GIVEN = {"source": "existingSecret", "existingSecret": "own", "caBundle": PEM}
TAINT = {"key": "a", "operator": "Exists", "effect": "NoExecute"}


def pool(**fields: Any) -> Json:
    return {"pools": [{"name": "default"} | fields]}


def variable(name: str, value: str) -> Json:
    return {"name": name, "value": value}


checked: set[str] = set()
"""Objects that fit their schema, as text: most are the same with each value."""
NFD = "nfd.k8s-sigs.io/v1alpha1"

CASES = [
    *(
        Case(
            {"images": {part: {"repository": "r.example/x", "tag": "9"}}},
            *of,
            path,
            "r.example/x:9",
        )
        for part, of, path in (
            ("webhook", WEBHOOK, "pod.containers.0.image"),
            ("plugin", PLUGIN, "pod.containers.0.image"),
            ("certs", CERTS, "pod.containers.0.image"),
        )
    ),
    *(
        Case({"images": {part: {"digest": DIGEST}}}, *of, path, f"accelbind-{part}@{DIGEST}")
        for part, of, path in (
            ("webhook", WEBHOOK, "pod.containers.0.image"),
            ("plugin", PLUGIN, "pod.containers.0.image"),
            ("certs", CERTS, "pod.containers.0.image"),
        )
    ),
    *(
        Case(
            pool(mode="region", programming="oci-hook") | {"images": {"hookInstaller": given}},
            *PLUGIN,
            "pod.initContainers.0.image",
            image,
        )
        for given, image in (
            ({"repository": "h", "tag": "9"}, "h:9"),
            ({"digest": DIGEST}, f"accelbind-hook-installer@{DIGEST}"),
        )
    ),
    *(
        Case({"images": {"pullSecrets": ["s"]}}, *of, "pod.imagePullSecrets", [{"name": "s"}])
        for of in (WEBHOOK, PLUGIN, CERTS)
    ),
    *(
        Case(
            {"images": {"pullPolicy": "Always"}}, *of, "pod.containers.0.imagePullPolicy", "Always"
        )
        for of in (WEBHOOK, PLUGIN, CERTS)
    ),
    Case({"domains": ["a.example"]}, *WEBHOOK, "pod.containers.0.args.-1", "--domain=a.example"),
    Case({"webhook": {"replicas": 3}}, *WEBHOOK, "spec.replicas", 3),
    Case({"webhook": {"hostNetwork": True}}, *WEBHOOK, "pod.hostNetwork", True),
    Case({"webhook": {"args": ["--x"]}}, *WEBHOOK, "pod.containers.0.args.-1", "--x"),
    Case(
        {"webhook": {"env": [variable("A", "b")]}},
        *(*WEBHOOK, "pod.containers.0.env.-1", variable("A", "b")),
    ),
    Case(
        {"webhook": {"podAnnotations": {"a": "b"}}},
        *(*WEBHOOK, "spec.template.metadata.annotations", {"a": "b"}),
    ),
    Case({"webhook": {"resources": RESOURCES}}, *WEBHOOK, "pod.containers.0.resources", RESOURCES),
    Case({"certificates": GIVEN}, *WEBHOOK, "pod.volumes.0.secret.secretName", "own"),
    Case({"certificates": GIVEN}, *CERTS, "", None),
    Case({"certificates": GIVEN}, "Secret", "accelbind-ca", "", None),
    Case({"certificates": {"replicas": 2}}, *CERTS, "spec.replicas", 2),
    Case({"certificates": {"args": ["--x"]}}, *CERTS, "pod.containers.0.args.-1", "--x"),
    Case(
        {"certificates": {"podAnnotations": {"a": "b"}}},
        *(*CERTS, "spec.template.metadata.annotations", {"a": "b"}),
    ),
    Case(
        {"certificates": {"resources": RESOURCES}},
        *(*CERTS, "pod.containers.0.resources", RESOURCES),
    ),
    Case({"pools": []}, *PLUGIN, "", None),
    Case(
        {"pools": [{"name": "b"}]},
        "DaemonSet",
        "accelbind-plugin-b",
        "metadata.name",
        "accelbind-plugin-b",
    ),
    *(
        Case(pool(**fields), *PLUGIN, path, expected)
        for fields, path, expected in (
            ({"mode": "bdf"}, "pod.serviceAccountName", "accelbind-plugin"),
            ({"mode": "regiondevel"}, "pod.serviceAccountName", "accelbind-plugin-mappings"),
            ({"mode": "region"}, "pod.serviceAccountName", "accelbind-plugin-region"),
            ({"mode": "region"}, "pod.containers.0.resources.limits.memory", "1Gi"),
            (
                {"mode": "units", "units": 7},
                "pod.containers.0.env.-1",
                variable("ACCELBIND_UNITS", "7"),
            ),
            (
                {"nodeSelector": {"a": "b"}},
                "pod.nodeSelector",
                {"kubernetes.io/os": "linux", "a": "b"},
            ),
            ({"affinity": {"nodeAffinity": {}}}, "pod.affinity", {"nodeAffinity": {}}),
            ({"tolerations": [TAINT]}, "pod.tolerations", [TAINT]),
            ({"tolerations": []}, "pod.tolerations", []),
            (
                {"enforceMappings": "never"},
                "pod.containers.0.env.-1",
                variable("ACCELBIND_ENFORCE_MAPPINGS", "never"),
            ),
            (
                {"mode": "region", "programming": "none"},
                "pod.containers.0.env.-1",
                variable("ACCELBIND_PROGRAMMING", "none"),
            ),
            ({"podLogs": True}, "pod.volumes.2.name", "pod-logs"),
            ({"cdi": True}, "pod.containers.0.env.-1", variable("ACCELBIND_CDI", "true")),
            ({"args": ["--x"]}, "pod.containers.0.args.-1", "--x"),
            ({"env": [variable("A", "b")]}, "pod.containers.0.env.-1", variable("A", "b")),
            ({"podAnnotations": {"a": "b"}}, "spec.template.metadata.annotations", {"a": "b"}),
            ({"updateStrategy": {"type": "OnDelete"}}, "spec.updateStrategy", {"type": "OnDelete"}),
            ({"priorityClassName": "p"}, "pod.priorityClassName", "p"),
            ({"resources": RESOURCES}, "pod.containers.0.resources", RESOURCES),
        )
    ),
    Case({"kubelet": {"root": "/k"}}, *PLUGIN, "pod.volumes.1.hostPath.path", "/k/pod-resources"),
    Case(
        pool(mode="region") | {"bitstreams": {"hostPath": "/b"}},
        *(*PLUGIN, "pod.volumes.-1.hostPath.path", "/b"),
    ),
    Case(
        pool(mode="region") | {"bitstreams": {"volume": {"nfs": {"server": "s", "path": "/"}}}},
        *(*PLUGIN, "pod.volumes.-1", {"name": "bitstreams", "nfs": {"server": "s", "path": "/"}}),
    ),
    Case(
        {"crds": {"install": False}},
        *("CustomResourceDefinition", "fpgaregions.fpga.intel.com", "", None),
    ),
    Case(
        {"namespace": {"create": True, "labels": {"a": "b"}}},
        *("Namespace", NAMESPACE, "metadata.labels.a", "b"),
    ),
    Case({"networkPolicies": {"enabled": False}}, "NetworkPolicy", "accelbind-nobody", "", None),
    Case(
        {"networkPolicies": {"enabled": False}, "monitoring": {"enabled": True}},
        *("NetworkPolicy", "accelbind-metrics", "", None),
    ),
    Case(
        {"monitoring": {"enabled": True, "namespace": "m"}},
        *("NetworkPolicy", "accelbind-metrics"),
        "spec.ingress.0.from.0.namespaceSelector.matchLabels",
        {"kubernetes.io/metadata.name": "m"},
    ),
    *(
        Case(
            {"monitoring": {"enabled": True, "labels": {"release": "x"}}},
            *(kind, name, "metadata.labels.release", "x"),
        )
        for kind, name in (
            ("PodMonitor", "accelbind"),
            ("PrometheusRule", "accelbind"),
        )
    ),
    Case(
        {"nodeFeatureRule": {"enabled": True, "apiVersion": "nfd.openshift.io/v1alpha1"}},
        *("NodeFeatureRule", "accelbind", "apiVersion", "nfd.openshift.io/v1alpha1"),
    ),
    Case(
        {"openshift": {"scc": True}},
        *("SecurityContextConstraints", "accelbind-plugin", "allowPrivilegedContainer", False),
    ),
    Case(
        {"openshift": {"scc": True}},
        *("SecurityContextConstraints", "accelbind-plugin-region", "users"),
        [f"system:serviceaccount:{NAMESPACE}:accelbind-plugin-region"],
    ),
]


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
            check(item | ({"apiVersion": NFD} if item["kind"] == "NodeFeatureRule" else {}), NEWEST)
            checked.add(text)


def all_values() -> Iterator[Json]:
    """The values of all tests."""
    yield from (case.values for case in CASES)
    yield from (values for _, values in COMPONENTS.values())
    yield from (yaml.safe_load(path.read_text()) for path in EXAMPLES.glob("*.yaml"))


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


def test_the_schema_refuses_what_is_no_value() -> None:
    for values, said in (
        ({"webhook": {"replica": 1}}, "'replica' not allowed"),
        ({"pools": [{"name": "b", "node": {}}]}, "'node' not allowed"),
        ({"pools": [{"name": "b", "mode": "afx"}]}, "/pools/0/mode"),
        ({"pools": [{"name": "B"}]}, "/pools/0/name"),
        ({"pools": [{"name": "b"}, {"name": "b"}]}, "two pools are called b"),
        ({"pools": [{"name": "a"}, {"name": "b"}]}, "pools a and b select the same nodes"),
        ({"openshift": {"scc": True}, "webhook": {"hostNetwork": True}}, "exclude each other"),
        ({"pools": [{"name": "b", "programming": "oci-hook"}]}, "needs mode region"),
        ({"certificates": {"source": "vault"}}, "/certificates/source"),
        ({"certificates": {"source": "existingSecret"}}, "/certificates"),
        ({"certificates": {"existingSecret": "x"}}, "/certificates/existingSecret"),
        ({"images": {"webhook": {"digest": "sha256:1"}}}, "/images/webhook/digest"),
        ({"domains": []}, "/domains"),
        ({"domains": ["a'b.example"]}, "/domains/0"),
        ({"bitstreams": {"volume": {"nfs": {}, "hostPath": {}}}}, "/bitstreams/volume"),
    ):
        assert said in refusal(values), values


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
    items = with_values({"certificates": GIVEN})
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


# A server-side dry run


@pytest.mark.anyio
@pytest.mark.usefixtures("no_proxy")
async def test_an_api_server_would_take_all_of_it(tmp_path: Path) -> None:
    rendered_ones = [item for values in [{}, *all_values()] for item in with_values(values)]
    items = {json.dumps(item, sort_keys=True): item for item in rendered_ones}
    assert len(items) > 100
    api = ApiServerStandIn(tmp_path)
    for item in items.values():
        make_known(api, item)
    async with api, client_of(api) as client:
        api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        for item in items.values():
            if item["kind"] != "Namespace":
                answer = await client.post(path_of(api, item), json=item)
                assert answer.status_code == 201, f"{named(item)}: {answer.text}"


def make_known(api: ApiServerStandIn, item: Json) -> None:
    """Has the stand-in take objects of a kind that it does not serve by itself."""
    group, _, version = item["apiVersion"].rpartition("/")
    kind = item["kind"]
    if (group, kind) not in {(each.group, each.kind) for each in api.table}:
        plural = f"{kind.lower()}s".replace("ys", "ies")
        spread = "namespace" in item["metadata"]
        resource = Resource(group, version, plural, kind, namespaced=spread, custom=True)
        api.table.put(resource)
        api.store.shelf(resource)


def path_of(api: ApiServerStandIn, item: Json) -> str:
    """Where an object is created without being stored."""
    group, _, version = item["apiVersion"].rpartition("/")
    (resource,) = (each for each in api.table if (each.group, each.kind) == (group, item["kind"]))
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    namespace = item["metadata"].get("namespace")
    where = f"{root}/namespaces/{namespace}" if namespace else root
    return f"{where}/{resource.plural}?dryRun=All&fieldValidation=Strict"
