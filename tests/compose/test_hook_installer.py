"""The hook's installer, and the lock that images are built with."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support import REPOSITORY
from tools.image import install_hook
from tools.image.pick_lock import pick


@pytest.mark.parametrize(
    ("asked", "needs"), [("hatchling", "packaging"), ("pyinstaller", "altgraph")]
)
def test_our_own_lock_has_what_the_stages_ask_for(asked: str, needs: str) -> None:
    picked = pick((REPOSITORY / "requirements-dev.lock").read_text(), [asked])
    assert f"{asked}==" in picked
    assert f"{needs}==" in picked
    assert "grpcio" not in picked
    assert f" {asked} >" in (REPOSITORY / "Dockerfile").read_text()


def make_hook(folder: Path, says: str) -> Path:
    (folder / "_internal").mkdir(parents=True)
    (folder / "_internal" / "word").write_text(says)
    script = folder / "accelbind-hook"
    script.write_text('#!/bin/sh\nread -r word <"${0%/*}/_internal/word"; echo "$word"\n')
    script.chmod(0o755)
    (folder / "_internal" / "library.so").symlink_to("word")
    return folder


def test_a_hook_is_installed_and_replaced(tmp_path: Path) -> None:
    target = tmp_path / "host" / "opt" / "hook"
    old, new = make_hook(tmp_path / "old", "old\n"), make_hook(tmp_path / "new", "new\n")
    install_hook.install(old, target)
    install_hook.install(new, target)
    said = subprocess.run([target / "accelbind-hook"], capture_output=True, text=True, check=True)
    assert said.stdout == "new\n"
    assert (target / "_internal" / "library.so").is_symlink()
    names = sorted(each.name for each in target.parent.iterdir())
    assert names == [".hook.a", ".hook.b", "hook"]  # the one before stays for hooks that run


def test_a_hook_that_is_started_meanwhile_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    target = tmp_path / "hook"
    hooks = [make_hook(tmp_path / word, f"{word}\n") for word in ("one", "two")]
    install_hook.install(hooks[0], target)
    ended = threading.Event()

    def replace() -> None:
        for turn in range(40):
            install_hook.install(hooks[(turn + 1) % 2], target)
        ended.set()

    thread = threading.Thread(target=replace)
    thread.start()
    seen = []
    while not ended.is_set():
        seen.append((target / "accelbind-hook").read_text()[:9])
    thread.join()
    assert set(seen) == {"#!/bin/sh"}


def test_a_host_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    source, blocked = make_hook(tmp_path / "new", "new\n"), tmp_path / "file"
    blocked.write_text("no folder")
    command = [sys.executable, "-I", str(REPOSITORY / "tools/image/install_hook.py")]
    done = subprocess.run(
        [*command, source, blocked / "hook"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "must run as root and mount the host's folder there" in done.stderr
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2
