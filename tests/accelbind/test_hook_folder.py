"""The OCI hook as hosts get it: a folder with a Python of its own."""

import json
import re
import shutil
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import REPOSITORY, clean_environment, require

GUIDE = "docs/programming.md"
NEWEST_GLIBC = (2, 36)
"""That of Debian 12, a library of whose Python needs it: what is stated of the hosts it runs on."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [require("make"), "hook", f"HOOK_DIR={target}"],
        cwd=REPOSITORY,
        env=clean_environment(),
        check=True,
        timeout=500,
        capture_output=True,
    )
    moved = tmp_path_factory.mktemp("host") / "hook"
    shutil.move(target / "accelbind-hook", moved)
    return moved


@pytest.fixture
def plugin(short_dir: Path) -> Iterator[Path]:
    """A socket at which everything is allowed."""
    path = short_dir / "hook.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(b'[true, ""]\n')

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield path
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def run(folder: Path, state: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [folder / "accelbind-hook", *arguments],
        input=state,
        env={},  # as a runtime starts it
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_folder_runs_without_any_python_of_the_host(
    folder: Path, plugin: Path, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    (tmp_path / "config.json").write_text('{"annotations": {}}')
    state = json.dumps({"bundle": str(tmp_path)})
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        done = run(folder, state, str(plugin), "dfl-fme.0")
        seconds.append(time.perf_counter() - began)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    figure(f"median {statistics.median(seconds) * 1e3:.0f} ms to its verdict")
    assert run(folder, state, "/nowhere/hook.sock", "dfl-fme.0").returncode == 1
    assert "can't be read" in run(folder, "{}", str(plugin), "dfl-fme.0").stderr


def test_it_runs_on_hosts_as_old_as_is_stated(folder: Path) -> None:
    found = set()
    for path in folder.rglob("*"):
        if path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
            found |= set(re.findall(rb"GLIBC_(\d+)\.(\d+)", path.read_bytes()))
    assert found
    assert max((int(major), int(minor)) for major, minor in found) <= NEWEST_GLIBC
    stated = re.search(r"glibc (\d+)\.(\d+) or newer", (REPOSITORY / GUIDE).read_text())
    assert stated
    assert tuple(map(int, stated.groups())) == NEWEST_GLIBC
