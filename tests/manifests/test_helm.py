"""The chart renders what kustomize does, and each value changes what it says."""

import json
import re
import shlex
import tarfile
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from certs.authority import create_authority
from tests.docs import blocks
from tests.manifests.helm import (
    CHART,
    leaves,
    objects,
    refusal,
    run_helm,
    template,
    with_values,
)
from tests.manifests.rendering import (
    OVERLAYS,
    TWO_POOLS,
    WORKLOADS,
    Json,
    check_network_policies,
    named,
    of_kind,
    one,
    own_overlay,
    pod_spec,
    rendered,
    workloads,
)
from tests.manifests.test_rendering import NEWEST, check
from tests.support import REPOSITORY

EXAMPLES = REPOSITORY / "examples" / "helm"
KEPT = "helm.sh/resource-policy"
STANDARD_LABELS = {"helm.sh/chart"} | {
    f"app.kubernetes.io/{name}"
    for name in ("name", "instance", "version", "managed-by", "component")
}
"""Labels of objects that the chart has and the kustomization does not."""
UNORDERED = {"env": "name", "volumes": "name", "volumeMounts": "mountPath", "tolerations": "key"}
UNORDERED |= {"webhooks": "name"}  # no configuration has two that change an object
"""Lists whose order means nothing, with the key that tells their items apart."""


PEM = create_authority(datetime.now(UTC), timedelta(days=1)).certificate.pem.decode()
WORDS = {
    "DIGEST": f"sha256:{'0' * 64}",
    "HALF_A_BUNDLE": json.dumps(PEM.partition("-----END")[0]),
    "BROKEN_BUNDLE": json.dumps(PEM.replace("\nMI", "\nno")),
    "BUNDLE": json.dumps(PEM),
}
"""What stands for itself in the tables beside this file."""


def tables(name: str) -> list[list[Any]]:
    text = (Path(__file__).parent / name).read_text()
    for word, value in WORDS.items():
        text = text.replace(word, value)
    lines: list[list[Any]] = yaml.safe_load(text)
    return lines


def example(name: str) -> Json:
    """The values that do what an overlay does; the default one needs none."""
    values: Json = {} if name == "af" else yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    return values


def pool(**fields: Any) -> Json:
    return {"pools": [{"name": "default", **fields}]}


def comparable(items: list[Json]) -> dict[str, Json]:
    """Objects by name, without what only Helm needs and in one order."""
    found = {}
    for item in items:
        metadata = item["metadata"]
        for label in STANDARD_LABELS:
            metadata["labels"].pop(label, None)
        if metadata.get("annotations", {}).pop(KEPT, None) and not metadata["annotations"]:
            del metadata["annotations"]
        found[named(item)] = ordered(item)
    assert len(found) == len(items), "an object is there twice"
    return found


def ordered(value: Any, by: str = "") -> Any:
    """The same with lists in one order whose order means nothing: that of the key `by`."""
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


WITH_NAMESPACE: Json = {"namespace": {"create": True}}
COMPONENTS: dict[str, Json] = {
    "kubelet-root": {"kubelet": {"root": "/var/lib/k0s/kubelet"}},
    "nfd": {"nodeFeatureRule": {"enabled": True}},
    "api-servers": {"networkPolicies": {"apiServers": ["192.0.2.0/28"]}},
    "guard": {"webhook": {"guard": ["nvidia.com/*"]}},
    "guard-claims": {"webhook": {"guardClaims": True}},
    "cdi": pool(cdi=True),
    "enforce-mappings": pool(enforceMappings="always"),
    "tolerate-taints": pool(tolerations=[{"operator": "Exists", "effect": "NoSchedule"}]),
}
"""Components that no overlay has, each with values that do the same."""


def test_the_defaults_are_the_default_overlay_without_its_namespace() -> None:
    kustomized = [item for item in rendered("overlays/af") if item["kind"] != "Namespace"]
    compare(with_values({}), kustomized)


@pytest.mark.parametrize("name", [*OVERLAYS, "pools"])
def test_each_overlay_has_values_that_render_to_the_same(name: str) -> None:
    folder = TWO_POOLS if name == "pools" else f"overlays/{name}"
    values = example(name)
    namespace = values.get("namespace", {}) | WITH_NAMESPACE["namespace"]
    compare(with_values(values | {"namespace": namespace}), rendered(folder))


@pytest.mark.parametrize("name", COMPONENTS)
def test_components_have_values_that_render_to_the_same(name: str, tmp_path: Path) -> None:
    compare(with_values(COMPONENTS[name] | WITH_NAMESPACE), own_overlay(tmp_path, name))


