"""Every kustomization renders, and every object of it is what its schema says."""

from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from accelbind.doctor.node_fit import untolerated_taints
from simulator.apiserver import schemas as crd_schemas
from tests.manifests.rendering import (
    COMPONENTS,
    INCLUDED,
    KUSTOMIZATIONS,
    MANIFESTS,
    OVERLAYS,
    Json,
    containers,
    everything,
    named,
    of_kind,
    one,
    ours,
    rendered,
    with_components,
)
from tests.manifests.rights import rights_of
from tests.manifests.schemas import SCHEMAS

OLDEST, NEWEST = "1.30", "1.37"
MAPPINGS = {"AcceleratorFunction": "acceleratorfunctions", "FpgaRegion": "fpgaregions"}


def check(item: Json, version: str) -> None:
    """Fails with what is wrong with an object."""
    kind = item["kind"]
    if kind in SCHEMAS:
        jsonschema.validate(item, SCHEMAS[kind])
    elif kind in MAPPINGS:
        definition = one(rendered("crd"), "CustomResourceDefinition", f"{MAPPINGS[kind]}.{GROUP}")
        (served,) = definition["spec"]["versions"]
        assert crd_schemas.validate(served["schema"]["openAPIV3Schema"], item, None) == []
    else:
        kubernetes_validate.validate(item, version, strict=True)


GROUP = "fpga.intel.com"


def test_every_folder_with_a_kustomization_is_known_here() -> None:
    found = {path.parent.relative_to(MANIFESTS) for path in MANIFESTS.rglob("kustomization.yaml")}
    known = {*KUSTOMIZATIONS, *(f"components/{name}" for name in COMPONENTS)}
    assert {str(path) for path in found} == known


@pytest.mark.parametrize("folder", KUSTOMIZATIONS)
def test_it_renders_and_nothing_is_there_twice(folder: str) -> None:
    items = rendered(folder)
    assert items
    names = [named(item) for item in items]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_object_is_what_its_schema_says(version: str) -> None:
    problems = {}
    for folder, item in everything():
        try:
            check(item, version)
        except (kubernetes_validate.ValidationError, jsonschema.ValidationError) as error:
            problems[f"{folder}: {named(item)}"] = error.message
    assert problems == {}


