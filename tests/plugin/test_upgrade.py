"""Files of older versions: they don't count, do no harm, and a rollback finds no wrong ones."""

import json
from pathlib import Path

import pytest

from services.devices.hardware.scan import scan
from services.devices.model import PluginMode
from services.kubelet.sockets import plugins_folder
from services.node.last_mode import FILE, OLDER, OLDER_MARK, last_mode
from services.programming.port import DeviceFiles, find_port
from services.programming.records import BOOT_ID
from simulator.bitstreams import OPENCL_AFU, make_aocx
from simulator.cards import A10_INTERFACE, NLB0, CardSpec
from simulator.driver import DriverStandIn, raw_bitstream
from tests.plugin.support import AF, REGION, Bed

pytestmark = pytest.mark.anyio

PROGRAM = "0123456789abcdef0123456789abcdef01234567"
ADDRESS = "0000:5e:00.0"
KEY = f"{ADDRESS}-port0"
SINCE = "5f0c1d2e5f0c1d2e5f0c1d2e5f0c1d2e"


def leave_older_files(bed: Bed, mode: PluginMode, shown: str, program: str | None) -> None:
    """What the version before leaves, all of which counted there for its record."""
    state, plugins = bed.folder / "state", plugins_folder(bed.folder / "k")
    inode = DeviceFiles(bed.rack.root, find_port(scan(bed.rack.root), "dfl-port.0")).inode
    boot = BOOT_ID.read_text().strip()
    record = {"boot": boot, "inode": inode, "shown": shown, "program": program, "since": SINCE}
    mark = json.dumps({"since": SINCE})
    offered = json.dumps({"mode": mode.value, "devices": []})
    files = {
        state / f"records/{KEY}.json": json.dumps(record),
        state / "unknown/0000:5f:00.0-port0": "",
        state / "untrusted.json": mark,
        state / "approvals.json": "[]",
        plugins / OLDER_MARK: mark,
        plugins / OLDER: offered,
        plugins / "accelbind/unknown/0000:5f:00.0-port0": "",
    }
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def left(bed: Bed) -> dict[str, str]:
    """The plugin's files in the kubelet's folder."""
    folder: Path = plugins_folder(bed.folder / "k") / "accelbind"
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    ("shown", "program", "wanted"), [(NLB0, None, NLB0), (OPENCL_AFU, PROGRAM, PROGRAM)]
)
async def test_a_record_of_an_older_version_does_not_spare_a_programming(
    bed: Bed, driver: DriverStandIn, shown: str, program: str | None, wanted: str
) -> None:
    bed.rack.add_card(CardSpec(driver="dfl", afu_ids=(shown,), address=ADDRESS))
    bed.install(NLB0)
    bed.install_file("x.aocx", make_aocx(A10_INTERFACE, PROGRAM, raw_bitstream(OPENCL_AFU)))
    leave_older_files(bed, PluginMode.REGION, shown, program)
    for programmed in (1, 1):  # the second plugin finds the records of the first
        async with bed.running(PluginMode.REGION, enforce_mappings="never"):
            started = await bed.wants("p", wanted)
            assert started["c"].running
            await bed.kubelet.delete_pod(started)
        assert len(driver.programmed) == programmed
    # An older version served in between, and programmed a port without a record of ours.
    leave_older_files(bed, PluginMode.REGION, shown, program)
    async with bed.running(PluginMode.REGION, enforce_mappings="never"):
        assert (await bed.wants("q", wanted))["c"].running
    assert len(driver.programmed) == 2


@pytest.mark.parametrize(
    ("mode", "resource"),
    [
        (PluginMode.AF, AF),
        (PluginMode.REGION, REGION),
        (PluginMode.REGIONDEVEL, REGION),
    ],
)
async def test_files_of_an_older_version_do_no_harm_and_a_rollback_trusts_nothing(
    bed: Bed, mode: PluginMode, resource: str
) -> None:
    bed.rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,), address=ADDRESS))
    leave_older_files(bed, mode, NLB0, None)
    assert last_mode(plugins_folder(bed.folder / "k")) is mode
    async with bed.running(mode):
        await bed.offers(1, resource)
    files = left(bed)
    assert Path(OLDER).name not in files
    assert files[Path(FILE).name] == f"{mode}\n"
    # The version before reads this as: the content of no port is known.
    assert json.loads(files[Path(OLDER_MARK).name]) == {"since": None}
