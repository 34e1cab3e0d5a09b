"""Examples in `--help` use commands and flags that exist, and the manifests' namespace."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from accelbind.cli import COMMANDS, load
from tests.support import REPOSITORY

_MANIFEST = (REPOSITORY / "manifests" / "base" / "namespace.yaml").read_text()
NAMESPACE = yaml.safe_load(_MANIFEST)["metadata"]["name"]


def leaves(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
    else:
        for name, each in inner.items():
            yield from leaves(f"{words} {name}", each)


LEAVES = dict(each for name in COMMANDS for each in leaves(f"accelbind {name}", load(name)))


def examples(command: Any) -> str:
    """Return the examples of a command, one per line."""
    told: str = command.help.partition("[bold]Example")[2].partition("\n")[2]
    return re.sub(r"(\\|\|)\n", lambda mark: "" if mark[1] == "\\" else "| ", told)


def own(line: str) -> Iterator[list[str]]:
    """Yield the calls of `accelbind` in a line."""
    for part in re.split(r" \| | && | -- ", line):
        words = [word for word in shlex.split(part) if not re.match(r"[A-Z_]+=", word)]
        if words[:1] == ["accelbind"]:
            yield words


def check_flags(call: list[str]) -> None:
    """See that a command and its flags exist."""
    (meant,) = [each for each in LEAVES if f"{' '.join(call)} ".startswith(f"{each} ")]
    known = {flag for each in LEAVES[meant].params for flag in each.opts + each.secondary_opts}
    given = {word.partition("=")[0] for word in call if re.match(r"--?[a-z]", word)}
    assert given <= known | {"--help"}, call


@pytest.mark.parametrize("name", LEAVES)
def test_a_command_shows_examples_of_itself_with_flags_that_it_has(name: str) -> None:
    calls = [call for line in examples(LEAVES[name]).splitlines() if line for call in own(line)]
    assert any(" ".join(call).startswith(name) for call in calls)
    for call in calls:
        check_flags(call)
    shown = examples(LEAVES[name])
    named = re.findall(r"-n (accelbind\S*)|accelbind-webhook\.(\S+)\.svc", shown)
    assert {first or second for first, second in named} <= {NAMESPACE}
