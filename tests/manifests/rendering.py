"""What kubectl makes of the kustomizations, and how to look at it."""

import json
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.support import REPOSITORY, require

Json = dict[str, Any]

MANIFESTS = REPOSITORY / "manifests"
NAMESPACE = "accelbind-system"
OVERLAYS = (
    *("af", "region", "region-hook", "regiondevel", "aws", "bcom"),
    *("cert-manager", "monitoring"),
)
KUSTOMIZATIONS = ("crd", "base", *(f"overlays/{name}" for name in OVERLAYS), "samples")
COMPONENTS = (
    *("kubelet-root", "nfd", "cdi", "clear-errors", "oci-hook"),
    *("cert-manager", "monitoring", "mapping-access", "enforce-mappings", "tolerate-taints"),
)
INCLUDED = {"mapping-access": "enforce-mappings"}
"""Components that are part of another one, which has to be used instead of both."""
WORKLOADS = ("Deployment", "DaemonSet")
QUICK = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Reads what yaml.safe_load reads, ten times as fast where there is libyaml."""


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
    """Each different object of all kustomizations, with one that has it."""
    seen = set()
    for folder in KUSTOMIZATIONS:
        for text in _rendered(MANIFESTS / folder):
            if text not in seen:
                seen.add(text)
                yield folder, json.loads(text)


def with_components(folder: Path, *names: str) -> list[Json]:
    """What the base becomes with components, as an overlay of somebody's own would have it."""
    above = Path(*[".."] * (len(folder.resolve().parts) - 1)) / MANIFESTS.relative_to("/")
    (folder / "kustomization.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                "resources": [str(above / "base")],
                "components": [str(above / "components" / name) for name in names],
            }
        )
    )
    return rendered(folder)


def named(item: Json) -> str:
    """What to call an object in a message."""
    metadata = item["metadata"]
    return f"{item['kind']} {metadata.get('namespace', '')}/{metadata['name']}"


def of_kind(items: list[Json], kind: str) -> list[Json]:
    """The objects of a kind."""
    return [item for item in items if item["kind"] == kind]


def one(items: list[Json], kind: str, name: str) -> Json:
    """The object of a kind and name."""
    (found,) = [each for each in of_kind(items, kind) if each["metadata"]["name"] == name]
    return found


def pod_spec(item: Json) -> Json:
    """The spec of the pods of a workload, or of a pod."""
    spec: Json = item["spec"] if item["kind"] == "Pod" else item["spec"]["template"]["spec"]
    return spec


def containers(spec: Json) -> list[Json]:
    """The containers of a pod, those of its start too."""
    return [*spec.get("initContainers", ()), *spec["containers"]]


def ours(folder: Path | str) -> dict[str, Json]:
    """The suite's own pods of a kustomization, by the name of their workload."""
    found = {}
    for item in rendered(folder):
        if item["kind"] in WORKLOADS and item["metadata"].get("namespace") == NAMESPACE:
            found[item["metadata"]["name"]] = pod_spec(item)
    return found
