"""examples/kind: its init container creates cards that the plugin serves with its settings."""

from pathlib import Path
from typing import Any

import pytest

from plugin.settings import PluginSettings
from services.devices.hardware.scan import scan
from services.devices.model import PluginMode
from tests.manifests.rendering import rendered
from tests.services.building import AF_NLB0
from tests.services.cards import advertise

CARDS = "/var/lib/accelbind-cards"


@pytest.fixture(scope="module")
def spec() -> dict[str, Any]:
    objects = rendered("../examples/kind")
    (daemonset,) = [each for each in objects if each["kind"] == "DaemonSet"]
    found: dict[str, Any] = daemonset["spec"]["template"]["spec"]
    return found


def test_the_init_container_creates_the_cards_of_the_sample(
    spec: dict[str, Any], tmp_path: Path
) -> None:
    (init,) = spec["initContainers"]
    assert init["command"] == ["python", "-c"]
    script = init["args"][0].replace(CARDS, str(tmp_path))
    assert "devices=True" in script
    for _ in range(2):  # a restarted pod keeps the cards
        exec(script.replace("devices=True", "devices=False"), {})  # noqa: S102 - ours; no CAP_MKNOD
    offered = advertise(scan(tmp_path), PluginMode.AF)
    assert {name: len(devices) for name, devices in offered.resources.items()} == {AF_NLB0: 2}


def test_the_plugin_reads_these_cards_and_hands_out_their_nodes(spec: dict[str, Any]) -> None:
    (plugin,) = spec["containers"]
    given = {each["name"]: each.get("value") for each in plugin["env"]}
    assert given["ACCELBIND_ROOT"] == given["ACCELBIND_HOST_ROOT"] == CARDS
    names = {name.removeprefix("ACCELBIND_").lower() for name in given if "ACCELBIND_" in name}
    assert names <= PluginSettings.model_fields.keys()
    paths = {each["name"]: each.get("hostPath", {}).get("path") for each in spec["volumes"]}
    for container in (plugin, spec["initContainers"][0]):
        mounts = {each["mountPath"]: paths[each["name"]] for each in container["volumeMounts"]}
        assert mounts[CARDS] == CARDS
