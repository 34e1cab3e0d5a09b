"""Before a mode is served it is written, and records that don't outlive it are deleted."""

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from services.devices.model import PluginMode
from services.node import last_mode as module
from services.node.last_mode import FILE, enter_mode, last_mode
from services.process.blocking import BlockingCalls
from services.programming.host_state import HostState, PortRecords
from tests.support import eventually_async

AF, REGION, DEVEL = PluginMode.AF, PluginMode.REGION, PluginMode.REGIONDEVEL
SHOWN = "d8424dc4a4a3c413f89e433683f9040b"


@pytest.fixture
def records(tmp_path: Path) -> PortRecords:
    """A record of port `p` that counts."""
    records = HostState(tmp_path / "state").records
    records.empty("p")
    records.write("p", 1, SHOWN, SHOWN)
    return records


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    folder = tmp_path / "plugins"
    (folder / FILE).parent.mkdir(parents=True)
    return folder


@asynccontextmanager
async def waits(mode: PluginMode, plugins: Path, records: PortRecords) -> AsyncIterator[None]:
    """The mode may not be served meanwhile, and may be served afterwards."""
    entering = asyncio.create_task(enter_mode(mode, plugins, records, BlockingCalls()))
    with capture_logs() as logs:
        refused = "no device is offered until the mode is written"
        await eventually_async(lambda: refused in [line["event"] for line in logs])
        yield
        assert not entering.done()
    async with asyncio.timeout(30):
        await entering


def counts(records: PortRecords) -> bool:
    return records.read("p", 1, SHOWN) is not None


@pytest.mark.parametrize(
    ("mode", "last", "kept"),
    [
        (REGION, "region", True),
        (REGION, "af", True),
        (DEVEL, "region", False),
        (REGION, "regiondevel", False),
        (AF, "regiondevel", False),
        (REGION, None, False),
        (REGION, "nonsense", False),
    ],
)
async def test_records_outlive_a_change_of_mode_but_not_regiondevel(
    plugins: Path, records: PortRecords, mode: PluginMode, last: str | None, kept: bool
) -> None:
    if last is not None:
        (plugins / FILE).write_text(f"{last}\n")
    await enter_mode(mode, plugins, records, BlockingCalls())
    assert counts(records) is kept
    assert last_mode(plugins) is mode


@pytest.mark.parametrize("content", ["", "fast", "\xff", "af" * 100_000])
def test_a_mode_that_can_not_be_read_is_unknown(plugins: Path, content: str) -> None:
    (plugins / FILE).write_text(content)
    assert last_mode(plugins) is None
    (plugins / FILE).unlink()
    os.mkfifo(plugins / FILE)
    assert last_mode(plugins) is None


@pytest.mark.parametrize(("mode", "last"), [(AF, "regiondevel"), (REGION, None), (DEVEL, None)])
async def test_nothing_is_served_while_records_can_not_be_deleted(
    tmp_path: Path, plugins: Path, records: PortRecords, mode: PluginMode, last: str | None
) -> None:
    if last is not None:
        (plugins / FILE).write_text(last)
    obstacle = tmp_path / "state/ports/a-folder"
    obstacle.mkdir()
    async with waits(mode, plugins, records):
        assert last_mode(plugins) == last
        obstacle.rmdir()
    assert not counts(records)
    assert last_mode(plugins) is mode


async def test_a_confined_plugin_that_can_not_reach_the_records_serves_and_leaves_them_untrusted(
    tmp_path: Path, plugins: Path, records: PortRecords
) -> None:
    """As where SELinux enforces: mode af needs no records."""
    (tmp_path / "state/ports/a-folder").mkdir()
    await enter_mode(AF, plugins, records, BlockingCalls())
    assert last_mode(plugins) is None


async def test_nothing_is_served_while_a_file_says_another_mode(
    plugins: Path, records: PortRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plugins / FILE).write_text("region")
    with monkeypatch.context() as patch:
        full = OSError(errno.ENOSPC, "No space left on device")
        patch.setattr(module, "replace_file", Mock(side_effect=full))
        async with waits(AF, plugins, records):
            patch.undo()
    assert last_mode(plugins) is AF


@pytest.mark.parametrize("obstacle", ["no folder", "no kubelet"])
async def test_a_folder_that_takes_no_files_remembers_nothing(
    plugins: Path, records: PortRecords, obstacle: str
) -> None:
    shutil.rmtree(plugins if obstacle == "no kubelet" else (plugins / FILE).parent)
    if obstacle == "no folder":
        (plugins / FILE).parent.touch()
    await enter_mode(DEVEL, plugins, records, BlockingCalls())
    assert last_mode(plugins) is None
    assert not counts(records)
