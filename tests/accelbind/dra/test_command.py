"""`accelbind dra classes`, `accelbind dra template` and `accelbind dra release`."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from services.devices.cdi import claim_file
from simulator.cards import A10_INTERFACE, NLB3, CardSpec, Rack
from tests.accelbind.running import Done, run
from tests.recorded import CLAIM, with_claim
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
        accelerator("bad", "x"),
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
        ("bad", "extended resource, such as nvidia.com/gpu; there are nlb0"),
    ],
)
def test_a_name_that_has_no_template_is_refused(maps: Path, name: str, text: str) -> None:
    done = run("dra", "template", name, "--mappings", maps)
    assert done.returncode == 2
    assert text in done.stderr


# Templates for bundles, alternatives and shares, from a short YAML

ROOT = "resource.kubernetes.io/pcieRoot"


def bundled(tmp_path: Path, *bundles: object) -> Done:
    file = tmp_path / "bundle.yaml"
    file.write_text(yaml.safe_dump_all(bundles))
    return run("dra", "template", "x", "-n", "team-a", "-f", file)


def exactly(name: str, of: str, **more: object) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": of, **more}}


def has(name: str, value: str) -> str:
    attributes = 'device.attributes["a.b"]'
    return f'"{name}" in {attributes} && {attributes}["{name}"] == {value}'


BIG = [
    {"name": "big", "deviceClassName": "big.a"},
    {"name": "big-2", "deviceClassName": "big.b", "count": 2},
]
SELECTORS = [{"cel": {"expression": " && ".join([has("ecc", "true"), has("model", r'"x\"y"')])}}]
AMOUNTS = {"requests": {"memory": "10Gi", "n": "2"}}


@pytest.mark.parametrize(
    ("bundle", "devices"),
    [
        ({"devices": [{"class": "gpu"}]}, {"requests": [exactly("gpu", "gpu")]}),
        (
            {"devices": [{"class": "gpu.a.b", "count": 2}, {"class": "nic.a.b"}], "together": ROOT},
            {
                "requests": [exactly("gpu", "gpu.a.b", count=2), exactly("nic", "nic.a.b")],
                "constraints": [{"requests": ["gpu", "nic"], "matchAttribute": ROOT}],
            },
        ),
        (
            {"devices": [{"prefer": [{"class": "big.a"}, {"class": "big.b", "count": 2}]}]},
            {"requests": [{"name": "any", "firstAvailable": BIG}]},
        ),
        (
            {"devices": [{"class": "gpu", "share": {"capacity": {"memory": "10Gi", "n": 2}}}]},
            {"requests": [exactly("gpu", "gpu", capacity=AMOUNTS)]},
        ),
        (
            {"devices": [{"class": "gpu", "where": {"a.b/model": 'x"y', "a.b/ecc": True}}]},
            {"requests": [exactly("gpu", "gpu", selectors=SELECTORS)]},
        ),
    ],
)
def test_a_bundle_becomes_a_template(tmp_path: Path, bundle: object, devices: object) -> None:
    done = bundled(tmp_path, bundle)
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout) == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "x", "namespace": "team-a"},
        "spec": {"spec": {"devices": devices}},
    }


@pytest.mark.parametrize(
    ("classes", "names"),
    [
        (["gpu", "gpu-2", "gpu"], ["gpu", "gpu-2", "gpu-3"]),
        (["gpu", "gpu", "gpu-2"], ["gpu", "gpu-2", "gpu-2-2"]),
        (["a" * 59 + "-b"] * 2, ["a" * 59, "a" * 59 + "-2"]),
    ],
)
def test_requests_have_different_names_that_are_labels(
    tmp_path: Path, classes: list[str], names: list[str]
) -> None:
    done = bundled(tmp_path, {"devices": [{"class": each} for each in classes]})
    requests = yaml.safe_load(done.stdout)["spec"]["spec"]["devices"]["requests"]
    assert [each["name"] for each in requests] == names


ONE = {"class": "gpu"}


@pytest.mark.parametrize(
    ("bundle", "words"),
    [
        ({"devices": []}, "bundle.devices: Expected `array` of length >= 1"),
        ({"devices": [{}]}, "bundle.devices[0]: exactly one of class and prefer"),
        ({"devices": [ONE | {"prefer": [ONE]}]}, "exactly one of class and prefer"),
        ({"devices": [{"prefer": [ONE], "count": 2}]}, "belong to the entries of prefer"),
        ({"devices": [{"prefer": [{"prefer": [ONE]}]}]}, "can't be within prefer"),
        ({"devices": [ONE], "together": ROOT}, "needs more than one device"),
        ({"devices": [ONE, ONE], "together": "pcieRoot"}, "bundle.together"),
        ({"devices": [ONE | {"count": 20}] * 2}, "at most 32 devices, and these are 40"),
        ({"devices": [ONE | {"where": {"model": "x"}}]}, "bundle.devices[0].where"),
        ({"devices": [ONE | {"share": {"capacity": {"m": "x"}}}]}, "share.capacity"),
        ({"devices": [ONE | {"share": {"capacity": {}}}]}, "share.capacity"),
        ({"devices": [ONE | {"share": {"capacity": {"a b": 1}}}]}, "share.capacity"),
        ({"devices": [ONE | {"share": {"capacity": {"m": -1}}}]}, "share.capacity"),
        ({"devices": [ONE | {"where": {"a.b/n": 2**63}}]}, "bundle.devices[0].where"),
        ({"devices": [ONE | {"where": {"a.b/n": "x" * 65}}]}, "bundle.devices[0].where"),
        ({"devices": [ONE], "class": "x"}, "unknown field `class`"),
    ],
)
def test_what_makes_no_template_is_refused_at_its_field(
    tmp_path: Path, bundle: object, words: str
) -> None:
    done = bundled(tmp_path, bundle)
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr


def test_a_file_has_one_bundle(tmp_path: Path) -> None:
    done = bundled(tmp_path, {"devices": [ONE]}, {"devices": [ONE]})
    assert (done.returncode, "more than one bundle" in done.stderr) == (2, True)


# Release


@pytest.mark.parametrize("is_readable", [True, False])
def test_a_claim_is_released_also_if_it_cannot_be_read(
    tmp_path: Path, *, is_readable: bool
) -> None:
    state, cdi = tmp_path / "state", tmp_path / "cdi"
    book = with_claim(state)
    if not is_readable:
        book.path(CLAIM).write_text("{")
    cdi.mkdir()
    (cdi / claim_file(CLAIM)).touch()
    folders = ("--state-dir", state, "--cdi-dir", cdi)
    done = run("dra", "release", "other", *folders)
    assert (done.returncode, "its claims: " in done.stderr) == (2, True)
    done = run("dra", "release", CLAIM, *folders)
    assert done.stdout == f"claim with UID {CLAIM} is released\n"
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []
