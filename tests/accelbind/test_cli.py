import contextlib
import errno
import json
import os
import pty
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from accelbind import __version__, cli
from services.process.errors import HardwareError, InvalidName
from tests.support import REPOSITORY, accelbind_command, clean_environment


def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        accelbind_command(*arguments),
        cwd=REPOSITORY,
        env=clean_environment() | {"TERM": "dumb"} | (env or {}),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module that stands for a command; tests give it the function `it`."""
    module = types.ModuleType("tests_example_command")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    example = cli.LazyCommand(module.__name__, "it", "An example.", cli.INSPECT)
    monkeypatch.setitem(cli.COMMANDS, "example", example)
    return module


def raising(error: BaseException) -> object:
    def it() -> None:
        """Fails."""
        raise error

    return it


def test_the_overview_names_every_command() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert done.stderr == ""
    assert [name for name in cli.COMMANDS if f" {name} " not in done.stdout] == []


def test_every_command_loads_and_explains_itself_with_an_example() -> None:
    lacking = []
    for name in cli.COMMANDS:
        done = run(name, "--help")
        assert done.returncode == 0, done.stderr
        shown = done.stdout
        # groups: their commands carry the examples
        if name in {"bitstream", "certs", "check", "fpga", "names"}:
            continue
        if f"accelbind {name}" not in shown.partition("Usage:")[2].partition("\n")[2]:
            lacking.append(name)
    assert lacking == []


PAGES = [
    *[[name] for name in cli.COMMANDS],
    *[["names", name] for name in ("af", "region", "decode")],
    ["certs", "issue"],
    ["check", "mappings"],
    *[["fpga", name] for name in ("list", "info", "program", "reset", "clear-errors", "release")],
    ["fpga", "assign"],
]


SHOWING = """
import contextlib, io, json, sys
from accelbind import cli
shown = {}
for page in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as text:
        cli.main([*page, "--help"])
    shown[" ".join(page)] = text.getvalue()
