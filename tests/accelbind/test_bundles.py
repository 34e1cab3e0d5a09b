"""Templates for bundles, alternatives and shares, from a short YAML."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.accelbind.running import Done, run

ROOT = "resource.kubernetes.io/pcieRoot"


def template(tmp_path: Path, *bundles: object) -> Done:
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
    done = template(tmp_path, bundle)
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
    done = template(tmp_path, {"devices": [{"class": each} for each in classes]})
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
    done = template(tmp_path, bundle)
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr


def test_a_file_has_one_bundle(tmp_path: Path) -> None:
    done = template(tmp_path, {"devices": [ONE]}, {"devices": [ONE]})
    assert (done.returncode, "more than one bundle" in done.stderr) == (2, True)
