"""How `accelbind doctor` shows results to people: one cause is one finding."""

import json
from pathlib import Path

import pytest

from accelbind.cli import main
from accelbind.doctor.model import Line, Result, failed, unseen
from accelbind.doctor.show import lines
from tests.accelbind.kubeconfigs import write_config
from tests.support import require


def shown(*results: Result, verbose: bool = False) -> list[str]:
    return [line for _, line in lines(results, verbose=verbose)]


def result(number: int, *found: Line) -> Result:
    return Result(f"check.{number}", f"Question {number}?", list(found))


SAME = [result(number, unseen("no answer", "see check.0")) for number in range(3)]


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        (
            SAME,
            [
                "unseen   check.0  and 2 more checks (--verbose lists them)",
                "         unseen: no answer",
                "         → see check.0",
            ],
        ),
        (
            [result(0, *(failed(f"device {n}", "") for n in range(23)))],
            [
                "FAILED   check.0  Question 0?",
                *(f"         failed: device {n}" for n in range(20)),
                "         … and 3 more (--verbose lists them)",
            ],
        ),
    ],
)
def test_findings_with_one_cause_are_one(results: list[Result], expected: list[str]) -> None:
    assert shown(*results)[:-2] == expected


def test_verbose_shows_each_check_and_each_line() -> None:
    many = [failed(f"device {n}") for n in range(23)]
    verbose = shown(*SAME, result(3, *many), verbose=True)
    assert [line for line in verbose if "(--verbose" in line] == []
    assert sum("no answer" in line for line in verbose) == 3
    assert sum("failed: device " in line for line in verbose) == 23


@pytest.mark.parametrize(
    ("exists", "cause"),
    [
        (True, "connect: connection refused"),
        (False, "kubeconfig does not exist"),
    ],
)
def test_a_wrong_kubeconfig_is_one_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, exists: bool, cause: str
) -> None:
    require("kubectl")
    path = write_config(tmp_path, {"server": "https://127.0.0.1:1"})
    if not exists:
        path.unlink()
    command = ["doctor", "--cluster", "--kubeconfig", str(path)]
    assert main(command) == 2
    out = capsys.readouterr().out
    assert (out.count(cause), out.count("→ check --kube"), "\\n" in out) == (1, 1, False)
    assert len(out.splitlines()) == 7
    assert main([*command, "--only", "cluster.pools"]) == 2
    out = capsys.readouterr().out
    assert (out.count(cause), out.splitlines()[-1]) == (1, "2 checks: 2 unseen")
    assert main([*command, "-o", "json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert document["counts"]["unseen"] == len(document["checks"]) > 5
