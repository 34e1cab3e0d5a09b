"""`accelbind check mappings`, on folders and on the API server stand-in."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from simulator.apiserver.standin import ApiServerStandIn
from tests.accelbind.running import Done, run, run_process
from tests.services.building import AF_NLB0, REGION, accelerator, region
from tests.simulator.apiserver.support import function, node_with, pod

Folder = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Make a folder of mappings."""

    def make(*objects: dict[str, Any]) -> Path:
        (tmp_path / "maps").mkdir()
        (tmp_path / "maps" / "m.yaml").write_text(yaml.safe_dump_all(objects))
        return tmp_path / "maps"

    return make


def check(*arguments: str | Path, env: dict[str, str] | None = None) -> Done:
    return run("check", "mappings", *arguments, env=env)


def found(*arguments: str | Path) -> tuple[int, list[tuple[str, str, str]]]:
    done = check(*arguments, "-o", "json")
    report = json.loads(done.stdout)
    listed = [(one["code"], one["namespace"], one["name"]) for one in report["findings"]]
    return done.returncode, listed


def test_a_good_folder_is_fine(folder: Folder) -> None:
    done = check(folder(function("a"), region("b")))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "2 mappings in 1 namespace: no findings",
        "not checked: whether nodes have the resources (see --nodes)",
        "not checked: whether pods ask for names that are not mapped (see --pods)",
    ]


def test_each_mapping_is_listed_with_its_resource(folder: Folder) -> None:
    maps = folder(region("b"), function("a"), function("c", mode="no"))
    head, *rows = check(maps, "--list").stdout.splitlines()
    assert head.split() == ["NAMESPACE", "NAME", "KIND", "RESOURCE"]
    wanted = [
        ["default", "a", "AcceleratorFunction", AF_NLB0.partition("/")[2]],
        ["default", "b", "FpgaRegion", REGION.partition("/")[2]],
    ]
    assert [row.split() for row in rows[:2]] == wanted
    listed = json.loads(check(maps, "-o", "json").stdout)["resources"]
    assert [[*row.values()] for row in listed] == wanted


def test_findings_are_a_table(folder: Folder) -> None:
    maps = folder(
        function("a"), function("b"), function("c", mode="no"), function("d"), region("d")
    )
    done = check(maps)
    assert done.returncode == 1
    head, *rows, last, _, _ = done.stdout.splitlines()
    assert head.split() == ["FINDING", "NAMESPACE", "OF", "WHAT"]
    what = head.index("WHAT")
    assert [row[:what].split() for row in rows] == [
        ["invalid", "default", "AcceleratorFunction", "c"],
        ["clash", "default", "d"],
        ["duplicate", "default", "AcceleratorFunction", "a"],
    ]
    assert rows[0][what:].startswith("m.yaml, line ")
    assert 'spec.mode must be af or region, not "no"' in rows[0]
    assert last == "2 mappings in 1 namespace: 3 findings"


def test_equal_findings_share_a_row(folder: Folder, tmp_path: Path) -> None:
    names = [accelerator("gpu", "", target={"resource": "nvidia.com/gpu"}) for _ in range(5)]
    for number, each in enumerate(names):
        each["metadata"]["namespace"] = f"team-{number}"
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump(node_with("n", {"cpu": "1"})))
    flags = (folder(*names), "--nodes", tmp_path / "nodes.yaml")
    _, row, last, _ = check(*flags).stdout.splitlines()
    assert row.split("   ") == [
        *("never-advertised", "team-0, team-1, team-2 and 2 more", "Accelerator gpu"),
        "no node has advertised nvidia.com/gpu: is there a node with it?",
    ]
    assert last == "5 mappings in 5 namespaces: 5 findings"
    assert len(found(*flags)[1]) == 5


