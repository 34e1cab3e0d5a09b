"""Keeping the CDI file current."""

from pathlib import Path
from threading import Event

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from services.devices.cdi import FILES, KIND
from services.devices.cdi_files import CdiFolder, CdiWrite
from services.devices.hardware.scan import scan
from services.devices.model import PluginMode
from services.devices.resources import AdvertisedResources
from services.node import cdi_publisher
from services.node.cdi_publisher import CdiPublisher
from services.node.kept_files import KeptFiles
from services.node.metrics import NodeMetrics
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from simulator.cards import CardSpec, Rack
from tests.services.cards import advertise
from tests.services.node.support import scanned, set_state, shown


def tree_of(rack: Rack) -> AdvertisedResources:
    return advertise(scan(rack.root), PluginMode.AF)


def publisher_for(folder: Path, state: NodeState) -> CdiPublisher:
    kept = KeptFiles(NodeMetrics(CollectorRegistry()).files)
    return CdiPublisher(folder, state, host_root="/", calls=BlockingCalls(), kept=kept)


async def test_devices_are_named_only_as_long_as_a_file_stands_that_has_them(
    short_dir: Path, rack: Rack
) -> None:
    first = rack.add_card(CardSpec())
    state, tree = scanned(), tree_of(rack)
    publisher = publisher_for(short_dir, state)
    half = short_dir / f".{FILES[KIND]}.new"

    async def look() -> frozenset[str]:
        set_state(state, advertised=tree)
        await publisher.run_once()
        return publisher.published

    assert await look() == {"dfl-port.0"}
    half.mkdir()  # nothing can be written
    rack.add_card(CardSpec())
    tree = tree_of(rack)
    with capture_logs() as logs:
        for _ in range(3):
            assert await look() == {"dfl-port.0"}
    assert shown(logs) == ["files are not as they should be"]
    (short_dir / FILES[KIND]).write_text("somebody else's")
    assert await look() == frozenset()
    (short_dir / FILES[KIND]).unlink()
    (short_dir / FILES[KIND]).mkdir()
    assert await look() == frozenset()
    (short_dir / FILES[KIND]).rmdir()
    assert await look() == frozenset()
    half.rmdir()
    assert await look() == {"dfl-port.0", "dfl-port.1"}
    rack.remove_card(first)
    set_state(state, advertised=tree_of(rack))
    assert publisher.published == {"dfl-port.1"}, "no scan has written it yet"


async def test_a_folder_that_hangs_is_said_and_waited_for_no_longer(
    short_dir: Path, rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = Event()

    def hang(*_: object) -> CdiWrite:
        release.wait(30)
        return CdiWrite()

    monkeypatch.setattr(CdiFolder, "write", hang)
    monkeypatch.setattr(cdi_publisher, "WRITE_SECONDS", 0.05)
    rack.add_card(CardSpec())
    publisher = publisher_for(short_dir, scanned(advertised=tree_of(rack)))
    with capture_logs() as logs:
        await publisher.run_once()
        await publisher.run_once()
    release.set()
    assert publisher.published == frozenset()
    assert shown(logs) == ["files are not as they should be"]
    assert f"writing CDI files below {short_dir} hangs" in logs[0]["reason"]
