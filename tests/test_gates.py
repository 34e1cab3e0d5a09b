"""The rules of the house that no linter knows."""

import ast
import configparser
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support import REPOSITORY, require

ROOMS = ("accelbind", "webhook", "plugin", "certs", "services", "simulator")
LONGEST_MODULE = 400
LONGEST = {"services/node/ledger.py": 500}
"""All rules for a node's devices are in one module."""
LONGEST_TABLE_OF_TESTS = 800
LONGEST_FUNCTION = 60
"""Lines below its signature and docstring: the signature of a command is a list of its flags."""
LOCKS = ("requirements.lock", "requirements-dev.lock")


def python_files(*folders: str) -> Iterator[Path]:
    """Our own modules in these folders of the repository."""
    for folder in folders:
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            if not path.name.endswith(("_pb2.py", "_pb2_grpc.py")):
                yield path


def named(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def test_modules_stay_short() -> None:
    lengths = {
        named(path): len(path.read_text().splitlines()) for path in python_files(*ROOMS, "tests")
    }
    too_long = {
        name: lines
        for name, lines in lengths.items()
        if lines
        > (
            LONGEST_TABLE_OF_TESTS
            if name.startswith("tests/")
            else LONGEST.get(name, LONGEST_MODULE)
        )
    }
    assert too_long == {}


def test_functions_stay_short() -> None:
    too_long = {}
    for path in python_files(*ROOMS, "tools"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) and node.body[1:] else node.body
                lines = (body[-1].end_lineno or 0) - body[0].lineno + 1
                if lines > LONGEST_FUNCTION:
                    too_long[f"{named(path)}:{node.name}"] = lines
    assert too_long == {}


def test_tests_look_until_a_deadline_and_do_not_sleep() -> None:
    """Nothing waits for a fixed time; the moment of a fault may be chance's, with a word on it."""
    sleeping = re.compile(r"(?<!def )\bsleep\((?!0\))(?!.*\)  # \w)")
    found = [
        f"{named(path)}:{number}"
        for path in python_files("tests")
        if path.name not in {"support.py", "test_gates.py"}
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if sleeping.search(line)
    ]
    assert found == []


GIVEN = re.compile(
    r"# (?:noqa|type: ignore)\b(?:: ([A-Z]+\d+(?:, ?[A-Z]+\d+)*)|\[([a-z-, ]+)\])?( - \w)?"
)


def test_exceptions_from_the_gates_carry_a_reason() -> None:
    """In a file the first exception of a kind says why, in its line or just above it."""
    found = []
    for path in python_files(*ROOMS, "tests", "tools"):
        lines = [] if path.name == "test_gates.py" else path.read_text().splitlines()
        explained: set[str] = set()
        silent: set[str] = set()
        for number, line in enumerate(lines):
            for match in GIVEN.finditer(line):
                above = any(one.lstrip().startswith("# ") for one in lines[number - 3 : number])
                reason = match[3] or above or "type: ignore[" in line
                (explained if reason else silent).update(_codes(match) or ["all"])
        found += [f"{named(path)}: {code}" for code in sorted(silent - explained)]
    assert found == []


def _codes(match: re.Match[str]) -> list[str]:
    return re.findall(r"[\w-]+", " ".join(part for part in match.groups()[:2] if part))


def _locked(lock: str) -> dict[str, tuple[str, int]]:
    """Package → version and number of hashes."""
    text = (REPOSITORY / lock).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    locked: dict[str, tuple[str, int]] = {}
    for line in lines:
        match = re.match(r"([A-Za-z0-9._-]+)==(\S+)", line)
        assert match, f"{lock}: {line[:60]!r} is not a pinned package"
        locked[canonicalize_name(match[1])] = (match[2], line.count("--hash=sha256:"))
    return locked


@pytest.mark.parametrize("lock", LOCKS)
def test_locks_pin_every_package_with_hashes_and_name_no_host(lock: str) -> None:
    text = (REPOSITORY / lock).read_text()
    assert re.findall(r"\w+://|--(?:extra-)?index-url|--find-links|--trusted-host| @ ", text) == []
    assert {name for name, (_, hashes) in _locked(lock).items() if not hashes} == set()


def test_locks_are_in_step_with_the_project() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    run, develop = (_locked(lock) for lock in LOCKS)
    asked = {
        "requirements.lock": (run, project["dependencies"]),
        "requirements-dev.lock": (
            develop,
            project["dependencies"] + project["optional-dependencies"]["dev"],
        ),
    }
    unmet = []
    for lock, (locked, requirements) in asked.items():
        for requirement in map(Requirement, requirements):
            version = locked.get(canonicalize_name(requirement.name), ("", 0))[0]
            if not version or not requirement.specifier.contains(version, prereleases=True):
                unmet.append(f"{lock}: {requirement}")
    assert unmet == []
    assert {name: pin for name, pin in run.items() if develop.get(name) != pin} == {}


def test_the_lists_of_pure_modules_agree() -> None:
    """The coverage gate counts all modules that the linter holds to be pure."""
    contracts = configparser.ConfigParser()
    contracts.read(REPOSITORY / ".importlinter")
    pure = contracts["importlinter:contract:pure"]["source_modules"].split()
    tool = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]
    counted = {
        named(path) for glob in tool["coverage"]["run"]["include"] for path in REPOSITORY.glob(glob)
    }
    assert {f"{module.replace('.', '/')}.py" for module in pure} - counted == set()


def test_the_repository_names_no_path_of_somebodys_machine() -> None:
    if not (REPOSITORY / ".git").exists():
        pytest.skip("this is not a git clone")
    private = r"(^|[^A-Za-z0-9_.<-])/(work/[A-Za-z0-9_]|home/[A-Za-z0-9_]+/[A-Za-z0-9_]|root/\.)"
    search = ("grep", "--extended-regexp", "--text", "-e", private, "-e", "file:///")
    done = subprocess.run(
        [require("git"), *search, "--", ".", ":!tests/test_gates.py"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")


def test_proto_stubs_are_what_their_files_generate(tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc")
    sources = sorted((REPOSITORY / "services" / "kubelet").glob("*.proto"))
    names = [source.relative_to(REPOSITORY).as_posix() for source in sources]
    where = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    assert protoc.main(["protoc", f"-I{REPOSITORY}", *where, *names]) == 0
    generated = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert len(generated) == 3 * len(sources) > 0
    different = [
        path.name
        for path in generated
        if path.read_text() != (REPOSITORY / path.relative_to(tmp_path)).read_text()
    ]
    assert different == []
