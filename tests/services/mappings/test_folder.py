import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from structlog.testing import capture_logs

from services.mappings import folder
from services.mappings.folder import FolderSnapshot, FolderSource, load_folder
from services.process.errors import ExternalFailure
from tests.services import building
from tests.support import background, eventually_async


def function(name: str = "nlb0") -> str:
    return yaml.safe_dump(building.function(name, "af", namespace="default"))


def load(directory: Path, **files: str | bytes) -> FolderSnapshot:
    for name, content in files.items():
        path = directory / name.replace("__", ".")
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return load_folder(directory)


def served(snapshot: FolderSnapshot) -> list[str]:
    index = snapshot.index
    return sorted(
        f"{namespace}/{name}"
        for namespace in index.namespaces
        for name in index.namespace(namespace).by_name
    )


def test_files_of_all_suffixes_are_read_and_others_are_not(tmp_path: Path) -> None:
    snapshot = load(
        tmp_path,
        a__yaml=function("a"),
        b__yml=function("b"),
        C__YAML=function("c"),
        d__json=json.dumps({"kind": "List", "items": []}),
        e__txt=function("e"),
        __hidden__yaml=function("f"),
    )
    (tmp_path / "sub").mkdir()
    assert served(snapshot) == ["default/a", "default/b", "default/c"]
    assert snapshot.problems == ()


def test_a_bad_document_is_named_and_skipped_and_the_rest_serve(tmp_path: Path) -> None:
    text = "---\n".join(
        [
            function("good"),
            "spec: [open\n",
            function("bad").replace("mode: af", "mode: orchestrated"),
            "kind: Namespace\napiVersion: v1\n",
            "just text\n",
            "kind: []\n",
            function("fine"),
        ]
    )
    snapshot = load(tmp_path, m__yaml=text)
    assert served(snapshot) == ["default/fine", "default/good"]
    broken, namespace, scalar, unnamed, invalid = snapshot.problems
    assert (
        "kind must be AcceleratorFunction, FpgaRegion or Accelerator, not of type list" in unnamed
    )
    assert broken.startswith("m.yaml, line 12 (document 2): not YAML: ")
    assert invalid.startswith(
        "m.yaml, line 13 (document 3): AcceleratorFunction default/bad: spec.mode must be"
    )
    assert namespace.startswith("m.yaml, line 23 (document 4): kind must be")
    assert scalar.startswith("m.yaml, line 26 (document 5): a mapping must be an object")
    assert snapshot.index.namespace("default").rejected["bad"] == invalid


def test_lists_hold_mappings_too(tmp_path: Path) -> None:
    item = building.function("nlb0", "region", namespace="lab")
    listed = {"apiVersion": "v1", "kind": "List", "items": [item, {}, 3]}
    snapshot = load(tmp_path, a__json=json.dumps(listed))
    assert served(snapshot) == ["lab/nlb0"]
    assert len(snapshot.problems) == 2
    assert snapshot.problems[0].startswith("a.json, line 1 (document 1), item 2: ")
    snapshot = load(tmp_path, a__json='{"kind": "List", "items": {"a": 1}}')
    assert snapshot.problems == ("a.json, line 1 (document 1): items of a List must be a list",)


def test_an_accelerator_with_an_unknown_field_is_none(tmp_path: Path) -> None:
    spec = "{target: {resource: a/b, count: 2}, nodeselector: {x: y}}"
    head = "apiVersion: accelbind.dev/v1alpha1\nkind: Accelerator\nmetadata: {name: a}\n"
    good = f"{head}spec: {spec}\n".replace("name: a", "name: b").replace(
        "nodeselector", "nodeSelector"
    )
    snapshot = load(tmp_path, a__yaml=f"{head}spec: {spec}\n---\n{good}")
    assert snapshot.index.namespace("default").accelerators.by_name["b"].resolution.count == 2
    (problem,) = snapshot.problems
    assert problem.startswith("a.yaml, line 1 (document 1): Accelerator default/a: there is no ")
    assert problem.endswith('field "spec.nodeselector"')
    assert "a" in snapshot.index.namespace("default").accelerators.rejected


def test_unreadable_files_are_named_and_the_others_serve(tmp_path: Path) -> None:
    (tmp_path / "gone.yaml").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    (tmp_path / "folder.yaml").mkdir()
    os.mkfifo(tmp_path / "pipe.yaml")
    snapshot = load(tmp_path, z__yaml=function())
    assert served(snapshot) == ["default/nlb0"]
    named = [problem.partition(":")[0] for problem in snapshot.unread]
    assert named == ["folder.yaml", "gone.yaml", "loop.yaml", "pipe.yaml"]


def test_all_files_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "MAX_BYTES", len(function("a")) + 10)
    snapshot = load(tmp_path, a__yaml=function("a"), b__yaml=function("b"))
    assert served(snapshot) == ["default/a"]
    assert snapshot.unread == ("b.yaml: the folder holds more than 0 MiB of YAML",)


def test_a_folder_that_is_missing_or_a_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ExternalFailure, match="No such file or directory"):
        load_folder(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(ExternalFailure, match="Not a directory"):
        FolderSource(tmp_path / "file").load()


@contextlib.asynccontextmanager
async def following(directory: Path) -> AsyncIterator[FolderSource]:
    source = FolderSource(directory, interval=0.005)
    source.load()
    async with background(source.follow()):
        yield source


def names(source: FolderSource) -> list[str]:
    return served(source.snapshot)


async def shows(source: FolderSource, wanted: list[str]) -> None:
    await eventually_async(lambda: names(source) == wanted, what=f"{wanted} being served")
    assert source.index is source.snapshot.index


async def test_changes_are_followed_also_in_a_mounted_configmap(tmp_path: Path) -> None:
    def publish(version: str, text: str) -> None:
        (tmp_path / version).mkdir()
        (tmp_path / version / "m.yaml").write_text(text)
        (tmp_path / "..data_tmp").symlink_to(version)
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")

    publish("..v1", function("one"))
    (tmp_path / "m.yaml").symlink_to("..data/m.yaml")

    async with following(tmp_path) as source:
        old = source.index
        assert names(source) == ["default/one"]
        publish("..v2", function("two"))
        await shows(source, ["default/two"])
        (tmp_path / "new").write_text(function("six"))
        (tmp_path / "new").replace(tmp_path / "b.yaml")
        await shows(source, ["default/six", "default/two"])
        (tmp_path / "b.yaml").unlink()
        await shows(source, ["default/two"])
        assert list(old.namespace("default").by_name) == ["one"]


async def test_a_folder_that_vanishes_leaves_its_mappings_and_grows_old(tmp_path: Path) -> None:
    directory = tmp_path / "mappings"
    directory.mkdir()
    (directory / "a.yaml").write_text(function("one"))

    async with following(directory) as source:
        with capture_logs() as logs:
            directory.rename(tmp_path / "away")
            await eventually_async(lambda: source.error)
            await eventually_async(lambda: source.age > 0.05)
            assert names(source) == ["default/one"]
            directory.mkdir()
            (directory / "a.yaml").write_text(function("two"))
            await shows(source, ["default/two"])
            await eventually_async(lambda: not source.error)
            await eventually_async(lambda: source.age < 0.05)
        told = [line["event"] for line in logs if line["log_level"] != "debug"]
        assert told.count("mappings not loaded, the previous ones stay in use") == 1
        assert "the folder of mappings can be read again" in told
