"""Commands in the documentation and in `--help` exist: commands, flags, files, links."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from accelbind.doctor import command as doctor
from tests.accelbind.running import commands_by_words, run
from tests.docs import blocks
from tests.docs.blocks import commands
from tests.manifests.rendering import NAMESPACE
from tests.support import REPOSITORY

PAGES = blocks.pages()
FOLDERS = ("docs", "examples", "manifests", "simulator", "tests")
"""Of which the commands name files."""

LEAVES = {f"accelbind {words}": command for words, command in commands_by_words().items()}


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


@pytest.mark.parametrize("page", PAGES)
def test_commands_name_commands_flags_and_files_that_exist(page: str) -> None:
    assert set(blocks.languages(page)) <= {*blocks.SHELL, *blocks.INERT}
    for one in commands(page):
        for call in own(one.plain) if re.search(r"\baccelbind [a-z]", one.plain) else ():
            check_flags(call)
        for path in re.findall(rf"(?<=[\s=:])(?:{'|'.join(FOLDERS)})/[\w./-]+", one.text):
            assert (REPOSITORY / path).exists(), f"{one.page}:{one.line}: {path}"


def test_commands_within_sentences_exist_with_their_flags() -> None:
    for page in PAGES:
        for span in blocks.inline_commands(page):
            names_a_group = any(each.startswith(f"{span} ") for each in LEAVES)
            if not names_a_group:
                check_flags(span.split())


def test_hooks_of_pre_commit_pass_on_the_examples_with_the_arguments_of_the_page() -> None:
    hooks = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text())
    page = (REPOSITORY / "docs" / "gitops.md").read_text()
    (block,) = re.findall(r"```yaml\n(repos:.*?)```", page, re.DOTALL)
    given = {each["id"]: each["args"] for each in yaml.safe_load(block)["repos"][0]["hooks"]}
    assert given.keys() == {each["id"] for each in hooks}
    folders = {"names": "examples/names", "workloads": "examples/workloads"}
    folders["device-types"] = "manifests/device-types"
    for each in hooks:
        words = [
            REPOSITORY / folders[word] if word in folders else word for word in given[each["id"]]
        ]
        assert not each["pass_filenames"]  # some files have no pods
        done = run(*each["entry"].split()[1:], *words)
        assert done.returncode == 0, done.stdout + done.stderr


CHECK = re.compile(r"(?:`|--only )((?:cluster|node)\.[a-z][a-z.-]*)(?=[`\s])")


def test_checks_of_the_doctor_that_are_named_exist() -> None:
    named = {
        check
        for page in PAGES
        for check in CHECK.findall((REPOSITORY / page).read_text())
        if page != "CHANGELOG.md"
    }
    known = [*doctor.NODE, *doctor.CLUSTER, "cluster.api-server"]
    assert len(named) > 5
    assert [each for each in named if not any(name.startswith(each) for name in known)] == []


def test_links_lead_somewhere() -> None:
    dead = []
    for page in PAGES:
        text = re.sub(r"`[^`\n]*`", "", (REPOSITORY / page).read_text())  # patterns look like links
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = target.partition("#")
            if "://" in target:
                continue
            file = (REPOSITORY / page).parent / path if path else REPOSITORY / page
            if not file.exists() or (anchor and anchor not in anchors(file)):
                dead.append(f"{page}: {target}")
    assert dead == []


def anchors(file: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def test_every_page_can_be_found_from_the_readme() -> None:
    known, todo = set[Path](), [REPOSITORY / "README.md"]
    while todo:
        file = todo.pop().resolve()
        if file not in known and file.suffix == ".md" and file.exists():
            known.add(file)
            links = re.findall(r"\]\(([^)#:\s]+)[^)]*\)", file.read_text())
            todo += [file.parent / link for link in links]
    assert {(REPOSITORY / page).resolve() for page in PAGES} - known == set()


@pytest.mark.parametrize("name", LEAVES)
def test_a_command_shows_examples_of_itself_with_flags_that_it_has(name: str) -> None:
    calls = [call for line in examples(LEAVES[name]).splitlines() if line for call in own(line)]
    assert any(" ".join(call).startswith(name) for call in calls)
    for call in calls:
        check_flags(call)
    shown = examples(LEAVES[name])
    named = re.findall(r"-n (accelbind\S*)|accelbind-webhook\.(\S+)\.svc", shown)
    assert {first or second for first, second in named} <= {NAMESPACE}
