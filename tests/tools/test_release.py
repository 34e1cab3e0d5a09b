"""What a release has, for real; what is pushed, with stand-ins for the programs that push."""

import os
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from accelbind import __version__
from tests.docs.blocks import commands
from tests.making import make
from tests.manifests.helm import CHART, helm
from tests.manifests.rendering import QUICK, rendered
from tools.release import IMAGES, INSTALLATIONS, Refused, notes, publish, read, write_files

REGISTRY = "registry.example/owner"
SETTINGS = {"REGISTRY": "registry.example/Owner", "SOURCE": "https://git.example/owner/accelbind"}
DIGEST = f"sha256:{'1' * 64}"
LOG = '#!/bin/bash\nset -e\nprintf "%s " "$(basename "$0")" "$@" >>"$LOG"; echo >>"$LOG"\n'
STANDS_IN = {
    "docker": """
while (($#)); do
    if [[ $1 == --metadata-file ]]; then
        printf '{"containerimage.digest": "%s"}' "$DIGEST" >"$2"
    fi
    shift
done
""",
    "helm": '[[ -z "$DIGEST" ]] || echo "Digest: $DIGEST" >&2\n',
    "cosign": "",
    "gh": "",
    "kind": "",
    "kubectl": "",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make release-files` writes."""
    programs, folder = tmp_path_factory.mktemp("programs"), tmp_path_factory.mktemp("release")
    (programs / "helm").symlink_to(helm())
    (folder / "old.yaml").touch()
    path = f"{programs}:{os.environ['PATH']}"
    make("release-files", env={"PATH": path, "FOLDER": str(folder)} | SETTINGS)
    return folder


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The commands that stand-ins were called with, on PATH from here on."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, script in STANDS_IN.items():
        (programs / name).write_text(LOG + script)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("DIGEST", DIGEST)
    return tmp_path / "log"


def test_a_release_has_installations_chart_and_notes(files: Path) -> None:
    assert {path.name for path in files.iterdir()} == {
        *(f"install-{overlay}.yaml" for overlay in INSTALLATIONS),
        *("notes.md", f"accelbind-{chart()['version']}.tgz"),
    }


def chart() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text())
    return found


def test_the_chart_has_the_version_of_the_images() -> None:
    assert chart()["appVersion"] == __version__
    assert chart()["version"].replace("-dev.", ".dev").replace("-rc.", "rc") == __version__


@pytest.mark.parametrize("overlay", INSTALLATIONS)
def test_an_installation_is_its_overlay_with_images_of_the_registry(
    overlay: str, files: Path
) -> None:
    text = (files / f"install-{overlay}.yaml").read_text()
    expected = rendered(f"overlays/{overlay}")
    for name in IMAGES:
        text = text.replace(f"image: {REGISTRY}/accelbind-{name}:", f"image: accelbind-{name}:")
    assert [item for item in yaml.load_all(text, QUICK) if item] == expected
    assert REGISTRY not in text


def settings(**more: str) -> dict[str, str]:
    return SETTINGS | {"TAG": f"v{__version__}", "REVISION": "abc"} | more


def test_everything_is_pushed_signed_and_released(files: Path, log: Path) -> None:
    make("publish", env=settings(FOLDER=str(files)))
    called = [line.rstrip() for line in log.read_text().splitlines()]
    (archive,) = files.glob("*.tgz")
    for name in IMAGES:
        image = f"{REGISTRY}/accelbind-{name}"
        (built,) = [line for line in called if f" --target {name} " in line]
        assert built.startswith("docker buildx build ")
        for word in (
            *("--platform linux/amd64,linux/arm64", "--sbom=true", "--provenance=mode=max"),
            *(f"--build-arg VERSION={__version__}", "--build-arg REVISION=abc"),
            *(f"--build-arg SOURCE={SETTINGS['SOURCE']}", f"--tag {image}:{__version__} --push"),
        ):
            assert word in built
        assert f"cosign sign --yes --recursive {image}@{DIGEST}" in called
    assert called[-3:-1] == [
        f"helm push {archive} oci://{REGISTRY}/charts",
        f"cosign sign --yes --recursive {REGISTRY}/charts/accelbind@{DIGEST}",
    ]
    assert called[-1].startswith(
        f"gh release create v{__version__} --verify-tag --title accelbind "
    )
    attached = {Path(word).name for word in called[-1].split() if word.startswith(str(files))}
    assert attached == {path.name for path in files.iterdir()}


def test_a_chart_without_a_digest_is_not_signed(
    files: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIGEST", "")
    with pytest.raises(Refused, match="helm push named no digest"):
        publish(read(settings(FOLDER=str(files))))
    assert "charts/accelbind" not in log.read_text()


def test_a_tag_needs_a_section_of_the_changelog(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"CHANGELOG.md has no section"):
        write_files(read(settings(FOLDER=str(tmp_path / "new"))))
    text = "## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n\n- News\n\n## [0.1.0]\n\n- Old\n"
    assert notes(text, "0.2.0") == "- News\n"
    with pytest.raises(Refused, match="or it is empty"):
        notes(text, "Unreleased")


def test_make_kind_runs_the_commands_of_the_quickstart(log: Path) -> None:
    make("kind")
    called = log.read_text()
    documented = {one.plain for one in commands("docs/quickstart.md")}
    for command in documented:
        words = shlex.split(command)
        if words[0] in ("docker", "kind") and words[1] in ("build", "create", "load"):
            assert " ".join(words).replace(" build ", " build --quiet ") in called, command
    assert "kubectl apply --server-side -k examples/kind" in called
