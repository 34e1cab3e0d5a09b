"""`accelbind explain` says what the DRA driver would do for the claims of a pod."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from accelbind.dra.classes import FpgaClass, claim_template
from services.mappings.model import Mapping, Mode, parse
from tests.accelbind.running import Done, run
from tests.services.building import ARRIA, NLB0, NLB3, function, region

MAPPINGS = (
    function("nlb0", "region"),
    function("nlb0-af", "af"),
    function("nlb3", "region", afu=NLB3, namespace="other"),
    region("devel"),
)
REGION = FpgaClass(Mode.REGION, ARRIA).name
UNMAPPED = FpgaClass(Mode.AF, ARRIA, NLB3).name
DEVELOP = FpgaClass(Mode.REGIONDEVEL, ARRIA).name


def template(number: int) -> dict[str, Any]:
    """What `accelbind dra template` prints for a mapping."""
    mapping = parse(MAPPINGS[number])
    assert isinstance(mapping, Mapping)
    return claim_template(mapping)


def of_class(device_class: str, parameters: object = None, **more: Any) -> dict[str, Any]:
    """A claim for one device of a class."""
    exactly = {"deviceClassName": device_class} | more
    opaque = {"opaque": {"driver": "accelbind.dev", "parameters": parameters}}
    devices = {
        "requests": [{"name": "r", "exactly": exactly}],
        "config": [opaque] if parameters else None,
    }
    metadata = {"name": "own"}
    return {"kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": devices}}


class Explain:
    """Runs the command on a pod that names a claim, beside that claim or template."""

    def __init__(self, folder: Path) -> None:
        self.maps, self._path = folder / "maps", folder / "pod.yaml"
        self.maps.mkdir()
        (self.maps / "maps.yaml").write_text(yaml.safe_dump_all(MAPPINGS))

    def __call__(self, claim: dict[str, Any], *options: str, name: str = "") -> Done:
        source = "ClaimName" if claim["kind"] == "ResourceClaim" else "ClaimTemplateName"
        entry = {"name": "fpga", f"resource{source}": name or claim["metadata"]["name"]}
        spec = {"containers": [{"name": "c"}], "resourceClaims": [entry]}
        pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
        self._path.write_text(yaml.safe_dump_all([pod, claim]))
        return run("explain", "-n", "default", "--mappings", self.maps, "-f", self._path, *options)

    def lines(self, claim: dict[str, Any], name: str = "") -> Iterator[str]:
        done = self(claim, name=name)
        assert done.returncode in (0, 1), done.stderr
        lines = [each.strip() for each in done.stdout.splitlines() if "claim fpga" in each]
        assert done.returncode == any(each.startswith("✗") for each in lines)
        return iter(lines)


@pytest.fixture
def explain(tmp_path: Path) -> Explain:
    return Explain(tmp_path)


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        (template(0), f"DeviceClass {REGION}: AFU {NLB0} is programmed, unless the region has it"),
        (template(1), f": the device has AFU {NLB0}"),
        (template(3), f"DeviceClass {DEVELOP}: the container programs the region itself"),
        (of_class("nec.accelbind.dev"), "the container gets the device"),
        (of_class(REGION, adminAccess=True), "and gets no device node"),
        (template(2) | {"metadata": {"name": "t"}}, '✗ claim fpga.* "nlb3" is not mapped in names'),
        (of_class(UNMAPPED), "✗ .* is not mapped in namespace default"),
    ],
)
def test_a_claim_is_explained_once(explain: Explain, claim: dict[str, Any], expected: str) -> None:
    (line,) = explain.lines(claim)
    assert re.search(expected, line)


def test_a_claim_cannot_say_what_is_for_a_class(explain: Explain) -> None:
    claim = of_class(REGION, {"develop": True})
    claim["spec"]["devices"]["config"][0]["source"] = "FromClass"
    (line,) = explain.lines(claim)
    assert "✗" in line
    assert "are for a DeviceClass" in line


@pytest.mark.parametrize("name", ["gpu.example.com", "region-europe", "develop-gpu"])
def test_a_claim_of_another_driver_is_not_explained(explain: Explain, name: str) -> None:
    assert list(explain.lines(of_class(name, {"mapping": "nlb0"}))) == []


def test_a_template_that_is_not_there_is_asked_for(explain: Explain) -> None:
    (line,) = explain.lines(template(0), name="elsewhere")
    assert line == (
        "claim fpga: ResourceClaimTemplate elsewhere is in no manifest: add one with -f to see what"
        " it gives"
    )


def test_programs_get_it_too(explain: Explain) -> None:
    done = explain(of_class(REGION, {"mapping": "nlb0"}), "-o", "json")
    (item,) = json.loads(done.stdout)["items"]
    assert item["claims"] == [
        {
            "claim": "fpga",
            "request": "r",
            "deviceClass": REGION,
            "refused": False,
            "message": f"AFU {NLB0} is programmed, unless the region has it",
        }
    ]


@pytest.mark.parametrize("bent", [{"spec": {"devices": {"requests": [{}]}}}, {"metadata": {}}])
def test_a_claim_that_cannot_be_read_is_an_error(explain: Explain, bent: dict[str, Any]) -> None:
    done = explain(of_class(REGION) | bent, name="own")
    assert done.returncode == 2
    assert "ResourceClaim: " in done.stderr
