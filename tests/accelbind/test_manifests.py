"""Which manifests `explain -f`, `check mappings --pods` and `demo -f` read: all that are named."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from accelbind import manifests
from accelbind.cli import main
from accelbind.manifests import read_pods
from services.process.errors import InvalidManifest
from simulator.demo import own
from tests.support import REPOSITORY

MAPPINGS = REPOSITORY / "examples" / "mappings"


def pod(name: str) -> str:
    """A pod that asks for a name that is not mapped, so that every command reports it."""
    container = {"name": "c", "resources": {"limits": {"fpga.intel.com/unknown": 1}}}
    spec = {"containers": [container]}
    return json.dumps({"kind": "Pod", "metadata": {"name": name}, "spec": spec})


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """a.yaml, b.json, a folder with two pods and other files, and a pod on stdin."""
    (tmp_path / "a.yaml").write_text(pod("a"))
    (tmp_path / "b.json").write_text(pod("b"))
    (tmp_path / "folder" / "below").mkdir(parents=True)
    (tmp_path / "folder" / "c.yml").write_text(f"{pod('c1')}\n---\n{pod('c2')}")
    (tmp_path / "folder" / "service.yaml").write_text("kind: Service")
    (tmp_path / "folder" / "README.md").write_text("no manifest")
    (tmp_path / "folder" / "below" / "d.yaml").write_text(pod("d"))
    (tmp_path / "service.yaml").write_text("kind: Service")
    (tmp_path / "empty").mkdir()
    (tmp_path / "services").mkdir()
    (tmp_path / "services" / "s.yaml").write_text("kind: Service")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(pod("in").encode())))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def explained(capsys: pytest.CaptureFixture[str], paths: list[str]) -> list[str]:
    flags = [word for path in paths for word in ("-f", path)]
    assert main(["explain", *flags, "--mappings", str(MAPPINGS), "-o", "json"]) == 1
    return [each["pod"] for each in json.loads(capsys.readouterr().out)["items"]]


def checked(capsys: pytest.CaptureFixture[str], paths: list[str]) -> list[str]:
    flags = [word for path in paths for word in ("--pods", path)]
    assert main(["check", "mappings", str(MAPPINGS), *flags, "-o", "json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    return [each["name"].split()[1] for each in findings if each["code"] == "unmapped"]


def planned(_: object, paths: list[str]) -> list[str]:
    found = own.read(read_pods([Path(path) for path in paths]), MAPPINGS)
    return [each.name for each in found.world.pods]


@pytest.mark.parametrize("read", [explained, checked, planned])
@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["folder"], ["c1", "c2"]),
        (["b.json", "-", "folder", "a.yaml"], ["b", "in", "c1", "c2", "a"]),
    ],
)
@pytest.mark.usefixtures("files")
def test_every_file_that_is_named_is_read(
    capsys: pytest.CaptureFixture[str],
    read: Callable[[pytest.CaptureFixture[str], list[str]], list[str]],
    paths: list[str],
    names: list[str],
) -> None:
    assert sorted(read(capsys, paths)) == sorted(names)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("service.yaml", "service.yaml contains nothing that makes pods"),
        ("services", "services contains nothing that makes pods"),
        ("empty", "empty has no .yaml, .yml or .json file"),
        ("absent.yaml", "absent.yaml: No such file or directory"),
        ("-", "stdin (-) can be read only once"),
    ],
)
@pytest.mark.usefixtures("files")
def test_a_path_without_pods_is_never_ignored(
    capsys: pytest.CaptureFixture[str], path: str, problem: str
) -> None:
    command = ["explain", "--mappings", str(MAPPINGS), "-f"]
    before = "-" if path == "-" else "a.yaml"
    assert main([*command, before, command[-1], path]) == 2
    assert capsys.readouterr().err.startswith(f"error: {problem}")


def test_a_file_that_can_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    with pytest.raises(InvalidManifest, match=r"loop\.yaml: Too many levels of symbolic links"):
        read_pods([tmp_path])
    (tmp_path / "loop.yaml").unlink()
    (tmp_path / "long.yaml").write_text(pod("a"))
    monkeypatch.setattr(manifests, "MAX_BYTES", 100)
    with pytest.raises(InvalidManifest, match=r"long\.yaml is larger than 0 MiB: split it"):
        read_pods([tmp_path])
