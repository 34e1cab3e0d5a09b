"""Every command that reads the API server finds it in the same way."""

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
    *("dra classes", "dra template"),
}


def walk(command: Any, words: list[str]) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if not below:
        yield " ".join(words), command
    for name, each in (below or {}).items():
        yield from walk(each, [*words, name])


COMMANDS: Final = {
    words: command for name in cli.COMMANDS for words, command in walk(cli.load(name), [name])
}


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
    more = {"explain": ["-f", str(sample)], "doctor": ["--cluster"], "dra template": ["nlb0"]}
    assert main([*words.split(), *more.get(words, [])]) in {1, 2}
    shown = capsys.readouterr()
    assert str(named) in shown.out + shown.err
