"""The commands in the documentation exist: programs, commands, flags, files, links."""

import re
from pathlib import Path

import pytest
import yaml

from accelbind.cli import main
from accelbind.doctor import command as doctor
from tests.accelbind.running import run
from tests.docs import blocks
from tests.docs.blocks import commands
from tests.docs.test_help import check_flags, own
from tests.support import REPOSITORY

PAGES = blocks.pages()
FOLDERS = ("docs", "examples", "manifests", "simulator", "tests")
"""Of which the commands name files."""


@pytest.mark.parametrize("page", PAGES)
def test_blocks_are_in_languages_that_are_known(page: str) -> None:
    assert set(blocks.languages(page)) <= {*blocks.SHELL, *blocks.INERT}


@pytest.mark.parametrize("page", [each for each in PAGES if commands(each)])
def test_commands_name_commands_flags_and_files_that_exist(page: str) -> None:
    for one in commands(page):
        for call in own(one.plain) if re.search(r"\baccelbind [a-z]", one.plain) else ():
            check_flags(call)
        for path in re.findall(rf"(?<=[\s=:])(?:{'|'.join(FOLDERS)})/[\w./-]+", one.text):
            assert (REPOSITORY / path).exists(), f"{one.page}:{one.line}: {path}"


def named_within_text() -> dict[str, set[str]]:
    """Return the commands that are named within sentences, and the flags shown with them."""
    found: dict[str, set[str]] = {}
    for page in PAGES:
        if page == "docs/reference.md" or page.startswith("docs/commands/"):  # generated
            continue
        for span in blocks.inline_commands(page):
            words = span.split()[1:]
            names = [word for word in words if re.fullmatch(r"[a-z]+(-[a-z]+)*", word)]
            if names and names[0] == "has":  # a message of accelbind
                continue
            groups = {"certs", "fpga", "bitstream", "names", "check", "dra"}
            depth = 2 if names and names[0] in groups else 1
            name = " ".join(words[: min(depth, len(names))])
            flags = {re.split(r"[=\[]", word)[0] for word in words if word.startswith("--")}
            found.setdefault(name, set()).update(flags)
    return found


def test_commands_within_sentences_exist_with_their_flags(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "200")
    for name, flags in named_within_text().items():
        assert main([*name.split(), "--help"]) == 0, f"accelbind {name}"
        shown = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
        assert flags - shown == set(), name


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
        files = (
            [REPOSITORY / "examples/workloads/gpu.yaml"] if each.get("pass_filenames", True) else []
        )
        done = run(*each["entry"].split()[1:], *words, *files)
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
