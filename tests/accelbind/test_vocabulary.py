"""One vocabulary: what every command calls the same things, found by walking all of them."""

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from accelbind import cli
from accelbind.cli import main
from tests.support import REPOSITORY

PROCESSES: Final = {"webhook", "plugin", "certs run"}
READS_THE_API_SERVER: Final = {
    *("webhook", "plugin", "certs run"),
    *("certs show", "certs renew", "check mappings", "doctor", "explain"),
}
HAS_NO_OUTPUT: Final = {*PROCESSES, "demo"}


def walk(command: Any, words: list[str]) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if not below:
        yield " ".join(words), command
    for name, each in (below or {}).items():
        yield from walk(each, [*words, name])


COMMANDS: Final = {
    words: command for name in cli.COMMANDS for words, command in walk(cli.load(name), [name])
}


def options(command: Any) -> dict[str, Any]:
    return {flag: param for param in command.params for flag in param.opts if flag[:1] == "-"}


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The help of every command, on a wide terminal."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "1000")
        for words in COMMANDS:
            with contextlib.redirect_stdout(io.StringIO()) as text:
                assert main([*words.split(), "--help"]) == 0
            found[words] = text.getvalue()
    return found


def with_flag(flag: str) -> set[str]:
    return {words for words, command in COMMANDS.items() if flag in options(command)}


def test_commands_that_read_the_api_server_take_a_kubeconfig() -> None:
    assert with_flag("--kubeconfig") == READS_THE_API_SERVER


def test_all_commands_that_print_a_result_take_an_output_format(pages: dict[str, str]) -> None:
    assert with_flag("--output") == with_flag("-o") == set(COMMANDS) - HAS_NO_OUTPUT
    for words in with_flag("--output"):
        formats = "<text|json|mapping>" if words == "fpga list" else "<text|json>"
        assert formats in pages[words], words


def test_a_short_flag_means_the_same_everywhere() -> None:
    meanings: dict[str, set[str]] = {}
    for command in COMMANDS.values():
        for param in command.params:
            long = [flag for flag in param.opts if flag.startswith("--")]
            for flag in param.opts:
                if len(flag) == 2:
                    meanings.setdefault(flag, set()).update(long[:1])
    meanings.pop("-h", None)
    assert meanings == {
        "-f": {"--filename"},
        "-n": {"--namespace"},
        "-o": {"--output"},
        "-v": {"--verbose"},
        "-w": {"--watch"},
    }


def test_a_flag_has_the_same_metavar_everywhere() -> None:
    found: dict[str, set[str]] = {}
    for command in COMMANDS.values():
        for flag, param in options(command).items():
            if param.metavar:
                found.setdefault(flag, set()).add(param.metavar)
    assert found.pop("--port") == {"N", "PORT"}, "a card's port, or one of TCP"
    assert {flag: each for flag, each in found.items() if len(each) > 1} == {}


def test_defaults_have_one_notation(pages: dict[str, str]) -> None:
    for words, page in pages.items():
        assert re.findall(r"(?i)\(default|default is|defaults to|(?<!\[)default:", page) == [], (
            words
        )


def test_days_are_documented_where_a_bare_number_counts_them() -> None:
    in_days = {"--lifetime", "--ca-lifetime", "--days", "--ca-days"}
    for words, command in COMMANDS.items():
        for flag, param in options(command).items():
            if param.metavar == "TIME":
                documented = "a bare number counts days" in (param.help or "")
                assert documented == (flag in in_days), (words, flag)


@pytest.mark.parametrize("words", sorted(READS_THE_API_SERVER - PROCESSES))
@pytest.mark.parametrize("by_variable", [True, False])
def test_a_kubeconfig_is_found_as_kubectl_finds_it(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: str,
    *,
    by_variable: bool,
) -> None:
    named = tmp_path / ".kube" / "config"
    named.parent.mkdir()
    named.write_text("[]")
    monkeypatch.setenv("HOME", "/nowhere" if by_variable else str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    if by_variable:
        monkeypatch.setenv("KUBECONFIG", str(named))
    sample = REPOSITORY / "examples" / "pods" / "preprogrammed.yaml"
    more = {"explain": ["-f", str(sample)], "doctor": ["--cluster"]}.get(words, [])
    assert main([*words.split(), *more]) in {1, 2}
    shown = capsys.readouterr()
    assert str(named) in shown.out + shown.err
