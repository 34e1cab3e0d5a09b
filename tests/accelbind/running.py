"""Runs a command line in this process, and gives what it printed."""

import contextlib
import io
from pathlib import Path
from typing import NamedTuple

import pytest

from accelbind.cli import main


class Done(NamedTuple):
    """The end of a command."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments: str | Path, env: dict[str, str] | None = None) -> Done:
    """Runs `accelbind` with these arguments, and variables beside those of the test."""
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        code = main([str(each) for each in arguments])
    return Done(code, out.getvalue(), err.getvalue())
