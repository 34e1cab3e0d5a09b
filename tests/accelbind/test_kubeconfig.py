"""Every command that reads the API server finds it in the same way."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from accelbind import cli
from accelbind.cli import main
from tests.support import REPOSITORY

POD: Final = REPOSITORY / "examples/pods/preprogrammed.yaml"
READS_THE_API_SERVER: Final = (
    *("certs show", "certs renew", "check mappings", "doctor --cluster", f"explain -f {POD}"),
    *("dra classes", "dra template nlb0"),
)


def walk(command: Any, words: list[str]) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if not below:
        yield " ".join(words), command
    for name, each in (below or {}).items():
        yield from walk(each, [*words, name])


COMMANDS: Final = {
    words: command for name in cli.COMMANDS for words, command in walk(cli.load(name), [name])
}


@pytest.mark.parametrize("words", READS_THE_API_SERVER)
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
    assert main(words.split()) == 2
    shown = capsys.readouterr()
    assert str(named) in shown.out + shown.err
