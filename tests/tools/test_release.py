"""What a release has, for real; what is pushed, with stand-ins for the programs that push."""

import hashlib
import json
import os
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml

from accelbind import __version__
from tests.docs.blocks import commands
from tests.making import make
from tests.manifests.helm import CHART, helm
from tests.manifests.rendering import QUICK, rendered
from tests.support import REPOSITORY, clean_environment
from tools.release import (
    IMAGES,
    INSTALLATIONS,
    PACKED_AT,
    Refused,
    main,
    notes,
    publish,
    read,
    stamped,
    versioned_files,
    with_links,
)

PACKAGES = {"accelbind", "webhook", "plugin", "certs", "services", "simulator"}
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
    """What `make release-files` writes, and notes."""
    programs, folder = tmp_path_factory.mktemp("programs"), tmp_path_factory.mktemp("release")
    (programs / "helm").symlink_to(helm())
    (folder / "old.yaml").touch()
    path = f"{programs}:{os.environ['PATH']}"
    make("release-files", env={"PATH": path, "FOLDER": str(folder)} | SETTINGS)
    (folder / "notes.md").write_text("- News\n")  # which are of a tag only
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


def names(files: Path) -> set[str]:
    return {path.name for path in files.iterdir()}


def test_a_release_has_the_files_that_its_page_names(files: Path) -> None:
    page = (CHART.parent / "docs" / "releasing.md").read_text()
    assert len(names(files)) == len(INSTALLATIONS) + 6
    for name in names(files):
        assert (
            f"`{name.replace(chart_version(), 'VERSION').replace(__version__, 'VERSION')}`" in page
        )


def test_the_checksums_are_those_of_all_attached_files(files: Path) -> None:
    lines = (line.split("  ") for line in (files / "SHA256SUMS").read_text().splitlines())
    sums = {name: digest for digest, name in lines}
    assert sums.keys() == names(files) - {"SHA256SUMS", "notes.md"}
    for name, digest in sums.items():
        assert hashlib.sha256((files / name).read_bytes()).hexdigest() == digest


def test_everything_has_the_version_of_the_code() -> None:
    """Otherwise run `make stamp`."""
    files = list(versioned_files())
    assert CHART / "Chart.yaml" in files
    assert [
        str(path) for path in files if stamped(path.read_text(), __version__) != path.read_text()
    ] == []
    assert chart_version().replace("-dev.", ".dev") == __version__


def chart_version() -> str:
    version: str = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    return version


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "--tag host.example/accelbind-plugin:0.1.0 .",
            "--tag host.example/accelbind-plugin:0.2.0.dev1 .",
        ),
        ("    newTag: 0.1.0.dev0\n", "    newTag: 0.2.0.dev1\n"),
        ("version: 0.1.0\nappVersion: 0.1.0\n", "version: 0.2.0-dev.1\nappVersion: 0.2.0.dev1\n"),
        ("ARG VERSION=0.1.0\n", "ARG VERSION=0.2.0.dev1\n"),
        ("apiVersion: v1\nkubeVersion: 1.30.0\n", "apiVersion: v1\nkubeVersion: 1.30.0\n"),
        ("image: work:0.1.0, Kubernetes 1.36", "image: work:0.1.0, Kubernetes 1.36"),
    ],
)
def test_a_version_is_written_where_one_of_accelbind_stands(before: str, after: str) -> None:
    assert stamped(before, "0.2.0.dev1") == after


@pytest.fixture
def wheel(files: Path) -> ZipFile:
    return ZipFile(files / f"accelbind-{__version__}-py3-none-any.whl")


def test_the_wheel_holds_the_packages_the_license_and_what_the_demo_shows(wheel: ZipFile) -> None:
    names, info = set(wheel.namelist()), f"accelbind-{__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == PACKAGES | {info}
    assert [name for name in names if "__pycache__" in name] == []
    shown = {
        path.relative_to(REPOSITORY).as_posix()
        for path in (REPOSITORY / "simulator" / "demo").rglob("*.yaml")
    }
    assert len(shown) >= 8
    assert shown | {f"{info}/licenses/LICENSE"} <= names


