"""Files on nodes as earlier versions have written them, which later ones must read."""

import json
from pathlib import Path

import msgspec
import pytest

from plugin.dra.book import ClaimBook
from services.bitstreams.model import UserClock
from services.devices.cdi import NOTE
from services.devices.model import PluginMode
from services.node.last_mode import last_mode
from services.programming.host_state import PortRecord, PortRecords

BOOT = "cafe0f5e-53a4-4f9c-8d0d-1d8a3c1b7a11"
CLAIM = "163259fd-37cc-4c98-bc59-e1d4b41b060d"
REGION = "fpga.intel.com/region-ce48969398f05f33946d560708be108a"
FUSE = "device.accelbind.dev/fuse"
INTERFACE, AFU = "ce48969398f05f33946d560708be108a", "f7df405cbd7acf7222f144b0b93acd18"

OF_0_1_0 = f"""\
{{"claim":{{"namespace":"team-a","name":"work","uid":"{CLAIM}"}},"boot":"{BOOT}","wants":[\
{{"request":"fpga","kind":"program","devices":["dfl-0000-05-00-0"],"ids":["dfl-fme.0"],\
"claims":[["0000:05:00.0"]],"own":"{REGION}","resource":"{REGION}","who":"container show",\
"functions":["{AFU}"],"interface_id":"{INTERFACE}","reference":"fpga/one",\
"attributes":[{{"vendor":"intel","ports":1,"programmable":true}}],"shares":[]}},\
{{"request":"fuse","kind":"plain","devices":["fuse"],"ids":["fuse"],"claims":[["10:229"]],\
"own":"{FUSE}","resource":"{FUSE}","who":"","functions":[],"interface_id":"","reference":"",\
"attributes":[],"shares":[{{"id":"0a","amount":2}}]}}],\
"is_committed":true,"file":"{{\\"cdiVersion\\":\\"0.6.0\\"}}",\
"pods":["9d5c6b1e-2f0e-4f3c-9f0b-0b1a58d1b8f1"],"is_leftover":true,"pod_claim":"fpga"}}"""

OF_NOVEMBER_2026 = f"""\
{{"claim":{{"namespace":"team-a","name":"work","uid":"{CLAIM}"}},"boot":"{BOOT}","wants":[\
{{"request":"fpga","kind":"never","devices":["dfl-0000-05-00-0"],"ids":["dfl-port.0"],\
"claims":[["0000:05:00.0"]],"own":"{REGION}","resource":"{REGION}","who":"","functions":[],\
"interface_id":""}}],"is_committed":true}}"""


@pytest.fixture
def boot(tmp_path: Path) -> Path:
    file = tmp_path / "boot_id"
    file.write_text(f"{BOOT}\n")
    return file


def written(path: Path, content: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)


@pytest.mark.parametrize("content", [OF_0_1_0, OF_NOVEMBER_2026], ids=["0.1.0", "November 2026"])
def test_a_claim_that_an_earlier_version_prepared_is_known(
    content: str, boot: Path, tmp_path: Path
) -> None:
    written(tmp_path / "claims" / f"{CLAIM}.json", content)
    book = ClaimBook(tmp_path / "claims", boot)
    (entry,) = book.require_readable()
    now, before = json.loads(msgspec.json.encode(entry)), json.loads(content)
    for want, want_before in zip(now.pop("wants"), before.pop("wants"), strict=True):
        assert want | want_before == want, "a later version may only add fields"
    assert now | before == now
    assert "nodes" not in json.loads(entry.note), "an upgrade rewrites no CDI file"
    # CDI files have it too, as a note.
    book.remove(CLAIM)
    file = json.dumps({"annotations": {NOTE: content}})
    assert book.restore(CLAIM, file)
    assert book.find(CLAIM) == msgspec.structs.replace(entry, file=file)


@pytest.mark.parametrize(
    ("content", "clock"),
    [
        ('"clock":{"low":100.0,"high":200.0}', UserClock(100, 200)),
        ('"clock":{"low":100,"high":200}', UserClock(100, 200)),
        ('"clock":null', None),
    ],
)
def test_what_an_earlier_version_programmed_is_known(
    content: str, clock: UserClock | None, boot: Path, tmp_path: Path
) -> None:
    record = f'{{"boot":"{BOOT}","inode":47,"shown":"{AFU}","function":"{AFU}",{content}}}'
    written(tmp_path / "ports" / "0000:05:00.0-port0.json", record)
    written(tmp_path / "ports" / "0000:06:00.0-port0.json", "")
    records = PortRecords(tmp_path / "ports", boot)
    assert records.read("0000:05:00.0-port0", 47, AFU) == PortRecord(BOOT, 47, AFU, AFU, clock)
    assert records.unfinished() == {"0000:06:00.0-port0"}


@pytest.mark.parametrize("mode", ["af", "region", "regiondevel", "units", "bdf", "none"])
def test_the_mode_that_an_earlier_version_served_is_known(mode: str, tmp_path: Path) -> None:
    written(tmp_path / "accelbind" / "mode", f"{mode}\n")
    assert last_mode(tmp_path) is PluginMode(mode)
