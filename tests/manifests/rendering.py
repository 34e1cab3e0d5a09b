"""The objects that kubectl renders from the kustomizations, each folder rendered once."""

import json
import os
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from simulator.apiserver.admission import matches_labels
from tests.support import REPOSITORY, require

Json = dict[str, Any]

MANIFESTS = REPOSITORY / "manifests"
NAMESPACE = "accelbind-system"
DEFAULT = "overlays/af"


def _folders(parent: str) -> tuple[str, ...]:
    """The names of the kustomizations in a folder below `manifests`."""
    found = MANIFESTS.glob(f"{parent}/*/kustomization.yaml")
    return tuple(sorted(path.parent.name for path in found))


OVERLAYS = _folders("overlays")
COMPONENTS = _folders("components")
TWO_POOLS = "../examples/pools"
WHOLE = (*(f"overlays/{name}" for name in OVERLAYS), TWO_POOLS)
"""The kustomizations that install accelbind."""
NAMES = "overlays/names"
WITH_PLUGINS = tuple(folder for folder in WHOLE if folder != NAMES)
"""Those that serve devices."""
KUSTOMIZATIONS = ("crd", "base", *WHOLE, "samples")
INCLUDED = dict.fromkeys(("mapping-access", "pod-logs"), "enforce-mappings")
"""Components that another one includes; they exclude each other."""
WORKLOADS = ("Deployment", "DaemonSet")
WEBHOOK_KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
QUICK = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Reads what yaml.safe_load reads, ten times as fast where libyaml is installed."""


@cache
def _rendered(folder: Path) -> tuple[str, ...]:
    done = subprocess.run(
        [require("kubectl"), "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert not done.stderr, done.stderr
    return tuple(json.dumps(item, sort_keys=True) for item in yaml.load_all(done.stdout, QUICK))


def rendered(folder: Path | str) -> list[Json]:
    """The objects of a kustomization, by its path below `manifests`; yours to change."""
    return [json.loads(text) for text in _rendered(MANIFESTS / folder)]


def everything() -> Iterator[tuple[str, Json]]:
    """Each different object of all kustomizations, with one folder that has it."""
    seen = set()
    for folder in KUSTOMIZATIONS:
        for text in _rendered(MANIFESTS / folder):
            if text not in seen:
                seen.add(text)
                yield folder, json.loads(text)


def own_overlay(
    folder: Path, *components: str, resources: tuple[str, ...] = (DEFAULT,), **fields: Any
) -> list[Json]:
    """The objects of an overlay that a user might write; paths are below `manifests`."""

    def above(path: str) -> str:
        return os.path.relpath(MANIFESTS / path, folder.resolve())

    if "transformers" in fields:
        fields["transformers"] = [above(path) for path in fields["transformers"]]
    content = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [above(path) for path in resources],
        "components": [above(f"components/{name}") for name in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(content | fields))
    return rendered(folder)


def named(item: Json) -> str:
    """What to call an object in a message."""
    metadata = item["metadata"]
    return f"{item['kind']} {metadata.get('namespace', '')}/{metadata['name']}"


def of_kind(items: list[Json], kind: str) -> list[Json]:
    return [item for item in items if item["kind"] == kind]


def one(items: list[Json], kind: str, name: str) -> Json:
    (found,) = [each for each in of_kind(items, kind) if each["metadata"]["name"] == name]
    return found


def pod_spec(item: Json) -> Json:
    """The spec of the pods of a workload, or of a pod."""
    spec: Json = item["spec"] if item["kind"] == "Pod" else item["spec"]["template"]["spec"]
    return spec


def containers(spec: Json) -> list[Json]:
    return [*spec.get("initContainers", ()), *spec["containers"]]


def workloads(items: list[Json]) -> dict[str, Json]:
    """The pods of accelbind itself, by the name of their workload."""
    return {
        item["metadata"]["name"]: pod_spec(item)
        for item in items
        if item["kind"] in WORKLOADS and item["metadata"]["name"].startswith("accelbind-")
    }


def ours(folder: Path | str) -> dict[str, Json]:
    """The pods of accelbind itself in a kustomization."""
    return workloads(rendered(folder))


OTHERS_LABELS: tuple[dict[str, str], ...] = (
    {},
    {"app.kubernetes.io/name": "coredns", "app.kubernetes.io/component": "dns"},
    {"app.kubernetes.io/part-of": "accelbind"},
)
"""Labels that pods of others in our namespace may have."""


def check_network_policies(items: list[Json]) -> None:
    """Fail if a NetworkPolicy selects a pod of others, or if none closes a pod of ours."""
    selectors = [each["spec"]["podSelector"] for each in of_kind(items, "NetworkPolicy")]
    for selector in selectors:
        assert not any(matches_labels(selector, labels) for labels in OTHERS_LABELS)
    for item in items:
        if item["kind"] in WORKLOADS:
            labels = item["spec"]["template"]["metadata"]["labels"]
            assert any(matches_labels(each, labels) for each in selectors), named(item)
