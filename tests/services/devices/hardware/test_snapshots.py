"""Sysfs snapshots of real cards, in the shared material: the right resources or a clear reason."""

import tarfile
from pathlib import Path

import pytest

from services.devices.hardware.scan import scan
from services.devices.model import PluginMode
from services.devices.resources import AdvertisedResources, advertise
from tests.support import require_shared

AF, REGION, DEVEL, BDF = (
    PluginMode.AF,
    PluginMode.REGION,
    PluginMode.REGIONDEVEL,
    PluginMode.BDF,
)
UNIT = "b-com.com/accelerator"
N3000 = "mock_sys_dfl_n3000_nlb0"
N6000 = "mock_sys_dfl_n6000_sku0_nlb0"
SOCKET = "mock_sys_tmp-1socket-nlb0"
DCP = "mock_sys_tmp-dcp-rc-nlb3"

OFFERS = [
    (N3000, AF, "af-a5d.9ae.pdcqPMiwSTmRLPcV5dwQyprv_l-EVwYSwADJZg2CQnI", "dfl-port.0"),
    (N3000, REGION, "region-a5d72a3cc8b04939912cf715e5dc10ca", "dfl-fme.0"),
    (N3000, DEVEL, "region-a5d72a3cc8b04939912cf715e5dc10ca", "dfl-fme.0"),
    (N3000, BDF, UNIT, "05:00.0"),
    (N6000, DEVEL, "region-98b4d5bc98ba5f4b98d9a2841ccf11b0", "dfl-fme.0"),
    (SOCKET, AF, "af-1a4.d84.GkIiGG26RI6zAkJcvN4UBthCTcSko8QT-J5DNoP5BAs", "intel-fpga-port.0"),
    (SOCKET, REGION, "region-1a4222186dba448eb302425cbcde1406", "intel-fpga-fme.0"),
    (SOCKET, BDF, UNIT, "5e:00.0"),
    (N6000, BDF, UNIT, "01:00.0"),
    (DCP, AF, "af-f64.d84.9k5Zi-oRUX-ijnvGXYhRBNhCTcSko8QT-J5DNoP5BAs", "intel-fpga-port.0"),
    (DCP, DEVEL, "region-f64e598bea11517fa28e7bc65d885104", "intel-fpga-fme.0"),
    (DCP, BDF, UNIT, "05:00.0"),
]


def tree(name: str, mode: PluginMode, folder: Path) -> AdvertisedResources:
    with tarfile.open(require_shared("hardware", f"{name}.tar.gz")) as archive:
        archive.extractall(folder, filter=_as_it_is)  # noqa: S202 - our own snapshots
    return advertise(scan(folder / "tmp"), mode)


def _as_it_is(member: tarfile.TarInfo, _: str) -> tarfile.TarInfo:
    """Some links of the snapshots lead out of them, as they did on the card's host."""
    return member


@pytest.mark.parametrize(("name", "mode", "resource", "key"), OFFERS)
def test_a_real_card_offers_what_it_has(
    tmp_path: Path, name: str, mode: PluginMode, resource: str, key: str
) -> None:
    made = tree(name, mode, tmp_path)
    full = resource if "/" in resource else f"fpga.intel.com/{resource}"
    assert {each: list(devices) for each, devices in made.resources.items()} == {full: [key]}
    assert made.not_offered == ()
    device = made.resources[full][key]
    assert device.healthy
    assert device.numa_node is None


def test_a_real_card_without_afu_id_says_so(tmp_path: Path) -> None:
    made = tree(N6000, AF, tmp_path)
    assert made.resources == {}
    (port,) = made.not_offered
    assert port.id == "dfl-port.0"
    assert [problem.message for problem in port.reasons] == ["dfl-port.0 has no afu_id"]


def test_a_real_card_without_afu_id_is_unhealthy_where_its_function_matters(
    tmp_path: Path,
) -> None:
    (device,) = tree(N6000, REGION, tmp_path).devices()
    assert [problem.reason for problem in device.reasons] == ["afu-id-missing"]