print(json.dumps(shown))
"""


@pytest.fixture(scope="module")
def pages() -> list[dict[str, str]]:
    """Command → its page, on a terminal of 80 columns and on one of 200."""
    command = [sys.executable, "-c", SHOWING, json.dumps(PAGES)]
    shown = []
    for columns in ("80", "200"):
        environment = clean_environment() | {"TERM": "dumb", "COLUMNS": columns}
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True
        )
        shown.append(json.loads(done.stdout))
    return shown


@pytest.mark.parametrize("page", PAGES, ids=" ".join)
def test_examples_are_not_wrapped_on_a_terminal_of_80_columns(
    pages: list[dict[str, str]], page: list[str]
) -> None:
    narrow, wide = (shown[" ".join(page)] for shown in pages)
    assert narrow != wide
    assert examples(narrow) == examples(wide)


def examples(page: str) -> list[str]:
    before_options = page.partition("╭")[0]
    return [line.strip() for line in before_options.partition("Example")[2].splitlines()]


def test_no_command_shows_the_overview() -> None:
    done = run()
    assert (done.returncode, done.stderr) == (2, "")
    assert "Usage: accelbind" in done.stdout


def test_the_version_is_that_of_the_package() -> None:
    assert run("--version").stdout == f"accelbind {__version__}\n"


HEAVY = ("grpc", "fastapi", "uvicorn", "lightkube", "cryptography", "pydantic", "rich", "msgspec")


def test_starting_up_imports_no_command_and_nothing_heavy() -> None:
    script = (
        "import sys; from accelbind import cli; cli.main(['--version']);"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_an_unknown_command_gets_the_nearest_one() -> None:
    done = run("cerst")
    assert done.returncode == 2
    assert done.stderr == (
        "error: No such command 'cerst'. Did you mean 'certs'? (see: accelbind --help)\n"
    )


def test_a_wrong_option_is_one_line_with_where_to_look() -> None:
    done = run("certs", "issue", "--dri", "x")
    assert done.returncode == 2
    assert done.stderr.startswith("error: No such option: --dri")
    assert done.stderr.endswith("(see: accelbind certs issue --help)\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InvalidName("no such\nname"), 2, "error: no such name\n"),
        (HardwareError("the card is gone"), 1, "error: the card is gone\n"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), 1, "/x: Permission denied\n"),
        (OSError("odd"), 1, "error: odd\n"),
        (typer.Abort(), 1, "error: aborted\n"),
        (KeyError("oops"), 70, "internal error: KeyError: 'oops' (accelbind --debug shows where"),
    ],
)
def test_errors_become_one_line_and_an_exit_code(
    command: types.ModuleType,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    code: int,
    line: str,
) -> None:
    command.it = raising(error)  # type: ignore[attr-defined]
    assert cli.main(["example"]) == code
    shown = capsys.readouterr()
    assert line in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [(InvalidName("no such name"), 2), (HardwareError("the card is gone"), 1), (KeyError("x"), 70)],
)
def test_debug_shows_the_traceback_and_keeps_the_exit_code(
    command: types.ModuleType,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    code: int,
) -> None:
    command.it = raising(error)  # type: ignore[attr-defined]
    assert cli.main(["--debug", "example"]) == code
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback (most recent call last):\n")
    assert shown.splitlines()[-1].startswith("error: ")


def test_an_interrupt_ends_quietly(
    command: types.ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    command.it = raising(KeyboardInterrupt())  # type: ignore[attr-defined]
    assert cli.main(["example"]) == 130
    assert capsys.readouterr().err == ""


def test_a_command_sets_its_exit_code(command: types.ModuleType) -> None:
    command.it = raising(typer.Exit(3))  # type: ignore[attr-defined]
    assert cli.main(["example"]) == 3


def test_a_typer_app_is_a_command_too(
    command: types.ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    app = typer.Typer()

    @app.callback()
    def group() -> None:
        """A group."""

    @app.command()
    def say(word: str) -> None:
        typer.echo(word)

    command.it = app  # type: ignore[attr-defined]

    assert cli.main(["example", "say", "hello"]) == 0
    assert capsys.readouterr().out == "hello\n"
    assert cli.main(["example", "--help"]) == 0
    assert "completion" not in capsys.readouterr().out


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_reader_that_goes_away_is_no_traceback(lines: int) -> None:
    script = (
        "import sys, typer; from accelbind import cli\n"
        "import types; m = types.ModuleType('m'); sys.modules['m'] = m\n"
        f"m.it = lambda: [typer.echo('line') for _ in range({lines})] and None\n"
        "cli.COMMANDS['example'] = cli.LazyCommand('m', 'it', '', '')\n"
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


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_changes_nothing_else(closed: str, tmp_path: Path) -> None:
    def run(*arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [
                "/bin/sh",
                "-c",
                f'"$@" {closed}',
                "sh",
                sys.executable,
                "-m",
                "accelbind",
                *arguments,
            ],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    code, out, err = run("names", "decode", f"region-{'ab' * 16}", "-o", "json")
    assert (code, err) == (0, "")
    assert bool(out) == (">&-" not in closed.split())
    code, _, err = run("fpga", "info", "none", "--root", str(tmp_path))
    assert (code, err.startswith("error: ")) == (4, "2>&-" not in closed)


def test_what_a_locale_cannot_spell_is_no_mistake(tmp_path: Path) -> None:
    latin = {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    told = run("doctor", "--only", "node.driver", "--root", str(tmp_path), "--node", env=latin)
    assert (told.returncode, "? " in told.stdout, told.stderr) == (1, True, "")
    helped = run("plugin", "--help", env=latin)
    assert (helped.returncode, "--print-config" in helped.stdout, helped.stderr) == (0, True, "")


def on_a_terminal(*arguments: str, env: dict[str, str]) -> bytes:
    """What a command writes to one."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        accelbind_command(*arguments),
        cwd=REPOSITORY,
        env=clean_environment() | {"NO_COLOR": ""} | env,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    ):
        os.close(slave)
        seen = b""
        with contextlib.suppress(OSError):  # EIO: the last who had it open has ended
            while more := os.read(master, 65536):
                seen += more
    os.close(master)
    return seen


@pytest.mark.parametrize(
    "words",
    [
        ("names", "decode", "nothing"),
        ("doctor", "--node", "--only", "node.driver", "--root", "docs"),
    ],
    ids=lambda words: words[0],
)
def test_colours_are_for_who_wants_and_knows_them(words: tuple[str, ...]) -> None:
    assert b"\x1b[31m" in on_a_terminal(*words, env={"TERM": "xterm"})
    assert b"\x1b" not in on_a_terminal(*words, env={"TERM": "xterm", "NO_COLOR": "1"})
    assert b"\x1b" not in on_a_terminal(*words, env={"TERM": "dumb"})


def test_completion_knows_commands_and_options() -> None:
    def complete(words: str) -> str:
        asked = {"_ACCELBIND_COMPLETE": "complete_bash", "COMP_WORDS": words}
        return run(env=asked | {"COMP_CWORD": str(len(words.split(" ")) - 1)}).stdout

    assert complete("accelbind ce").split() == ["certs"]
    assert "--lifetime" in complete("accelbind certs issue --l").split()
    modes = ["af", "region", "regiondevel", "units", "bdf"]
    assert complete("accelbind plugin --mode ").split() == modes
    assert complete("accelbind plugin --mode r").split() == ["region", "regiondevel"]


def test_certificates_are_issued_and_shown(tmp_path: Path) -> None:
    done = run("certs", "issue", "--dir", str(tmp_path), "--name", "hook.svc", "--name", "::1")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "ca.crt",
        "ca.key",
        "tls.crt",
        "tls.key",
    ]
    assert "(new, valid until" in done.stdout
    assert "for hook.svc, ::1" in done.stdout
    again = run("certs", "issue", "--dir", str(tmp_path), "--name", "hook.svc")
    assert "(kept, valid until" in again.stdout
    assert again.stdout.splitlines()[-1] == done.stdout.splitlines()[-1]


def test_a_wrong_certificate_name_is_the_askers_fault(tmp_path: Path) -> None:
    done = run("certs", "issue", "--dir", str(tmp_path / "x"), "--name", "no name")
    assert done.returncode == 2
    assert done.stderr.startswith("error: 'no name' is neither a DNS name")


def files_of(command: Any) -> Iterator[Any]:
    """The options for files of a command and of those below it, as they were declared."""
    for param in command.params:
        declared = getattr(param, "type_descriptor", None)
        if declared is not None and declared.annotation is Path:
            yield declared.parameter_info
    for member in getattr(command, "commands", {}).values():
        yield from files_of(member)


def test_which_files_cannot_be_read_is_found_out_by_the_commands_themselves() -> None:
    found = {name: list(files_of(cli.load(name))) for name in cli.COMMANDS}
    assert {name for name, files in found.items() if files} >= {
        "devices",
        "explain",
        "check",
        "certs",
    }
    assert [one for files in found.values() for one in files if one.readable] == []


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    assert run("certs", "issue", "--dir", str(folder), "--name", "hook.svc").returncode == 0
    return folder


@pytest.fixture
def webhook_flags(tmp_path: Path, certificates: Path) -> dict[str, str]:
    (tmp_path / "maps").mkdir()
    files = {"--tls-cert": certificates / "tls.crt", "--tls-key": certificates / "tls.key"}
    return {flag: str(path) for flag, path in files.items()} | {
        "--mappings": str(tmp_path / "maps")
    }


@pytest.mark.parametrize("flag", ["--tls-cert", "--tls-key", "--mappings", "--kubeconfig"])
@pytest.mark.parametrize("trouble", ["missing", "of another kind"])
def test_a_file_of_the_webhook_that_cannot_be_read_is_the_worlds_fault(
    tmp_path: Path, webhook_flags: dict[str, str], flag: str, trouble: str
) -> None:
    named = tmp_path / "named"
    if trouble == "of another kind":
        named.touch() if flag == "--mappings" else named.mkdir()
    if flag == "--kubeconfig":
        del webhook_flags["--mappings"]
    flags = [word for pair in (webhook_flags | {flag: str(named)}).items() for word in pair]
    done = run("webhook", *flags)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert line.startswith("error: ")
    assert str(named) in line


def test_a_folder_that_cannot_be_used_is_the_worlds_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run("certs", "issue", "--dir", str(tmp_path / "file"), "--name", "hook.svc")
    assert done.returncode == 1
    assert done.stderr == f"error: {tmp_path / 'file'} cannot be used: File exists\n"