def test_another_namespace_is_that_of_kustomize(tmp_path: Path) -> None:
    kustomized = own_overlay(
        tmp_path,
        resources=("overlays/cert-manager",),
        namespace="elsewhere",
        transformers=["namespace"],
    )
    compare(with_values(example("cert-manager") | WITH_NAMESPACE, "elsewhere"), kustomized)


def test_each_object_has_the_standard_labels_and_no_pod_has_the_chart_s() -> None:
    for item in with_values({"monitoring": {"enabled": True}} | WITH_NAMESPACE):
        labels = item["metadata"]["labels"]
        assert labels.keys() >= STANDARD_LABELS | {"app.kubernetes.io/part-of"}, named(item)
        assert (labels["app.kubernetes.io/managed-by"], labels["helm.sh/chart"][:9]) == (
            *("Helm", "accelbind"),
        )
        if item["kind"] in WORKLOADS:
            pods = item["spec"]["template"]["metadata"]["labels"]
            assert set(pods) == {"app.kubernetes.io/name", "app.kubernetes.io/component"}
            assert item["spec"]["selector"]["matchLabels"].items() <= pods.items()


def test_helm_keeps_definitions_and_writes_no_data_of_processes() -> None:
    for item in with_values(WITH_NAMESPACE):
        is_kept = item["metadata"].get("annotations", {}).get(KEPT) == "keep"
        assert is_kept is (item["kind"] in ("CustomResourceDefinition", "Namespace")), named(item)
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


CASES = [Case(*line) for line in tables("values.yaml")]
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
    if "networkPolicies" not in case.values:
        check_network_policies(items)
    for item in items:
        if (text := json.dumps(item, sort_keys=True)) not in checked:
            check(item, NEWEST)
            checked.add(text)


def all_values() -> Iterator[Json]:
    """The values of all tests."""
    yield from (case.values for case in CASES)
    yield from COMPONENTS.values()
    yield from (example(path.stem) for path in EXAMPLES.glob("*.yaml"))


REFUSED = tables("refused.yaml")


@pytest.mark.parametrize(("said", "values"), REFUSED, ids=lambda value: str(value)[:60])
def test_the_chart_refuses_what_is_no_value_and_takes_pools_that_may_not_overlap(
    said: str | None, values: Json
) -> None:
    if said is None:
        assert len(of_kind(with_values(values), "DaemonSet")) == 2
    else:
        assert said in refusal(values)


def test_dra_needs_a_kubernetes_that_has_it() -> None:
    dra = pool(driver="dra")
    assert template(dra, "--kube-version", "1.36").returncode == 0
    refused = refusal(dra, "--kube-version", "1.35.4")
    assert "pools[0].driver dra needs Kubernetes 1.36 or newer, and this is v1.35.4: use" in refused


def test_every_value_is_known_to_the_checks_and_tried() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    described = (CHART / "README.md").read_text().partition("## Pools")[2]
    fields = yaml.safe_load(described.partition("```yaml")[2].partition("```")[0])
    sections = {name: keys for name, keys in values.items() if keys and isinstance(keys, dict)}
    images = {name: keys for name, keys in values["images"].items() if isinstance(keys, dict)}
    wrong: Json = {name: {"x": 1} for name in sections} | {"x": 1, "pools": [fields | {"x": 1}]}
    refused = refusal(wrong | {"images": {"x": 1} | {name: {"x": 1} for name in images}})
    for path, keys in (
        ("x", [*values, "global"]),
        ("pools[0].x", fields),
        *((f"{name}.x", keys) for name, keys in sections.items()),
        *((f"images.{name}.x", keys) for name, keys in images.items()),
    ):
        named = ", ".join(sorted(keys))
        assert f"- {path} is not a value of this chart: use one of {named}\n" in refused
    tried = {path for each in all_values() for path in leaves(each)}
    for path in leaves(values):
        begins = path.partition("pod-security")[0].strip(".")
        assert any(one.startswith(begins) for one in tried), path
    assert {name for each in all_values() for one in each.get("pools", ()) for name in one} == set(
        fields
    )


def patches_of_the_guide() -> list[Json]:
    """What docs/accelerators.md adds to the components for the guard: a flag, all namespaces."""
    page = (REPOSITORY / "docs" / "accelerators.md").read_text()
    found = re.findall(r"^( *)```yaml\n *(patches:.*?)```", page, re.MULTILINE | re.DOTALL)
    shown = [textwrap.dedent(indent + text) for indent, text in found]
    return [patch for each in shown for patch in yaml.safe_load(each)["patches"]]


