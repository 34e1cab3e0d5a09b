"""The version of the project, the files of a release, and their publication.

`make stamp` writes the version into all files that have it, `make release-files` the files of a
release, and `make publish` publishes them. Settings are variables, which the host of the project
knows:

    REGISTRY   where images and chart are, such as registry.example/owner
    SOURCE     address of the repository
    TAG        such as v0.1.0; with it, the others are needed, and notes are written
    REVISION   the commit (only for publish)
    FOLDER     for the files (default: dist/release)

The same sources and tools write the same files, byte by byte.
"""

import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from accelbind import __version__
from tools.image.sbom import bill, hashes

REPOSITORY = Path(__file__).resolve().parent.parent
MANIFESTS = REPOSITORY / "manifests"
INSTALLATIONS = ("af", "region", "dra", "names")
"""Overlays of which a release has a file."""
IMAGES = ("webhook", "plugin", "certs", "hook-installer")
PLATFORMS = "linux/amd64,linux/arm64"
LOCK = "requirements.lock"
NOTES = "notes.md"
CHECKSUMS = "SHA256SUMS"
PACKED_AT = 1580601600
"""The time of a chart's files: that of the files in wheels."""
VERSIONED = ("*.md", "*.yaml", "Dockerfile")
VERSION_PLACES = re.compile(
    r"(accelbind-(?:webhook|plugin|certs|hook-installer):|\bnewTag: |^appVersion: |^ARG VERSION=)"
    r"\d[\w.]*",
    re.MULTILINE,
)
CHART_VERSION_PLACES = re.compile(r"(^version: )\d.*", re.MULTILINE)


def stamped(text: str, version: str) -> str:
    """A text with this version wherever one of accelbind stands."""
    chart = re.sub(r"\.dev(?=\d)", "-dev.", version)  # a chart's has to be that of SemVer
    text = VERSION_PLACES.sub(rf"\g<1>{version}", text)
    return CHART_VERSION_PLACES.sub(rf"\g<1>{chart}", text)


def versioned_files() -> Iterator[Path]:
    """The files that can have the version."""
    names = _run("git", "-C", str(REPOSITORY), "ls-files", "-z", "--", *VERSIONED).split("\0")
    yield from (REPOSITORY / name for name in names if name)


def stamp() -> None:
    """Write the version of accelbind/__init__.py into all files that have it."""
    for path in versioned_files():
        before = path.read_text()
        after = stamped(before, __version__)
        if after != before:
            path.write_text(after)
            sys.stderr.write(f"· {path.relative_to(REPOSITORY)}\n")


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
        return f"{self.registry}/accelbind-{name}" if self.registry else f"accelbind-{name}"


def read(environment: Mapping[str, str]) -> Release:
    """The release that an environment describes.

    Raises:
        Refused: a setting is missing or unusable, or the tag is not that of this version.
    """
    tag = environment.get("TAG", "")
    missing = [name for name in ("REGISTRY", "SOURCE") if tag and not environment.get(name)]
    registry = environment.get("REGISTRY", "").lower()  # an owner may have capitals, an image not
    if missing or not re.fullmatch(r"([^/]+(/[^/]+)*)?", registry):
        raise Refused(
            f"set REGISTRY, such as HOST/OWNER, and SOURCE; {registry=}, missing: {missing}"
        )
    if tag and tag != f"v{__version__}":
        raise Refused(f"tag {tag} is not v{__version__}, the version in accelbind/__init__.py")
    return Release(
        registry=registry,
        source=environment.get("SOURCE", ""),
        revision=environment.get("REVISION", "unknown"),
        tag=tag,
        folder=REPOSITORY / (environment.get("FOLDER") or "dist/release"),
    )


