"""A Docker engine that runs, and a base image made of Debian's packages alone."""

import functools
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import REPOSITORY, require

BASE = "accelbind-test-base"
SUITE = "bookworm"
PACKAGES = "python3,python3-venv,python3-pip,ca-certificates"
"""A base as some are: with a pip of its own, which must not get into an image."""
TRUST = Path("/etc/ssl/certs/ca-certificates.crt")


@dataclass(frozen=True, slots=True)
class Engine:
    """The engine that DOCKER_HOST names, or the one at the usual place."""

    folder: Path

    def run(self, *command: str | Path, seconds: float = 120, code: int | None = 0) -> str:
        """What a command printed on both streams; fail where its exit code isn't `code`."""
        done = subprocess.run(
            [*map(str, command)],
            cwd=REPOSITORY,
            env={"DOCKER_BUILDKIT": "0", **os.environ},  # BuildKit where somebody asks for it
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
        if code is not None and done.returncode != code:
            words = " ".join(map(str, command))
            pytest.fail(f"{words}: {done.returncode}\n{done.stdout[-6000:]}")
        return done.stdout


@functools.cache
def composes() -> Mapping[str, tuple[str, ...]]:
    """Version → command of each compose that is installed: 1.29 and v2 may both be."""
    found: dict[str, tuple[str, ...]] = {}
    for command in (("docker-compose",), ("docker", "compose")):
        if shutil.which(command[0]):
            asked = [*command, "version", "--short"]
            done = subprocess.run(asked, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                found.setdefault(done.stdout.strip().removeprefix("v"), command)
    return found


def unmet(engine: Engine) -> str:
    """What keeps this machine from running the tests, and what to do; empty if nothing does."""
    tools = ["docker"] if os.environ.get("BASE") else ["docker", "debootstrap"]
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if not composes():
        missing.append("docker-compose")
    if missing:
        return f"these programs are missing: {' '.join(missing)}"
    if os.geteuid() != 0 and not os.environ.get("BASE"):
        return (
            "root alone may make the images' base; an image of Debian or Ubuntu that has Python"
            " takes its place (BASE=python:3.11-slim-bookworm)"
        )
    if not engine.run("docker", "version", "--format", "{{.Server.Version}}", code=None)[
        :1
    ].isdigit():
        return "no Docker engine answers: start dockerd, or name one (DOCKER_HOST)"
    return ""


def base_image(engine: Engine) -> str:
    """The image that BASE names, or one made of Debian's packages, which trusts whom we trust."""
    if given := os.environ.get("BASE"):
        return given
    archive = Path(os.environ.get("BASE_ARCHIVE") or engine.folder / "base.tar")
    if not archive.exists():
        _debootstrap(engine, archive)
    engine.run("docker", "import", archive, BASE)
    return BASE


def _debootstrap(engine: Engine, archive: Path) -> None:
    """Make it in memory: what is there for a moment needs no disk that dpkg would wait for."""
    root = engine.folder / "base"
    root.mkdir()
    engine.run(
        *(require("unshare"), "--mount", "sh", "-euc"),
        'mount -t tmpfs -o mode=0755 base "$1";'
        ' debootstrap --variant=minbase --include="$4" "$3" "$1";'
        ' rm -f "$1"/var/cache/apt/archives/*.deb;'
        ' if [ -e "$5" ]; then cp "$5" "$1$5"; fi;'
        ' tar -C "$1" -cf "$2.part" .; mv "$2.part" "$2"',
        *("sh", root, archive, SUITE, PACKAGES, TRUST),
        seconds=900,
    )
    root.rmdir()
