"""Sensors beside discovery: for metrics and against limits, and never in anybody's way."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.devices.hardware.scan import scan
from services.devices.hardware.sensor_reader import SENSORS_HUNG, SensorReader
from services.devices.limits import TOO_HOT, Limits
from services.devices.model import Inventory
from services.devices.resources import with_problems
from services.node import sensing
from services.node.sensing import Sensing
from services.process.blocking import BlockingCalls
from simulator.cards import CardSpec, Rack
from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.support import AF, running, settings
from tests.services.devices.hardware.blocking import Barrier, threads
from tests.services.node.support import background, scanned, shown
from tests.support import eventually, eventually_async

pytestmark = pytest.mark.anyio

PATIENCE = 1.5
"""Seconds until a read counts as hanging: more than a busy machine takes for one that does not."""


def heat(rack: Rack, degrees: float, card: int = 0) -> None:
    names = rack.places(rack.addresses[card])
    file = rack.root / names["entry"] / names["fme"] / names["temperature_file"]
    file.write_text(f"{int(degrees * 1000)}\n")


class Bench:
    """A `Sensing` on a rack, with what it asks for noted."""

    def __init__(
        self, rack: Rack, limits: Limits | None = None, reader: SensorReader | None = None
    ) -> None:
        self.looks = 0
        self._rack = rack
        self.sensing = Sensing(
            reader or SensorReader(rack.root, BlockingCalls(), patience=20),
            limits=limits or Limits(),
            interval=30,
            request_rescan=self._look,
        )
        self.scan()

    def _look(self) -> None:
        self.looks += 1

    def scan(self) -> Inventory:
        found = scan(self._rack.root)
        self.sensing.on_scan(scanned(found))
        return with_problems(found, self.sensing.problems(found), Limits())

    async def read(self) -> None:
        await self.sensing.run_once()

    def reasons(self) -> list[list[str]]:
        engines = [card.fme for card in self.scan().cards if card.fme]
        return [[problem.reason for problem in engine.problems] for engine in engines]


async def test_a_card_that_gets_too_hot_is_unhealthy_until_it_is_well_below(rack: Rack) -> None:
    rack.add_card(CardSpec())
    bench = Bench(rack, Limits(max_temperature=95))
    await bench.read()
    assert (bench.reasons(), bench.looks) == ([[]], 0)
    for degrees, reasons, looks in ((96, [TOO_HOT], 1), (93, [TOO_HOT], 1), (89, [], 2)):
        heat(rack, degrees)
        await bench.read()
        assert (bench.reasons(), bench.looks) == ([reasons], looks)


async def test_a_card_that_goes_takes_its_values_along_at_once(rack: Rack) -> None:
    rack.add_card(CardSpec())
    address = rack.add_card(CardSpec(driver="opae"))
    bench = Bench(rack)
    await bench.read()
    assert [each.card for each in bench.sensing.readings] == ["intel-fpga-dev.0", "region0"]
    rack.remove_card(address)
    bench.scan()
    assert [each.card for each in bench.sensing.readings] == ["region0"]


async def test_a_card_that_comes_is_read_soon(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensing, "START_SECONDS", 0.01)
    monkeypatch.setattr(sensing, "SPACING_SECONDS", 0.01)
    bench = Bench(rack)
    async with background(bench.sensing.read_forever()):
        rack.add_card(CardSpec())
        bench.scan()
        await eventually_async(
            lambda: [len(each.temperatures) for each in bench.sensing.readings] == [1]
        )


async def test_sensors_that_hang_twice_make_their_card_unhealthy_and_a_hot_one_stays_hot(
    rack: Rack,
) -> None:
    for _ in range(2):
        rack.add_card(CardSpec())
    heat(rack, 96)
    barrier = Barrier()
    reader = SensorReader(rack.root, BlockingCalls(), patience=PATIENCE, files=barrier.files)
    bench = Bench(rack, Limits(max_temperature=95), reader)
    await bench.read()
    barrier.hang("temp1_input")
    with capture_logs() as logs:
        await bench.read()
        assert (bench.reasons(), bench.looks) == ([[TOO_HOT], []], 1)  # they may be slow
        for _ in range(2):
            await bench.read()
        assert (bench.reasons(), bench.looks) == ([[TOO_HOT], [SENSORS_HUNG]], 2)
    assert shown(logs) == ["sensors can't be read"]
    assert [each.temperatures for each in bench.sensing.readings] == [(), ()]
    assert bench.sensing.hanging == 2
    barrier.release_all()
    await eventually_async(lambda: bench.sensing.hanging == 0)
    await bench.read()
    assert (bench.reasons(), bench.looks) == ([[TOO_HOT], []], 3)
    eventually(lambda: threads() == 0)


async def test_in_the_plugin_a_limit_takes_a_card_from_the_kubelet_and_gives_it_back(
    short_dir: Path, rack: Rack, kubelet: KubeletStandIn
) -> None:
    rack.add_card(CardSpec())
    names = rack.places(rack.add_card(CardSpec()))
    (rack.root / names["entry"] / names["port"] / "errors/errors").write_text("0x8\n")
    options = settings(
        short_dir,
        max_temperature=95,
        sensor_interval=0.05,
        healthy_after=1,
        ignore_errors="port-errors=0x8",
        clear_errors=False,
    )
    async with running(options) as plugin:
        await kubelet.until(lambda: kubelet.allocatable == {AF: 2})
        heat(rack, 96)
        await kubelet.until(lambda: kubelet.allocatable == {AF: 1})
        labels = {"card": "region0", "sensor": "dfl_fme_thermal temp1"}
        registry = plugin.parts.registry
        assert registry.get_sample_value("accelbind_card_temperature_celsius", labels) == 96
        heat(rack, 40)
        await kubelet.until(lambda: kubelet.allocatable == {AF: 2})