def test_the_schemas_notice_what_is_wrong() -> None:
    service = one(rendered("base"), "Service", "accelbind-webhook")
    service["spec"]["prots"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        check(service, NEWEST)
    monitor = one(rendered("overlays/monitoring"), "ServiceMonitor", "accelbind-webhook")
    monitor["spec"]["endpoints"][0]["intervall"] = "30s"
    with pytest.raises(jsonschema.ValidationError):
        check(monitor, NEWEST)


@pytest.mark.parametrize("name", COMPONENTS)
def test_each_component_fits_the_base(name: str, tmp_path: Path) -> None:
    plain, changed = rendered("base"), with_components(tmp_path, name)
    assert changed != plain
    for item in changed:
        check(item, NEWEST)


def test_all_components_fit_together(tmp_path: Path) -> None:
    for item in with_components(tmp_path, *(name for name in COMPONENTS if name not in INCLUDED)):
        check(item, NEWEST)


def test_another_kubelet_root_changes_where_the_host_has_it_and_nothing_else(
    tmp_path: Path,
) -> None:
    plain = ours("base")["accelbind-plugin"]
    with_components(tmp_path, "kubelet-root")
    moved = ours(tmp_path)["accelbind-plugin"]
    assert moved["containers"] == plain["containers"]
    paths = {each["name"]: each["hostPath"]["path"] for each in moved["volumes"]}
    before = {each["name"]: each["hostPath"]["path"] for each in plain["volumes"]}
    # A kubelet takes plugins in /var/lib/kubelet/device-plugins, whatever its root is.
    assert {name for name in paths if paths[name] != before[name]} == {"pod-resources"}
    assert paths["pod-resources"].endswith("kubelet/pod-resources")


def test_enforcing_mappings_in_mode_af_grants_what_that_takes(tmp_path: Path) -> None:
    plain = rights_of(rendered("base"), "accelbind-plugin")
    items = with_components(tmp_path, "enforce-mappings")
    more = {(right.verb, right.resource) for right in rights_of(items, "accelbind-plugin")}
    more -= {(right.verb, right.resource) for right in plain}
    assert more == {("get", "pods"), ("list", "acceleratorfunctions"), ("list", "fpgaregions")}
    (container,) = ours(tmp_path)["accelbind-plugin"]["containers"]
    assert {"name": "ACCELBIND_ENFORCE_MAPPINGS", "value": "always"} in container["env"]


def test_any_taint_is_tolerated_by_who_asks_for_that(tmp_path: Path) -> None:
    with_components(tmp_path, "tolerate-taints")
    taint = {"key": "example.com/team", "effect": "NoSchedule"}
    assert (
        untolerated_taints(ours(tmp_path)["accelbind-plugin"], {"spec": {"taints": [taint]}}) == []
    )


GPU = {"vendor": "8086", "device": "56c0", "class": "0380", "subsystem_device": "4905"}
CARDS = (
    {"vendor": "8086", "device": "09c4", "class": "1200", "subsystem_device": "0000"},
    {"vendor": "8086", "device": "0b2b", "class": "1200", "subsystem_device": "0000"},
    {"vendor": "8086", "device": "bcce", "class": "1200", "subsystem_device": "1771"},
    {"vendor": "1c2c", "device": "1000", "class": "1200", "subsystem_device": "0000"},
)


def test_the_nfd_rule_labels_nodes_with_our_cards_and_no_other(tmp_path: Path) -> None:
    rule = one(with_components(tmp_path, "nfd"), "NodeFeatureRule", "accelbind")
    selector = ours(tmp_path)["accelbind-plugin"]["nodeSelector"]

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


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_has_all_of_the_suite(overlay: str) -> None:
    wanted = {"accelbind-webhook", "accelbind-plugin", "accelbind-certs"}
    found = set(ours(f"overlays/{overlay}"))
    assert found == wanted - ({"accelbind-certs"} if overlay == "cert-manager" else set())


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_webhooks_come_last_and_what_others_need_first(overlay: str) -> None:
    kinds = [item["kind"] for item in rendered(f"overlays/{overlay}")]
    assert kinds[0] == "Namespace"
    assert set(kinds[-2:]) == {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
    assert kinds.index("CustomResourceDefinition") < kinds.index("Deployment")


def test_no_two_webhooks_that_pods_pass_share_a_name() -> None:
    """Of one name's audit annotations an API server keeps the first, whoever comes later."""
    names = [
        webhook["name"]
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        for configuration in of_kind(rendered("base"), kind)
        for webhook in configuration["webhooks"]
        if webhook["rules"][0]["resources"] == ["pods"]
    ]
    assert sorted(names) == ["last-check.accelbind.dev", "pods.accelbind.dev"]


def test_cert_manager_takes_the_place_of_our_certificates_and_of_all_their_rights() -> None:
    items = rendered("overlays/cert-manager")
    left = [
        named(item)
        for item in items
        if "certs" in item["metadata"]["name"] or item["kind"] == "Secret"
    ]
    assert left == []
    serving = one(items, "Certificate", "accelbind-webhook")
    volume = ours("overlays/cert-manager")["accelbind-webhook"]["volumes"][0]
    assert serving["spec"]["secretName"] == volume["secret"]["secretName"]
    namespace = serving["metadata"]["namespace"]
    assert f"accelbind-webhook.{namespace}.svc" in serving["spec"]["dnsNames"]
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        annotations = one(items, kind, "accelbind")["metadata"]["annotations"]
        assert annotations == {"cert-manager.io/inject-ca-from": f"{namespace}/accelbind-webhook"}


def test_applying_again_takes_neither_certificates_nor_bundles_away() -> None:
    items = rendered("base")
    for secret in of_kind(items, "Secret"):
        assert not {"data", "stringData"} & set(secret), "it would write over what is there"
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for hook in one(items, kind, "accelbind")["webhooks"]:
            assert set(hook["clientConfig"]) == {"service"}


def images(folder: str) -> dict[str, str]:
    return {
        name: container["image"]
        for name, spec in ours(folder).items()
        for container in containers(spec)
    }


def test_images_have_a_tag_that_kustomize_sets(tmp_path: Path) -> None:
    with_components(tmp_path)
    file = tmp_path / "kustomization.yaml"
    own: dict[str, Any] = yaml.safe_load(file.read_text())
    own["images"] = [
        {"name": f"accelbind-{part}", "newName": f"reg.example/{part}", "newTag": "9"}
        for part in ("webhook", "plugin", "certs")
    ]
    (tmp_path / "own").mkdir()
    own["resources"] = [f"../{path}" for path in own["resources"]]
    (tmp_path / "own" / "kustomization.yaml").write_text(yaml.safe_dump(own))
    assert images(str(tmp_path / "own")) == {
        f"accelbind-{part}": f"reg.example/{part}:9" for part in ("webhook", "plugin", "certs")
    }
