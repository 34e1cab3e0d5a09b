"""Starting a test bed, asking it, and starting processes on it; see `bed.py`."""

import functools
import json
import os
import select
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from tests.support import REPOSITORY, clean_environment

SYSTEM_PYTHON = "/usr/bin/python3"
"""Debian's bindings are for the system's Python, not for the one in `.venv`."""

NEEDED = """\
import sys, gi
gi.require_version("UMockdev", "1.0")
from gi.repository import UMockdev
UMockdev.IoctlBase, UMockdev.Testbed.attach_ioctl
assert sys.version_info >= (3, 11)
"""


@functools.cache
def missing() -> str:
    """Why there can be no bed here; empty if there can be one."""
    if shutil.which("umockdev-wrapper") is None:
        return "umockdev is not installed (Debian: umockdev gir1.2-umockdev-1.0 python3-gi)"
    done = subprocess.run(
        [SYSTEM_PYTHON, "-c", NEEDED], capture_output=True, text=True, check=False
    )
    why = done.stderr.strip().splitlines()[-1] if done.returncode else ""
    return f"{SYSTEM_PYTHON} has no umockdev: {why}" if done.returncode else ""


class TestBed:
    """A bed in a process of its own."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        if missing():
            pytest.skip(missing())
        self._errors = folder / "bed.err"
        with self._errors.open("wb") as errors:
            self._popen = subprocess.Popen(
                ["umockdev-wrapper", SYSTEM_PYTHON, "-m", "tests.umockdev.bed"],  # noqa: S607 - found by the path
                cwd=REPOSITORY,
                env=clean_environment() | {"PYTHONDONTWRITEBYTECODE": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.root = Path(self._read()["root"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.close()
        try:
            self._popen.wait(60)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait(60)
        assert self._popen.stdout is not None
        self._popen.stdout.close()
        shutil.rmtree(self.root, ignore_errors=True)

    def ask(self, what: str, /, **more: Any) -> Any:
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps({"do": what, **more}) + "\n")
        self._popen.stdin.flush()
        answer = self._read()
        if "error" in answer:
            pytest.fail(f"{what}: {answer['error']}\n{self._errors.read_text()}")
        return answer["answer"]

    def _read(self) -> dict[str, Any]:
        out = self._popen.stdout
        assert out is not None
        readable, _, _ = select.select([out], [], [], 30)
        line = out.readline() if readable else ""
        if not line:
            pytest.fail(f"the test bed doesn't answer\n{self._errors.read_text()}")
        return dict(json.loads(line))

    def add(self, **spec: Any) -> dict[str, Any]:
        """Put a card in; its address, the names of its engine and ports, and its folder."""
        return dict(self.ask("add", **spec))

    def calls(self, request: int | None = None) -> list[dict[str, Any]]:
        """The ioctls that came since the last time, all or those with a number."""
        found: list[dict[str, Any]] = self.ask("calls")
        return [each for each in found if request in (None, each["request"])]

    def file(self, card: Mapping[str, Any], path: str) -> Path:
        return self.root / "sys" / str(card["entry"]) / path

    @property
    def environment(self) -> dict[str, str]:
        """What puts a process on the bed."""
        before = os.environ.get("LD_PRELOAD", "")
        preload = f"libumockdev-preload.so.0{':' if before else ''}{before}"
        return {"UMOCKDEV_DIR": str(self.root), "LD_PRELOAD": preload}
