"""Every kustomization renders, and every object of it is what its schema says."""

import json
from pathlib import Path

import kubernetes_validate
import pytest

from accelbind.cli import main
from simulator.apiserver import crd
from simulator.devices import DEVICES, DeviceTree
from tests.manifests.rendering import (
    COMPONENTS,
    DEFAULT,
    INCLUDED,
    MANIFESTS,
    NAMESPACE,
    OVERLAYS,
    TWO_POOLS,
    WEBHOOK_KINDS,
    Json,
    everything,
    named,
    of_kind,
    one,
    ours,
    own_overlay,
    pod_spec,
    rendered,
    workloads,
)
from tests.services.devices.types.making import Types

OLDEST, NEWEST = "1.30", "1.37"
GROUP = "fpga.intel.com"
FOREIGN = {"Certificate", "Issuer", "NodeFeatureRule", "PodMonitor", "PrometheusRule"}
FOREIGN |= {"SecurityContextConstraints"}
"""Kinds of others, of which no package has the schemas."""
MAPPINGS = {"AcceleratorFunction": "acceleratorfunctions", "FpgaRegion": "fpgaregions"}


def check(item: Json, version: str) -> None:
    """Fail with what is wrong with an object."""
    kind = item["kind"]
    if kind in FOREIGN:
        return
    if kind in MAPPINGS:
        definition = one(rendered("crd"), "CustomResourceDefinition", f"{MAPPINGS[kind]}.{GROUP}")
        (served,) = definition["spec"]["versions"]
        assert crd.validate(served["schema"]["openAPIV3Schema"], item) == []
    else:
        kubernetes_validate.validate(item, version, strict=True)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_object_is_what_its_schema_says(version: str) -> None:
    problems = {}
    for folder, item in everything():
        try:
            check(item, version)
        except kubernetes_validate.ValidationError as error:
            problems[f"{folder}: {named(item)}"] = error.message
    assert problems == {}


def test_all_components_fit_together(tmp_path: Path) -> None:
    for item in own_overlay(tmp_path, *(name for name in COMPONENTS if name not in INCLUDED)):
        check(item, NEWEST)


def test_another_kubelet_root_changes_where_the_host_has_it_and_nothing_else(
    tmp_path: Path,
) -> None:
    plain = ours(DEFAULT)["accelbind-plugin"]
    moved = workloads(own_overlay(tmp_path, "kubelet-root"))["accelbind-plugin"]
    assert moved["containers"] == plain["containers"]
    paths = {each["name"]: each["hostPath"]["path"] for each in moved["volumes"]}
    before = {each["name"]: each["hostPath"]["path"] for each in plain["volumes"]}
    # A kubelet takes plugins in /var/lib/kubelet/device-plugins, whatever its root is.
    assert {name for name in paths if paths[name] != before[name]} == {"pod-resources"}
    assert paths["pod-resources"].endswith("kubelet/pod-resources")


GPU = {"vendor": "8086", "device": "56c0", "class": "0380", "subsystem_device": "4905"}
CARDS = (
    {"vendor": "8086", "device": "09c4", "class": "1200", "subsystem_device": "0000"},
    {"vendor": "8086", "device": "0b2b", "class": "1200", "subsystem_device": "0000"},
    {"vendor": "8086", "device": "bcce", "class": "1200", "subsystem_device": "1771"},
    {"vendor": "1c2c", "device": "1000", "class": "1200", "subsystem_device": "0000"},
)


