"""Runs a command line, and gives what it printed; what it may ask."""

import contextlib
import io
import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from accelbind.cli import COMMANDS, load, main
from simulator.driver import SimulatedCalls
from tests.support import REPOSITORY, accelbind_command, clean_environment


class Done(NamedTuple):
    """The end of a command."""

    returncode: int
    stdout: str
    stderr: str


def run(
    *arguments: object,
    env: dict[str, str] | None = None,
    driver_calls: SimulatedCalls | None = None,
) -> Done:
    """Run `accelbind` in this process, without the kubeconfig of who runs the tests.

    Not while a stand-in or a plugin of the test logs to the same stdout: see `run_process`.
    """
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        for name, value in ({"HOME": "/nowhere", "KUBECONFIG": ""} | (env or {})).items():
            patch.setenv(name, value)
        code = main([str(each) for each in arguments], driver_calls=driver_calls)
    return Done(code, out.getvalue(), err.getvalue())


def commands_by_words() -> dict[str, Any]:
    """All commands, by the words that are typed after `accelbind`."""

    def within(words: str, command: Any) -> Iterator[tuple[str, Any]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield words, command
        for name, each in (inner or {}).items():
            yield from within(f"{words} {name}", each)

    return dict(each for name in COMMANDS for each in within(name, load(name)))


def run_process(*arguments: str | Path, env: dict[str, str] | None = None) -> Done:
    """Run `accelbind` in a process of its own."""
    done = subprocess.run(
        accelbind_command(*arguments),
        cwd=REPOSITORY,
        env=clean_environment() | {"TERM": "dumb"} | (env or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@contextlib.contextmanager
def plain_port(answers: dict[str, tuple[int, bytes]]) -> Iterator[int]:
    """Something that answers on a plain port; other paths than these with 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = answers.get(self.path, (404, b"not found\n"))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def write_config(folder: Path, cluster: dict[str, Any], user: dict[str, Any] | None = None) -> Path:
    """Write a kubeconfig with one cluster and one user, in namespace n."""
    path = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "n"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "secret"} if user is None else user}],
    }
    path.write_text(json.dumps(config))
    return path