def write_files(release: Release) -> None:
    """Write all files into an empty folder, and their checksums."""
    shutil.rmtree(release.folder, ignore_errors=True)
    release.folder.mkdir(parents=True)
    for overlay in INSTALLATIONS:
        text = installation(release, overlay)
        (release.folder / f"install-{overlay}.yaml").write_text(text)
    package_chart(release)
    package_command(release)
    sums = {path.name: hashlib.sha256(path.read_bytes()) for path in attached(release)}
    lines = [f"{each.hexdigest()}  {name}\n" for name, each in sums.items()]
    (release.folder / CHECKSUMS).write_text("".join(lines))
    if release.tag:
        text = notes((REPOSITORY / "CHANGELOG.md").read_text(), __version__)
        (release.folder / NOTES).write_text(with_links(text, release))


def attached(release: Release) -> list[Path]:
    """The files that a release has beside its notes."""
    return [path for path in sorted(release.folder.iterdir()) if path.name != NOTES]


def with_links(text: str, release: Release) -> str:
    """A text of the repository whose links lead there from anywhere."""
    return re.sub(r"\]\((?!\w+:)", f"]({release.source}/blob/{release.tag}/", text)


def package_command(release: Release) -> None:
    """Write the wheel of the command, the lock file to install it with, and its SBOM."""
    command = ("hatchling", "build", "-t", "wheel", "-d", str(release.folder))
    with contextlib.chdir(REPOSITORY):
        _run(sys.executable, "-m", *command)
    lock = (REPOSITORY / LOCK).read_text()
    (release.folder / LOCK).write_text(lock)
    document = bill(lock, "", "", only=["accelbind", *hashes(lock)])
    if document["metadata"]["component"]["version"] != __version__:
        raise Refused("the environment has another version of accelbind: run make setup")
    # The interpreter is that of whoever installs the wheel.
    document["components"] = [one for one in document["components"] if one["type"] != "platform"]
    text = json.dumps(document, indent=1, sort_keys=True)
    (release.folder / f"accelbind-{__version__}.cdx.json").write_text(text + "\n")


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
        if release.source:
            _edit(chart / "Chart.yaml", _with_addresses(release.source))
        for file in ("values.yaml", "README.md") if release.registry else ():
            _edit(chart / file, _with_registry(release.registry))
        _run("helm", "package", str(chart), "--destination", folder)
        (packed,) = Path(folder).glob("*.tgz")
        (release.folder / packed.name).write_bytes(settled(packed.read_bytes()))


def settled(archive: bytes) -> bytes:
    """An archive of files without the times and owners of this machine, which Helm puts there."""
    target = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as given,
        gzip.GzipFile(fileobj=target, mode="wb", filename="", mtime=PACKED_AT) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as made,
    ):
        for member in given:
            info = tarfile.TarInfo(member.name)
            info.size, info.mtime = member.size, PACKED_AT
            made.addfile(info, given.extractfile(member))
    return target.getvalue()


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
    charts = sorted(release.folder.glob("*.tgz"))
    if not release.tag or not (release.folder / NOTES).exists() or len(charts) != 1:
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
    title = ("--title", f"accelbind {__version__}", "--notes-file", f"{release.folder}/{NOTES}")
    files = map(str, attached(release))
    _run("gh", "release", "create", release.tag, "--verify-tag", *title, *files)


def push_image(release: Release, name: str, metadata: Path) -> None:
    """Build an image for all platforms, with SBOM and provenance; push it, and sign its digest."""
    arguments = {"REVISION": release.revision, "SOURCE": release.source}
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


_FOR_FILES: Final = ("git", "kubectl", "helm")
NEEDED: Final = {
    "stamp": ("git",),
    "files": _FOR_FILES,
    "publish": (*_FOR_FILES, "docker", "cosign", "gh"),
}
"""The programs that an action runs."""


def _require(*programs: str) -> None:
    if missing := [each for each in programs if shutil.which(each) is None]:
        raise Refused(f"{', '.join(missing)} not found: install them, and have them in PATH")


def main(action: str) -> int:
    """Do it; give the exit code."""
    try:
        _require(*NEEDED[action])
        if action == "stamp":
            stamp()
        else:
            {"files": write_files, "publish": publish}[action](read(os.environ))
    except Refused as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