def test_the_guard_of_all_namespaces_is_that_of_the_patches_in_the_guide(tmp_path: Path) -> None:
    guards = {"guard": ["nvidia.com/*", "amd.com/gpu"], "guardClaims": True}
    chart = with_values({"webhook": guards | {"guardAllNamespaces": True}} | WITH_NAMESPACE)
    patched = own_overlay(tmp_path, "guard", "guard-claims", patches=patches_of_the_guide())
    assert json.dumps(chart).count('"operator": "NotIn", "values": ["false"]') == 3
    assert taken_guards(chart) == taken_guards(patched) > {"nvidia.com/*", "amd.com/gpu"}
    compare(chart, patched)


def taken_guards(items: list[Json]) -> set[str]:
    """The resources in flags of the webhook, which a flag has together or each has its own."""
    (container,) = workloads(items)["accelbind-webhook"]["containers"]
    flags = [each for each in container["args"] if each.startswith("--guard=")]
    container["args"] = [each for each in container["args"] if each not in flags]
    return {name for each in flags for name in each.removeprefix("--guard=").split(",")}


def test_monitors_need_a_cluster_that_knows_them() -> None:
    monitors = {"monitoring": {"enabled": True}}
    on_a_cluster = ("--api-versions", "apiregistration.k8s.io/v1")
    refused = refusal(monitors, *on_a_cluster)
    assert "monitoring.enabled needs the definitions of the Prometheus operator" in refused
    known = ("--api-versions", "monitoring.coreos.com/v1")
    assert template(monitors, *on_a_cluster, *known).returncode == 0


def test_a_bundle_of_ones_own_is_in_every_webhook() -> None:
    certificates = {
        "source": "existingSecret",
        "existingSecret": "own",
        "caBundle": f"{PEM}\n#\n{PEM}",
    }
    items = with_values({"certificates": certificates})
    hooks = [hook for item in items for hook in item.get("webhooks", ())]
    assert len({hook["clientConfig"]["caBundle"] for hook in hooks}) == 1
    assert "accelbind-certs" not in workloads(items)


def test_nothing_is_wrong_with_the_chart() -> None:
    linted = run_helm("lint", "--strict", CHART)
    assert linted.returncode == 0, linted.stdout
    assert "[INFO]" not in linted.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart as a file, far from the repository."""
    folder = tmp_path_factory.mktemp("package")
    packed = run_helm("package", CHART, "--destination", folder)
    assert (packed.returncode, packed.stderr) == (0, "")
    (archive,) = folder.glob("*.tgz")
    return archive


@pytest.mark.parametrize("name", ["af", "pools"])
def test_the_package_installs_from_anywhere(name: str, package: Path) -> None:
    done = template(example(name), chart=package)
    assert (done.returncode, done.stderr) == (0, "")
    assert comparable(objects(done.stdout)) == comparable(with_values(example(name)))


def test_the_package_has_what_templates_read_and_no_more(package: Path) -> None:
    with tarfile.open(package) as archive:
        names = {name.removeprefix("accelbind/") for name in archive.getnames()}
        assert not any(each.issym() or each.islnk() for each in archive.getmembers())
    assert {"README.md", "base/network.yaml", "crd/fpgaregions.yaml"} <= names
    assert not [name for name in names if "kustomization" in name or name.startswith("pools")]


@pytest.mark.parametrize(
    ("pools", "said", "warned"),
    [
        ([], "kind: Accelerator\n", False),
        ([{"mode": "af"}, {"mode": "regiondevel"}], "kind: AcceleratorFunction", False),
        ([{"mode": "region"}, {"mode": "regiondevel"}], "kind: AcceleratorFunction", True),
        ([{"driver": "dra"}], "accelbind dra classes", False),
    ],
)
def test_notes_say_what_is_next_and_warn_of_modes_that_share_a_resource(
    pools: list[Json], said: str, warned: bool
) -> None:
    named = [
        {"name": f"b{number}", "nodeSelector": {"pool": str(number)}} | each
        for number, each in enumerate(pools)
    ]
    install = ("install", "x", CHART, "--dry-run=client", "--values", "-")
    done = run_helm(*install, stdin=json.dumps({"pools": named}))
    assert done.returncode == 0, done.stderr
    notes = done.stdout.rpartition("NOTES:")[2]
    assert said in notes
    assert ("ds/accelbind-plugin-b0 -- accelbind fpga list" in notes) is bool(pools)
    assert ("WARNING" in notes) is ("--enforce-mappings=never" in notes) is warned


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
