"""`accelbind dra classes` and `accelbind dra template`."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from simulator.cards import A10_INTERFACE, NLB3, CardSpec, Rack
from tests.accelbind.running import Done, run
from tests.services.building import NLB0, accelerator, function, region
from tests.support import REPOSITORY

TYPES = REPOSITORY / "manifests/device-types"


@pytest.fixture
def maps(tmp_path: Path) -> Path:
    folder = tmp_path / "maps"
    folder.mkdir()
    objects = [
        function("nlb0", "region"),
        function("nlb0-af", "af", namespace="team-a"),
        region("own", namespace="team-a"),
        accelerator("gpu", "nvidia.com/gpu"),
    ]
    (folder / "maps.yaml").write_text(yaml.safe_dump_all(objects))
    return folder


def printed(done: Done) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [*yaml.safe_load_all(done.stdout)]


def names(done: Done) -> list[str]:
    return [each["metadata"]["name"].rpartition("-")[0] for each in printed(done)]


def test_a_folder_of_mappings_has_a_class_for_each_function_and_region(maps: Path) -> None:
    done = run("dra", "classes", "--mappings", maps)
    assert names(done) == ["af-ce4-d84", "region", "develop"]
    (name,) = [one["metadata"]["name"] for one in printed(done) if "develop" in str(one)]
    assert f"request deviceclass.resource.kubernetes.io/{name}" in done.stderr


def test_device_types_have_a_class_each(maps: Path) -> None:
    found = printed(run("dra", "classes", "--device-types", TYPES))
    assert "nec-vector-engine.accelbind.dev" in [each["metadata"]["name"] for each in found]
    assert len(found) == len([*TYPES.glob("*.yaml")])
    both = printed(run("dra", "classes", "--device-types", TYPES, "--mappings", maps))
    assert len(both) == len(found) + 3


def test_a_node_has_classes_for_its_regions_and_what_is_in_them(tmp_path: Path) -> None:
    rack = Rack(tmp_path)
    for functions in ((NLB0,), (NLB3,), (NLB0,)):
        rack.add_card(CardSpec(afu_ids=functions))
    found = run("dra", "classes", "--node", "--root", tmp_path)
    assert names(found) == ["af-ce4-d84", "af-ce4-f7d", "region"]
    assert printed(found)[2]["metadata"]["name"] == f"region-{A10_INTERFACE}"


def test_nothing_to_make_a_class_for_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    done = run("dra", "classes", "--node", "--root", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing to make a DeviceClass for" in done.stderr


def test_a_template_is_printed_for_a_mapping(maps: Path) -> None:
    (made,) = printed(run("dra", "template", "nlb0", "--mappings", maps))
    assert made["metadata"] == {"name": "nlb0", "namespace": "default"}
    (request,) = made["spec"]["spec"]["devices"]["requests"]
    assert [each["name"] for each in request["firstAvailable"]] == ["loaded", "blank", "any"]
    (made,) = printed(run("dra", "template", "nlb0-af", "-n", "team-a", "--mappings", maps))
    assert made["metadata"]["namespace"] == "team-a"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nlb1", "nlb1 does not exist in namespace default; there are nlb0"),
        ("gpu", "stands for nvidia.com/gpu, which has no function"),
    ],
)
def test_a_name_that_has_no_template_is_refused(maps: Path, name: str, text: str) -> None:
    done = run("dra", "template", name, "--mappings", maps)
    assert done.returncode == 2
    assert text in done.stderr
