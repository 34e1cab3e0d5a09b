"""How `accelbind doctor` shows results to people: not all at once, and one cause once."""

import json
from pathlib import Path

import pytest

from accelbind.cli import main
from accelbind.doctor.model import Result, failed
from accelbind.doctor.show import lines
from tests.accelbind.kubeconfigs import write_config
from tests.support import require


def test_of_many_findings_the_first_are_shown() -> None:
    found = Result("check.0", "Question?", [failed(f"device {n}") for n in range(23)])
    assert [line for _, line in lines([found])][:-2] == [
        "FAILED   check.0  Question?",
        *(f"         failed: device {n}" for n in range(20)),
        "         … and 3 more (-o json lists them)",
    ]


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
    assert len(out.splitlines()) == 5
    assert main([*command, "--only", "cluster.pools"]) == 2
    out = capsys.readouterr().out
    assert (out.count(cause), out.splitlines()[-1]) == (1, "1 check: 1 unseen")
    assert main([*command, "-o", "json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert document["counts"]["unseen"] == len(document["checks"]) == 1
