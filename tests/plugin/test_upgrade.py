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
from simulator.cards import NLB0, CardSpec
from tests.plugin.support import AF, REGION, Bed

pytestmark = pytest.mark.anyio

ADDRESS = "0000:5e:00.0"
KEY = f"{ADDRESS}-port0"
SINCE = "5f0c1d2e5f0c1d2e5f0c1d2e5f0c1d2e"


def leave_older_files(bed: Bed, mode: PluginMode) -> None:
    """What the version before leaves, all of which counted there for its record."""
    state, plugins = bed.folder / "state", plugins_folder(bed.folder / "k")
    inode = DeviceFiles(bed.rack.root, find_port(scan(bed.rack.root), "dfl-port.0")).inode
    boot = BOOT_ID.read_text().strip()
    record = {"boot": boot, "inode": inode, "shown": NLB0, "program": None, "since": SINCE}
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
    leave_older_files(bed, mode)
    assert last_mode(plugins_folder(bed.folder / "k")) is mode
    async with bed.running(mode):
        await bed.offers(1, resource)
    files = left(bed)
    assert Path(OLDER).name not in files
    assert files[Path(FILE).name] == f"{mode}\n"
    # The version before reads this as: the content of no port is known.
    assert json.loads(files[Path(OLDER_MARK).name]) == {"since": None}
