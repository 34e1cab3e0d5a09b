"""Which manifests `explain -f`, `check mappings --pods` and `demo -f` read: all that are named."""

import io
import json
import sys
from pathlib import Path

import pytest

from accelbind import manifests
from accelbind.manifests import read_pods, yaml_text
from services.process.errors import InvalidInput, InvalidManifest


def pod(name: str) -> str:
    return json.dumps({"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": []}})


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


@pytest.mark.usefixtures("files")
def test_every_file_that_is_named_is_read() -> None:
    paths = [Path(each) for each in ("b.json", "-", "folder", "a.yaml")]
    assert [each.name for each in read_pods(paths)] == ["b", "in", "d", "c1", "c2", "a"]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("service.yaml", r"service.yaml contains no pod, and no template"),
        ("services", r"services contains no pod, and no template"),
        ("empty", r"empty has no .yaml, .yml or .json file"),
        ("absent.yaml", r"absent.yaml: No such file or directory"),
        ("-", r"stdin \(-\) can be read only once"),
    ],
)
@pytest.mark.usefixtures("files")
def test_a_path_without_pods_is_never_ignored(path: str, problem: str) -> None:
    before = Path("-" if path == "-" else "a.yaml")
    with pytest.raises(InvalidInput, match=f"^{problem}"):
        read_pods([before, Path(path)])


def test_a_file_that_can_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    with pytest.raises(InvalidManifest, match=r"loop\.yaml: Too many levels of symbolic links"):
        read_pods([tmp_path])
    (tmp_path / "loop.yaml").unlink()
    (tmp_path / "long.yaml").write_text(pod("a"))
    monkeypatch.setattr(manifests, "MAX_BYTES", 10)
    with pytest.raises(InvalidManifest, match=r"long\.yaml is larger than 0 MiB: split it"):
        read_pods([tmp_path])


def test_yaml_loses_nothing_in_a_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="latin-1"))
    assert yaml_text({"a": "é…"}) == 'a: "\\xE9\\u2026"\n'
