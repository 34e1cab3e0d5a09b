"""The command line as a whole: help, errors, exit codes, streams."""

import errno
import io
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
import typer

from accelbind import __main__, __version__, cli
from accelbind.output import Output, fact_lines, styled, table_lines, wrapped
from services.process.errors import (
    ClusterError,
    DeviceBusy,
    DeviceGone,
    DeviceHung,
    HardwareError,
    InvalidName,
)
from tests.accelbind.running import run
from tests.support import REPOSITORY


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module that stands for a command; tests give it the function `it`."""
    module = types.ModuleType("tests_example_command")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    example = cli.LazyCommand(f"{module.__name__}:it", cli.INSPECT, "An example.")
    monkeypatch.setitem(cli.COMMANDS, "example", example)
    return module


def raising(error: BaseException) -> object:
    def it(*, output: Output = "text") -> None:  # noqa: ARG001 - read from the words
        """Fail."""
        raise error

    return it


# Help ---------------------------------------------------------------------------------------------


HEAVY = ("grpc", "fastapi", "uvicorn", "lightkube", "cryptography", "pydantic", "rich", "msgspec")


def test_starting_up_imports_no_command_and_nothing_heavy() -> None:
    script = (
        "import sys; from accelbind import cli; cli.main(['--version']);"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [f"accelbind {__version__}", "[]"]


@pytest.mark.parametrize(
    ("words", "known"), [("accelbind ce", "certs"), ("accelbind certs issue --n", "--name")]
)
def test_completion_knows_commands_and_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, known: str
) -> None:
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    for name, value in (asked | {"_ACCELBIND_COMPLETE": "complete_bash"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        cli.main([])
    assert known in capsys.readouterr().out.split()


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["cerst"], "No such command 'cerst'. Did you mean 'certs'? (see: accelbind --help)"),
        (["certs", "issue", "--dri", "x"], "No such option: --dri"),
    ],
)
def test_a_wrong_request_is_one_line_with_where_to_look(words: list[str], line: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"error: {line}")
    assert "(see: accelbind " in done.stderr


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InvalidName("no such\nname"), 2, "error: no such name\n"),
        (HardwareError("the card refuses"), 1, "error: the card refuses\n"),
        (ClusterError("it is away"), 2, "error: it is away\n"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), 2, "/x: Permission denied\n"),
        (DeviceBusy("x"), 3, "error: x\n"),
        (DeviceGone("x"), 4, "error: x\n"),
        (DeviceHung("x"), 5, "error: x\n"),
        (typer.Abort(), 130, "error: interrupted\n"),
        (KeyError("oops"), 70, "internal error: KeyError: 'oops' (accelbind --debug shows where"),
    ],
)
def test_errors_become_one_line_and_an_exit_code(
    command: types.ModuleType, error: Exception, code: int, line: str
) -> None:
    command.it = raising(error)  # type: ignore[attr-defined]
    done = run("example")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert line in done.stderr
    debugged = run("--debug", "example")
    assert debugged.returncode == code
    assert debugged.stderr.startswith("Traceback (most recent call last):\n")
    assert debugged.stderr.endswith(done.stderr)
    for words in (("-o", "json"), ("-ojson",), ("--output=json",)):
        as_json = run("example", *words)
        assert (as_json.returncode, as_json.stdout) == (code, "")
        assert json.loads(as_json.stderr)["version"] == 1


def test_an_interrupt_ends_quietly(command: types.ModuleType) -> None:
    command.it = raising(KeyboardInterrupt())  # type: ignore[attr-defined]
    assert run("example") == (130, "", "")


# Streams ------------------------------------------------------------------------------------------


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    script = (
        "import sys, typer; from accelbind import cli\n"
        "import types; m = types.ModuleType('m'); sys.modules['m'] = m\n"
        "m.it = lambda: [typer.echo('line') for _ in range(100_000)] and None\n"
        "cli.COMMANDS['example'] = cli.LazyCommand('m:it', '', '')\n"
        "sys.exit(cli.main(['example']))"
    )
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=REPOSITORY,
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_characters_unknown_to_the_locale_cause_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = io.BytesIO()
    words = ["doctor", "--only", "node.plugin", "--kubelet-dir", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["accelbind", *words])
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="latin-1"))
    assert __main__.main() == 1
    assert b"? " in out.getvalue()


@pytest.mark.parametrize(
    ("name", "value", "is_coloured"),
    [("TERM", "xterm", True), ("TERM", "dumb", False), ("NO_COLOR", "1", False)],
)
def test_colours_are_for_who_wants_and_knows_them(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, *, is_coloured: bool
) -> None:
    for each, usual in {"TERM": "xterm", "NO_COLOR": "", name: value}.items():
        monkeypatch.setenv(each, usual)
    assert ("\x1b[31m" in styled("text", "red")) is is_coloured


# Tables and lines fit the terminal, and lose nothing


ID = "ab" * 16
HEADINGS = ("DEVICE", "KIND", "INTERFACE", "AFU", "STATE")
ROWS = [
    ("dfl-fme.0", "fme", ID, "", "ok"),
    ("dfl-port.0", "port", ID, ID[::-1], "a sentence about what is wrong with it and what to do"),
]


def test_a_pipe_gets_columns_as_wide_as_their_text() -> None:
    head, first, second = table_lines(HEADINGS, ROWS)
    assert head.index("AFU") == first.index(" -  ") + 1 == second.index(ID[::-1])
    assert second.endswith("what to do")


@pytest.mark.parametrize("columns", [40, 80, 130])
def test_a_table_fits_and_is_complete(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = [*table_lines(HEADINGS, ROWS), *fact_lines({"interfaceId": ID, "name": ROWS[1][-1]})]
    assert max(map(len, lines)) <= columns
    words = " ".join(lines).split()
    for row in ROWS:
        assert all(word in words for cell in row for word in cell.split())
    if columns == 80:
        assert lines[:3] == [
            "DEVICE       KIND   INTERFACE",
            f"dfl-fme.0    fme    {ID}",
            "  STATE ok",
        ]


def test_a_word_is_never_broken() -> None:
    assert list(wrapped(f"  path {ID} is", 20)) == ["  path", f"    {ID}", "    is"]
    assert list(wrapped(f"    {ID}", 20)) == [f"    {ID}"]
