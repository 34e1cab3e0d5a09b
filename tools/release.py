"""The files of a release, and their publication: `make release-files`, then `make publish`.

Settings are variables, which the host of the project knows:

    REGISTRY   host and owner, such as registry.example/owner
    SOURCE     address of the repository
    REVISION   the commit (only for publish)
    TAG        such as v0.1.0; without it, release-files takes the unreleased notes
    FOLDER     for the files (default: dist/release)
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from accelbind import __version__

REPOSITORY = Path(__file__).resolve().parent.parent
MANIFESTS = REPOSITORY / "manifests"
INSTALLATIONS = ("af", "region", "names")
"""Overlays of which a release has a file."""
IMAGES = ("webhook", "plugin", "certs", "hook-installer")
PLATFORMS = "linux/amd64,linux/arm64"


class Refused(Exception):
    """Something does not fit the release."""


@dataclass(frozen=True, slots=True)
class Release:
    registry: str
    source: str
    revision: str
    tag: str
    folder: Path

    def image(self, name: str) -> str:
        """An image without its tag."""
        return f"{self.registry}/accelbind-{name}"


def read(environment: Mapping[str, str]) -> Release:
    """The release that an environment describes.

    Raises:
        Refused: a setting is missing, or the tag is not that of this version.
    """
    missing = [name for name in ("REGISTRY", "SOURCE") if not environment.get(name)]
    registry = environment.get("REGISTRY", "").lower()  # an owner may have capitals, an image not
    if missing or not re.fullmatch(r"[^/]+(/[^/]+)+", registry):
        raise Refused(f"set REGISTRY (HOST/OWNER) and SOURCE; {registry=}, missing: {missing}")
    tag = environment.get("TAG", "")
    if tag and tag != f"v{__version__}":
        raise Refused(f"tag {tag} is not v{__version__}, the version in accelbind/__init__.py")
    return Release(
        registry=registry,
        source=environment["SOURCE"],
        revision=environment.get("REVISION", "unknown"),
        tag=tag,
        folder=REPOSITORY / (environment.get("FOLDER") or "dist/release"),
    )


def write_files(release: Release) -> None:
    """Write the installations, the chart and the notes into an empty folder."""
    shutil.rmtree(release.folder, ignore_errors=True)
    release.folder.mkdir(parents=True)
    heading = __version__ if release.tag else "Unreleased"
    changelog = (REPOSITORY / "CHANGELOG.md").read_text()
    (release.folder / "notes.md").write_text(notes(changelog, heading))
    for overlay in INSTALLATIONS:
        text = installation(release, overlay)
        (release.folder / f"install-{overlay}.yaml").write_text(text)
    package_chart(release)


def notes(changelog: str, version: str) -> str:
    """The section of a version (Refused if there is none, or it is empty)."""
    section = re.search(
        rf"^## \[{re.escape(version)}\].*?\n(.*?)(?=^## \[|\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    if section is None or not section[1].strip():
        raise Refused(f"CHANGELOG.md has no section [{version}], or it is empty")
    return section[1].strip() + "\n"


def installation(release: Release, overlay: str) -> str:
    """All objects of an overlay, with the images of the release."""
    with tempfile.TemporaryDirectory() as folder:
        # kustomize takes relative paths only
        above = os.path.relpath(MANIFESTS / "overlays" / overlay, Path(folder).resolve())
        images = [
            {"name": f"accelbind-{name}", "newName": release.image(name), "newTag": __version__}
            for name in IMAGES
        ]
        content = {"resources": [above], "images": images, "sortOptions": {"order": "legacy"}}
        Path(folder, "kustomization.yaml").write_text(yaml.safe_dump(content))
        objects = _run("kubectl", "kustomize", folder)
    return f"# accelbind {__version__}, manifests/overlays/{overlay}\n{objects}"


def package_chart(release: Release) -> None:
    """Package the chart with the release's images as defaults, and with its addresses."""
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(folder, "accelbind")
        shutil.copytree(MANIFESTS, chart)
        _edit(chart / "Chart.yaml", _with_addresses(release.source))
        for file in ("values.yaml", "README.md"):
            _edit(chart / file, _with_registry(release.registry))
        _run("helm", "package", str(chart), "--destination", str(release.folder))


def _edit(path: Path, change: Callable[[str], str]) -> None:
    before = path.read_text()
    after = change(before)
    if before == after:
        raise Refused(f"{path.name} of the chart has no place for what a release changes")
    path.write_text(after)


def _with_addresses(source: str) -> Callable[[str], str]:
    addresses = f"home: {source}\nsources: [{source}]\nicon:"
    return lambda text: re.sub(r"(^#.*\n)?^icon:", addresses, text, flags=re.MULTILINE)


def _with_registry(registry: str) -> Callable[[str], str]:
    return lambda text: re.sub(r'(repository"?: "?)accelbind-', rf"\1{registry}/accelbind-", text)


def publish(release: Release) -> None:
    """Push and sign images and chart, then create the release with the files of `write_files`."""
    files = sorted(map(str, release.folder.glob("*.yaml")))
    charts = sorted(release.folder.glob("*.tgz"))
    if not release.tag or not files or len(charts) != 1:
        raise Refused("set TAG, and run make release-files first")
    with tempfile.TemporaryDirectory() as folder:
        for image in IMAGES:
            push_image(release, image, Path(folder, "metadata.json"))
    pushed = _run(
        *("helm", "push", str(charts[0]), f"oci://{release.registry}/charts"),
        stderr=subprocess.STDOUT,  # where Helm names the digest
    )
    digest = re.search(r"^Digest: (sha256:[0-9a-f]{64})$", pushed, re.MULTILINE)
    if digest is None:
        raise Refused(f"helm push named no digest: {pushed}")
    _sign(f"{release.registry}/charts/accelbind@{digest[1]}")
    title = ("--title", f"accelbind {__version__}", "--notes-file", f"{release.folder}/notes.md")
    _run("gh", "release", "create", release.tag, "--verify-tag", *title, *files, str(charts[0]))


def push_image(release: Release, name: str, metadata: Path) -> None:
    """Build an image for all platforms, with SBOM and provenance; push it, and sign its digest."""
    arguments = {
        "VERSION": __version__,
        "REVISION": release.revision,
        "SOURCE": release.source,
    }
    _run(
        *("docker", "buildx", "build", "--target", name, "--platform", PLATFORMS),
        *("--sbom=true", "--provenance=mode=max"),
        *(word for item in arguments.items() for word in ("--build-arg", "=".join(item))),
        *("--tag", f"{release.image(name)}:{__version__}", "--push"),
        *("--metadata-file", str(metadata), str(REPOSITORY)),
    )
    _sign(f"{release.image(name)}@{json.loads(metadata.read_text())['containerimage.digest']}")


def _sign(reference: str) -> None:
    """Sign with the identity of the host that runs this; signatures of each platform too."""
    _run("cosign", "sign", "--yes", "--recursive", reference)


def _run(*command: str, stderr: int | None = None) -> str:
    """The output of a command (Refused if it fails)."""
    sys.stderr.write(f"· {' '.join(command)}\n")
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=stderr, text=True)
    if done.returncode != 0:
        raise Refused(f"{command[0]} ended with {done.returncode} {done.stdout}")
    return done.stdout


def main(action: str) -> int:
    """Do it; give the exit code."""
    try:
        {"files": write_files, "publish": publish}[action](read(os.environ))
    except Refused as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
