"""The device types that the guide shows can be used."""

import re

import yaml

from services.devices.types.parsing import parse
from tests.support import REPOSITORY

GUIDE = (REPOSITORY / "docs" / "device-types.md").read_text()


def test_the_types_of_the_guide_are_valid() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    assert [parse(yaml.safe_load(each)).name for each in blocks] == [
        "vector-engine",
        "hailo-chardev",
        "modem",
        "camera",
        "xdma-h2c",
        "t4-vfio",
        "fuse",
    ]


def test_the_matches_beside_those_of_other_plugins_are_valid() -> None:
    cells = re.findall(r"\| `(\[\{.*?\}\])`(?:, with `(.*?)`)? \|", GUIDE)
    assert len(cells) == 5
    for match, more in cells:
        spec = {"match": yaml.safe_load(match), **(yaml.safe_load(more) if more else {})}
        spec["resource"] = {"domain": "device.accelbind.dev", "name": "x"}
        parse(
            {
                "apiVersion": "accelbind.dev/v1alpha1",
                "kind": "DeviceType",
                "metadata": {"name": "x"},
                "spec": spec,
            }
        )