def test_fields_that_an_api_server_would_refuse_are_found_in_a_folder(folder: Folder) -> None:
    maps = folder(
        accelerator("a", "a/x", target={"resource": "a/x", "count": "2"}, namespace="team"),
        accelerator("b", "a/y", nodeselector={}),
        accelerator("c", "a/z", runtimeClassName=""),
        function("d") | {"data": {}},
    )
    assert found(maps) == (
        1,
        [
            ("invalid", "default", "Accelerator b"),
            ("invalid", "default", "Accelerator c"),
            ("schema", "team", "Accelerator a"),
            ("schema", "default", "AcceleratorFunction d"),
        ],
    )
    assert found(maps, "-n", "team") == (1, [("schema", "team", "Accelerator a")])


def test_a_file_that_is_too_large_is_no_answer(folder: Folder) -> None:
    maps = folder(function("a"))
    with (maps / "large.yaml").open("wb") as file:
        file.truncate(40 * 1024**2)
    done = check(maps)
    assert (done.returncode, done.stdout) == (2, "")
    assert "large.yaml: the folder holds more than 32 MiB of YAML" in done.stderr


def test_names_of_a_shared_namespace_are_known_where_one_namespace_is_checked(
    folder: Folder, tmp_path: Path
) -> None:
    shared = accelerator("gpu", "nvidia.com/gpu", namespace="lib")
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(pod("p", "accelbind.dev/gpu")))
    maps, pods = folder(shared, function("a")), ("--pods", tmp_path / "pod.yaml")
    unmapped = (1, [("unmapped", "default", "Pod p")])
    assert found(maps, *pods, "-n", "default") == unmapped
    done = check(maps, *pods, "-n", "default", "--shared-namespace", "lib")
    assert done.stdout.splitlines()[0] == "1 mapping in 1 namespace: no findings"


def test_nodes_and_pods_of_files_count(folder: Folder, tmp_path: Path) -> None:
    maps = folder(function("a"), region("gone"), function("never", interfaceId="0" * 32))
    nodes = tmp_path / "nodes.json"
    items = [node_with("n", {AF_NLB0: "1", REGION: "0", "cpu": "4"})]
    nodes.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    pods = tmp_path / "pods.yaml"
    template = pod("t", "fpga.intel.com/a")
    template["spec"]["containers"][0]["resources"]["limits"]["fpga.intel.com/b"] = 1
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "t"}}
    pods.write_text(yaml.safe_dump(job | {"spec": {"template": template}}))
    expected = [
        ("unmapped", "default", "Job t"),
        ("never-advertised", "default", "AcceleratorFunction never"),
        ("dangling", "default", "FpgaRegion gone"),
    ]
    assert found(maps, "--nodes", nodes, "--pods", pods) == (1, expected)
    assert found(maps, "--nodes", nodes, "--pods", pods, "-n", "team") == (
        1,
        [("unmapped", "team", "Job t")] * 2,
    )
    assert found(maps, "--nodes", nodes)[1] == expected[1:]
    assert found(maps, "--pods", pods)[1] == expected[:1]
    other = [("misspelt", "default", "Job t")] * 2
    assert found(maps, "--pods", pods, "--domain", "xfpga.intel.com") == (1, other)


async def test_a_cluster_is_looked_at(tmp_path: Path) -> None:
    asking = tmp_path / "pod.json"
    asking.write_text(json.dumps(pod("p", "fpga.intel.com/aa")))

    async def command(*words: str | Path) -> Done:
        return await asyncio.to_thread(run_process, *words, "--api-server", api.address)

    async with ApiServerStandIn(tmp_path) as api:
        api.put(function("a"))
        with api.faults.failing(403, matches=lambda request: request.path.endswith("/nodes")):
            done = await command("check", "mappings")
        assert (done.returncode, "not checked: nodes: " in done.stdout) == (2, True)
        api.put(node_with("n", {AF_NLB0: "1"}))
        done = await command("check", "mappings")
        assert done == (0, "1 mapping in 1 namespace: no findings\n", "")
        done = await command("explain", "-f", asking)
        assert (done.returncode, "admitted unchanged" in done.stdout) == (0, True)  # no webhook