def test_the_command_works_from_the_wheel(wheel: ZipFile, tmp_path: Path) -> None:
    script = "import accelbind.cli as it; it.main(['--version']); print(it.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=clean_environment() | {"PYTHONPATH": str(wheel.filename)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"accelbind {__version__}\n{wheel.filename}/accelbind/cli.py\n"


def test_the_wheel_and_its_bill_have_the_version_and_what_is_locked(
    files: Path, wheel: ZipFile
) -> None:
    metadata = wheel.read(f"accelbind-{__version__}.dist-info/METADATA").decode()
    assert f"\nVersion: {__version__}\n" in metadata
    bill = json.loads((files / f"accelbind-{__version__}.cdx.json").read_text())
    assert bill["metadata"]["component"]["purl"] == f"pkg:pypi/accelbind@{__version__}"
    lock = (files / "requirements.lock").read_text()
    listed = {each["name"]: each["version"] for each in bill["components"]}
    assert {"msgspec", "grpcio"} <= listed.keys()
    assert [f"{name}=={version}" in lock for name, version in listed.items()] == [True] * len(
        listed
    )


def test_the_chart_has_nothing_of_the_machine_that_packed_it(files: Path) -> None:
    (path,) = files.glob("*.tgz")
    assert int.from_bytes(path.read_bytes()[4:8], "little") == PACKED_AT, "the time of gzip"
    with tarfile.open(path) as archive:
        assert {(each.mtime, each.uname) for each in archive} == {(PACKED_AT, "")}
        values = archive.extractfile("accelbind/values.yaml")
        assert values is not None
        assert f"{REGISTRY}/accelbind-plugin" in values.read().decode()


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
            *("--build-arg REVISION=abc", f"--build-arg SOURCE={SETTINGS['SOURCE']}"),
            f"--tag {image}:{__version__} --push",
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
    assert attached == names(files)


def test_a_chart_without_a_digest_is_not_signed(
    files: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIGEST", "")
    with pytest.raises(Refused, match="helm push named no digest"):
        publish(read(settings(FOLDER=str(files))))
    assert "charts/accelbind" not in log.read_text()


def test_a_missing_program_is_named_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("FOLDER", str(tmp_path / "release"))
    assert main("files") == 1
    assert "error: git, kubectl, helm not found: install" in capsys.readouterr().err
    assert not (tmp_path / "release").exists()


def test_a_tag_needs_registry_and_source_and_is_the_version() -> None:
    assert read({}).image("plugin") == "accelbind-plugin"
    for wrong in ({"REGISTRY": ""}, {"SOURCE": ""}, {"TAG": "v9.9.9"}, {"REGISTRY": "/owner"}):
        with pytest.raises(Refused):
            read(settings(**wrong))


def test_links_of_the_notes_lead_to_the_repository() -> None:
    text = with_links("[a](docs/a.md#b) [c](https://c.example/)", read(settings()))
    page = f"{SETTINGS['SOURCE']}/blob/v{__version__}/docs/a.md#b"
    assert text == f"[a]({page}) [c](https://c.example/)"


def test_the_notes_are_a_section_of_the_changelog() -> None:
    heading = "Unreleased" if ".dev" in __version__ else __version__
    assert notes((CHART.parent / "CHANGELOG.md").read_text(), heading)
    text = "## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n\n- News\n\n## [0.1.0]\n\n- Old\n"
    assert notes(text, "0.2.0") == "- News\n"
    with pytest.raises(Refused, match="or it is empty"):
        notes(text, "Unreleased")


def test_make_kind_runs_the_commands_of_the_quickstart(log: Path) -> None:
    make("kind", env={})
    called = log.read_text()
    documented = {one.plain for one in commands("docs/quickstart.md")}
    for command in documented:
        words = shlex.split(command)
        if words[0] in ("docker", "kind") and words[1] in ("build", "create", "load"):
            assert " ".join(words).replace(" build ", " build --quiet ") in called, command
    assert "kubectl apply --server-side -k examples/kind" in called
