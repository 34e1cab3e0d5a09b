"""`accelbind fpga list -o mapping`: what it writes is right for `accelbind check mappings`."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from accelbind.devices.source import NodeDevices
from plugin.settings import PluginSettings
from services.devices.hardware.scan import scan
from services.devices.model import PluginMode
from services.mappings.folder import load_folder
from simulator.cards import A10_INTERFACE, D5005_INTERFACE, NLB0, NLB3, CardSpec, Rack
from tests.accelbind.running import run
from tests.services.cards import advertise
from tests.services.ofs_cards import HE_MEM, OfsNode

MODES = ("af", "region", "regiondevel")


def resources_of(root: Path, folder: Path, mode: str, namespace: str) -> tuple[set[str], str]:
    """The resources of the written mappings, which pass all checks, and the warnings."""
    flags = ["-n", namespace] if namespace else []
    flags += ["--kubelet-dir", str(root / "k")]  # not that of this machine, which may hold devices
    done = run("fpga", "list", "--root", root, "--mode", mode, "-o", "mapping", *flags)
    folder.mkdir()
    (folder / "mappings.yaml").write_text(done.stdout)
    checked = run("check", "mappings", folder)
    assert (done.returncode, checked.returncode, "no findings" in checked.stdout) == (0, 0, True)
    snapshot = load_folder(folder)
    assert list(snapshot.problems) == []
    assert set(snapshot.index.namespaces) <= {namespace or "default"}
    resources = {
        f"fpga.intel.com/{each.resolution.resource}"
        for each in snapshot.index.namespace(namespace or "default").by_name.values()
    }
    return resources, done.stderr


@pytest.mark.parametrize(
    ("driver", "mode", "namespace"),
    [
        ("opae", "af", ""),
        ("dfl", "af", "team-a"),
        ("dfl", "region", ""),
        ("opae", "regiondevel", "team-a"),
    ],
)
def test_the_mappings_of_synthetic_cards_are_of_what_a_plugin_offers(
    tmp_path: Path, driver: str, mode: str, namespace: str
) -> None:
    rack = Rack(tmp_path / "root")
    rack.add_card(CardSpec(driver, ports=2))
    rack.add_card(CardSpec(driver, afu_ids=(NLB3,)))
    rack.add_card(CardSpec(driver, interface_id=D5005_INTERFACE))
    found, warnings = resources_of(rack.root, tmp_path / "maps", mode, namespace)
    assert warnings == ""
    assert found == set(advertise(scan(rack.root), PluginMode(mode)).resources)
    documents = [*yaml.safe_load_all((tmp_path / "maps" / "mappings.yaml").read_text())]
    if mode == "regiondevel":
        assert {each["kind"] for each in documents} == {"FpgaRegion"}
        assert len(documents) == 2
    else:
        assert {each["kind"] for each in documents} == {"AcceleratorFunction"}
        assert {each["spec"]["mode"] for each in documents} == {mode}
        assert len(documents) == 3


@pytest.mark.parametrize("mode", MODES)
def test_the_mappings_of_an_ofs_card_are_of_its_virtual_functions(
    tmp_path: Path, mode: str
) -> None:
    node = OfsNode(tmp_path / "root")
    node.add_card()
    node.bind("0000:b1:00.5", HE_MEM)
    for number in (6, 7):
        shutil.rmtree(node.folder(f"0000:b1:00.{number}"))
    found, _ = resources_of(node.root, tmp_path / "maps", mode, "default")
    options = PluginSettings(root=node.root, mode=PluginMode(mode), kubelet_dir=node.root / "k")
    inventory = NodeDevices(options).find().inventory
    assert found == set(advertise(inventory, PluginMode(mode)).resources)
    assert bool(found) is (mode != "region")


@pytest.mark.parametrize(("mode", "ending"), [("af", ""), ("region", "-region")])
def test_names_are_told_apart_and_devices_are_named(tmp_path: Path, mode: str, ending: str) -> None:
    rack = Rack(tmp_path / "root")
    for afu_id in (NLB0, f"{NLB0[:-1]}f", NLB3):
        rack.add_card(CardSpec("dfl", afu_ids=(afu_id,)))
    text = run("fpga", "list", "-o", "mapping", "--root", rack.root, "--mode", mode).stdout
    *alike, other = [each["metadata"]["name"] for each in yaml.safe_load_all(text)]
    label = rf"afu-{A10_INTERFACE[:8]}-{NLB0[:8]}-[0-9a-f]{{8}}{ending}"
    assert [bool(re.fullmatch(label, name)) for name in alike] == [True, True]
    assert len({*alike}) == 2
    assert other == f"afu-{A10_INTERFACE[:8]}-{NLB3[:8]}{ending}"
    named = re.findall(r"^# (dfl-port.*)$", text, re.MULTILINE)
    assert named == ["dfl-port.0", "dfl-port.1", "dfl-port.2"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--mode units", "devices of mode units need no mapping\n"),
        ("--mode bdf", "devices of mode bdf need no mapping\n"),
        ("--kind port", "--"),
        ("-n Team", "'Team' is not the name of a namespace"),
        ("--namespace=", "is not the name of a namespace"),
    ],
)
def test_mappings_that_cannot_be_written_are_an_error(
    tmp_path: Path, flags: str, said: str
) -> None:
    Rack(tmp_path).add_card(CardSpec("dfl"))
    done = run("fpga", "list", "-o", "mapping", "--root", tmp_path, *flags.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