def test_the_nfd_rule_labels_nodes_with_our_cards_and_no_other(tmp_path: Path) -> None:
    items = own_overlay(tmp_path, "nfd")
    rule = one(items, "NodeFeatureRule", "accelbind")
    selector = workloads(items)["accelbind-plugin"]["nodeSelector"]

    def labels(device: dict[str, str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for each in rule["spec"]["rules"]:
            (feature,) = each["matchFeatures"]
            expressions = feature["matchExpressions"].items()
            if all(device[name] in wanted["value"] for name, wanted in expressions):
                found |= each["labels"]
        return found

    for card in CARDS:
        assert labels(card).items() <= selector.items()
        assert labels(card)
    assert labels(GPU) == labels(CARDS[2] | {"subsystem_device": "0000"}) == {}


def test_pools_have_selectors_nodes_and_accounts_of_their_own() -> None:
    items = rendered(TWO_POOLS)
    chosen = []
    for daemonset in of_kind(items, "DaemonSet"):
        selector = daemonset["spec"]["selector"]["matchLabels"]
        assert selector == {"app.kubernetes.io/name": daemonset["metadata"]["name"]}
        assert selector.items() <= daemonset["spec"]["template"]["metadata"]["labels"].items()
        spec = pod_spec(daemonset)
        one(items, "ServiceAccount", spec["serviceAccountName"])
        chosen.append((spec["serviceAccountName"], spec["nodeSelector"]["example.com/pool"]))
    assert sorted(chosen) == [("accelbind-plugin", "a"), ("accelbind-plugin-region", "b")]


@pytest.mark.parametrize("folder", ["overlays/cert-manager", TWO_POOLS])
def test_one_setting_moves_everything_to_another_namespace(folder: str, tmp_path: Path) -> None:
    moved = own_overlay(
        tmp_path, "nfd", resources=(folder,), namespace="elsewhere", transformers=["namespace"]
    )
    rule = one(moved, "NodeFeatureRule", "accelbind")
    assert "namespace" not in rule["metadata"]
    moved.remove(rule)
    expected = json.loads(json.dumps(rendered(folder)).replace(NAMESPACE, "elsewhere"))
    assert sorted(moved, key=named) == sorted(expected, key=named)
    assert one(moved, "Role", "accelbind-plugin")["metadata"]["namespace"] == "default"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_webhooks_come_last_and_what_others_need_first(overlay: str) -> None:
    kinds = [item["kind"] for item in rendered(f"overlays/{overlay}")]
    assert kinds[0] == "Namespace"
    assert set(kinds[-2:]) == set(WEBHOOK_KINDS)
    assert kinds.index("CustomResourceDefinition") < kinds.index("Deployment")


def test_cert_manager_takes_the_place_of_our_certificates_and_of_all_their_rights() -> None:
    items = rendered("overlays/cert-manager")
    assert of_kind(items, "Secret") == []
    assert [named(item) for item in items if "certs" in item["metadata"]["name"]] == []
    serving = one(items, "Certificate", "accelbind-webhook")
    volume = ours("overlays/cert-manager")["accelbind-webhook"]["volumes"][0]
    assert serving["spec"]["secretName"] == volume["secret"]["secretName"]
    namespace = serving["metadata"]["namespace"]
    assert f"accelbind-webhook.{namespace}.svc" in serving["spec"]["dnsNames"]
    for kind in WEBHOOK_KINDS:
        annotations = one(items, kind, "accelbind")["metadata"]["annotations"]
        assert annotations == {"cert-manager.io/inject-ca-from": f"{namespace}/accelbind-webhook"}


# Samples and device types


def test_nothing_is_wrong_with_the_mappings() -> None:
    assert main(["check", "mappings", str(MANIFESTS / "samples" / "mappings")]) == 0


def test_mappings_come_before_the_pods_that_use_them() -> None:
    kinds = [item["kind"] for item in rendered("samples")]
    mapped = {"AcceleratorFunction", "FpgaRegion"}
    assert kinds[0] == "Namespace"
    assert set(kinds[1:4]) == mapped
    assert not mapped & set(kinds[4:])


TYPES = MANIFESTS / "device-types"


def test_each_type_is_short_and_has_a_simulated_device() -> None:
    lengths = {path.stem: len(path.read_text().splitlines()) for path in TYPES.glob("*.yaml")}
    assert lengths.keys() == DEVICES.keys()
    assert {name: lines for name, lines in lengths.items() if lines > 20} == {}


@pytest.mark.parametrize("name", DEVICES)
def test_each_type_serves_its_device(tmp_path: Path, name: str) -> None:
    tree = DeviceTree(tmp_path / "root")
    made = {other: make(tree, number) for number, (other, make) in enumerate(DEVICES.items())}
    tree.entry("", "mic", "scif", "239:1", "mic/scif")
    own = made[name]
    types = Types(tmp_path / "types", tree.root)
    types.write(f"{name}.yaml", (TYPES / f"{name}.yaml").read_text())
    found = types.scan()
    assert found.problems == ()
    (device,) = [each for each in found.devices if each.resource]
    assert (device.id, device.healthy, device.type) == (own.id, True, name)
    assert tuple(each.name for each in device.nodes) == own.nodes
    if own.state:
        tree.file(own.state, own.bad)
        assert types.reasons()[own.id] == [own.reason]
        tree.file(own.state, own.good)
        assert types.reasons()[own.id] == []
    own.remove(tree)
    assert own.id not in types.reasons()
