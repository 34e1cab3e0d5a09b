"""What the driver promised on the disk is there again after somebody removed or changed it."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from plugin.process import Plugin
from services.devices.held import HELD
from simulator.devices import DeviceTree, vector_engine
from tests.damages import link, remove_folder, replace_by_folder, restored, truncate, written
from tests.plugin.dra.support import NEVER, Bed, claim, config, parts, result
from tests.plugin.support import is_ready, unready
from tests.services.node.support import shown
from tests.support import eventually_async

OTHER = "nec-vector-engine-0000-02-00-0"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def hide(path: Path) -> None:
    path.chmod(0o600)


DAMAGES = (Path.unlink, truncate, cut, hide, link, replace_by_folder, remove_folder)


@dataclass
class Node:
    """A node with a claim of an FPGA and one of a device type, and the contents of their files."""

    bed: Bed
    tree: DeviceTree
    claims: tuple[dict[str, Any], ...]
    types: Path

    def path(self, each: dict[str, Any]) -> Path:
        return self.bed.folder / f"cdi/accelbind-claim-{each['metadata']['uid']}.json"

    @property
    def paths(self) -> list[Path]:
        return [self.path(each) for each in self.claims]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Plugin]:
        async with self.bed.serving(device_types=self.types) as plugin:
            yield plugin

    @asynccontextmanager
    async def prepared(self) -> AsyncIterator[Plugin]:
        """The driver, once both claims are prepared."""
        async with self.running() as plugin:
            for each in self.claims:
                await self.bed.ready(each)
            yield plugin


@pytest.fixture
def node(bed: Bed) -> Node:
    (engine,) = bed.add_engines(0)
    fpga = claim("fpga", result(bed.add_fpga()), configs=(config(NEVER),))
    device = claim("engine", result(engine))
    return Node(bed, DeviceTree(bed.rack.root), (fpga, device), bed.folder / "types")


@pytest.mark.parametrize("damage", DAMAGES)
async def test_the_cdi_file_of_a_claim_is_restored_by_the_running_driver(
    node: Node, damage: Callable[[Path], None]
) -> None:
    async with node.prepared() as dra:
        before = [written(path) for path in node.paths]
        with capture_logs() as logs:
            for path in node.paths[: 1 if damage is remove_folder else 2]:
                damage(path)
            await eventually_async(lambda: [written(path) for path in node.paths] == before)
            await eventually_async(lambda: restored(dra.process.registry, "cdi-claim") == 2)
        lines = [each for each in logs if each["event"] == "a lost file is restored"]
        assert sorted(each["file"] for each in lines) == sorted(map(str, node.paths))
        await eventually_async(lambda: is_ready(dra))
        await node.bed.unprepare(*node.claims)
    assert node.bed.left in ([], ["elsewhere"])


@pytest.mark.parametrize("damage", DAMAGES)
async def test_it_is_there_before_a_driver_that_starts_can_be_found_by_the_kubelet(
    node: Node, damage: Callable[[Path], None]
) -> None:
    async with node.prepared():
        before = [written(path) for path in node.paths]
    for path in node.paths[: 1 if damage is remove_folder else 2]:
        damage(path)
    async with node.bed.api.away(), node.bed.running(device_types=node.types) as dra:
        assert [written(path) for path in node.paths] == before  # its socket is there already
        assert restored(dra.process.registry, "cdi-claim") == 2


async def test_a_driver_that_cannot_restore_a_file_is_not_ready_and_says_why(node: Node) -> None:
    async with node.prepared() as dra:
        obstacles = [path.with_name(f".{path.name}.new") for path in node.paths]
        with capture_logs() as logs:
            for path in (*obstacles, *node.paths):
                path.mkdir() if path in obstacles else path.unlink()
            await eventually_async(
                lambda: restored(dra.process.registry, "cdi-claim", "failed") > 3
            )
            reasons = await unready(dra)
            for path in obstacles:
                path.rmdir()
            await eventually_async(lambda: is_ready(dra))
        for each in node.claims:
            assert f"claim ns/{each['metadata']['name']}: {node.path(each)} can't be" in reasons
        # Once more if a round came while the first file was gone and the second was not.
        assert [*dict.fromkeys(each for each in shown(logs) if "as they should" in each)] == [
            "files are not as they should be",
            "files are as they should be again",
        ]


async def test_a_file_never_names_the_node_of_another_device(node: Node) -> None:
    engine, path = node.claims[1], node.paths[1]
    async with node.running() as dra:
        await node.bed.ready(engine)
        before = written(path)
        node.tree.remove("sys/devices/pci0000:01/0000:01:00.0")
        await eventually_async(lambda: len(parts(dra).state.ledger.by_name) == 1)
        path.unlink()
        await eventually_async(lambda: written(path) == before)  # its node is nobody else's
        other = vector_engine(node.tree, 1).folders[0]
        node.tree.node(f"{other}/ve/ve1", "ve0", "238:0")
        await eventually_async(lambda: not path.exists())
        await eventually_async(lambda: unready(dra))
        assert f"claim ns/engine is without {path}: " in await unready(dra)
        assert "another device has ve0 now" in await unready(dra)
        entry = vector_engine(node.tree, 0).folders[0] + "/ve/ve0"
        node.tree.node(entry, "ve3", "238:3")
        await eventually_async(lambda: "/dev/ve3" in path.read_text())
        await eventually_async(lambda: is_ready(dra))
        assert written(path) != before
        # A container that runs keeps the node, so the other device is nobody's until it has ended.
        state, waits = parts(dra).state, claim("other", result(OTHER))
        problem = state.ledger.by_name[OTHER].device.reasons[0]
        assert (problem.code, "claim ns/engine was given" in problem.text) == (HELD, True)
        preparing = asyncio.create_task(node.bed.ready(waits))
        await node.bed.ready(claim("watching", result(OTHER, adminAccess=True)))
        assert not preparing.done()
        await node.bed.unprepare(engine)
        await preparing
        # Nor do two claims get each other's nodes: the first has its own once the second has ended.
        await node.bed.ready(engine)
        node.tree.node(entry, "ve0", "238:0")
        node.tree.node(f"{other}/ve/ve1", "ve3", "238:3")
        await eventually_async(lambda: not path.exists() and not node.path(waits).exists())
        assert "claim ns/other was given" in await node.bed.refused(engine)
        book, noted = parts(dra).book, node.bed.folder / "state/claims/uid-of-engine.json"
        noted.with_name(f".{noted.name}.new").mkdir()
        await node.bed.unprepare(waits)
        await eventually_async(lambda: f"{noted} can't be written" in str(dra.process.files.errors))
        assert not path.exists()  # or it would have a node that nobody knows of
        noted.with_name(f".{noted.name}.new").rmdir()
        await eventually_async(lambda: b"/dev/ve0" in (written(path) or (b"",))[0])
        entries = book.entries()
        assert entries[0].nodes == (f"{node.bed.rack.root}/dev/ve3",)
        noted.unlink()
        await eventually_async(lambda: book.entries() == entries)


async def test_claims_of_older_versions_get_their_files_back_from_their_devices(node: Node) -> None:
    engine, path = node.claims[1], node.paths[1]
    async with node.running():
        await node.bed.ready(engine)
        before = written(path)
    entry = node.bed.folder / "state/claims/uid-of-engine.json"
    noted = json.loads(entry.read_bytes())
    assert noted.pop("file").encode() == (before or (b"", 0))[0]
    entry.write_text(json.dumps(noted))
    path.unlink()
    node.tree.remove("sys/devices/pci0000:01/0000:01:00.0")
    async with node.bed.running(device_types=node.types) as dra:
        assert f"{path}: request " in await unready(dra)
        assert "allocated nec-vector-engine-0000-01-00-0, which this node hasn't now" in (
            await unready(dra)
        )
        vector_engine(node.tree, 0)
        await eventually_async(lambda: written(path) == before)
        await eventually_async(lambda: json.loads(entry.read_bytes()).get("file"))


def exchange(path: Path) -> None:
    """Replace the entry of a claim by that of another one."""
    shutil.copy(path.with_name("uid-of-fpga.json"), path)


@pytest.mark.parametrize("damage", [Path.unlink, truncate, cut, exchange, remove_folder])
@pytest.mark.parametrize("runs", [True, False])
async def test_the_entry_of_a_claim_is_restored_from_its_cdi_file(
    node: Node, damage: Callable[[Path], None], runs: bool
) -> None:
    entry = node.bed.folder / "state/claims/uid-of-engine.json"
    async with node.prepared() as dra:
        before = written(entry)
        if runs:
            damage(entry)
            await eventually_async(lambda: written(entry) == before)
            await eventually_async(lambda: is_ready(dra))
    if not runs:
        damage(entry)
    async with node.bed.running(device_types=node.types) as dra:
        await eventually_async(lambda: written(entry) == before)
        uids = {each.claim.uid for each in parts(dra).book.entries()}
        assert uids == {"uid-of-fpga", "uid-of-engine"}
        await node.bed.unprepare(*node.claims)
        assert node.bed.left == []


async def test_a_damaged_entry_without_a_cdi_file_is_named(node: Node) -> None:
    entry = node.bed.folder / "state/claims/uid-of-engine.json"
    async with node.running():
        await node.bed.ready(node.claims[1])
    node.paths[1].unlink()
    truncate(entry)
    async with node.bed.running(device_types=node.types) as dra:
        await eventually_async(lambda: unready(dra))
        assert f"{entry} can't be read" in await unready(dra)
        assert "accelbind dra release uid-of-engine" in await unready(dra)
