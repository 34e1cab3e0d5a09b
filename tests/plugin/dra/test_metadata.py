"""The metadata that a container reads of its devices (KEP-5304), for each kind of claim."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from plugin.dra.claim_files import IN_CONTAINER
from services.devices.dra import DRIVER
from simulator.cards import NLB3
from simulator.driver import DriverStandIn
from tests.plugin.dra.support import ENGINE, Bed, claim, extended_claim, mapping, result, with_claim
from tests.plugin.support import container, functions, pod
from tests.services.building import REGION

NAMES: Final = re.compile(r"(?:[a-z0-9.-]{1,63}/)?[A-Za-z_][A-Za-z0-9_]{0,31}")
LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
VALUES: Final = {"string": str, "int": int, "bool": bool}
FROM_TEMPLATE: Final = {"resource.kubernetes.io/pod-claim-name": "mine"}


@pytest.fixture
def engines(bed: Bed) -> list[str]:
    """The names of two devices of a type."""
    return bed.add_engines(0, 1)


def files(bed: Bed, item: dict[str, Any]) -> dict[str, str]:
    """The files that a container with a claim has, by their paths in it."""
    mounts = [each for edits in bed.cdi(item).values() for each in edits.get("mounts", ())]
    assert all({"ro", "bind"} <= set(each["options"]) for each in mounts)
    paths = [each["containerPath"] for each in mounts]
    assert len({*paths}) == len(paths)
    return {each["containerPath"]: Path(each["hostPath"]).read_text() for each in mounts}


def check(text: str, item: dict[str, Any], reference: str) -> dict[str, Any]:
    """See that a file is as the types of the API say; return what it says in each version."""
    newest: dict[str, Any]
    newest, older = map(json.loads, text.splitlines())
    versions = [each.pop("apiVersion") for each in (newest, older)]
    assert versions == [f"metadata.resource.k8s.io/{each}" for each in ("v1beta1", "v1alpha1")]
    assert newest == older
    about = item["metadata"]
    name = about.get("annotations", {}).get("resource.kubernetes.io/pod-claim-name")
    (request,) = newest["requests"]
    assert newest == {
        "kind": "DeviceMetadata",
        "metadata": {"generation": 1, **{key: about[key] for key in ("name", "namespace", "uid")}},
        "requests": [{"name": reference, "devices": request["devices"]}],
    } | ({"podClaimName": name} if name else {})
    for device in request["devices"]:
        assert device.keys() == {"driver", "pool", "name", "attributes"}
        assert (device["driver"], device["pool"]) == (DRIVER, "n1")
        assert LABEL.fullmatch(device["name"])
        assert len(device["attributes"]) <= 32
        for key, typed in device["attributes"].items():
            assert NAMES.fullmatch(key)
            ((kind, value),) = typed.items()
            assert type(value) is VALUES[kind]
    return newest


A_POD: Final = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
CASES: Final = {
    "of a template": (("r",), FROM_TEMPLATE, "resourceclaimtemplates/mine/r", "r", 1),
    "named": (("r",), {}, "resourceclaims/c/r", "r", 1),
    "of a list of alternatives": (("r/big",), {}, "resourceclaims/c/r", "r/big", 1),
    "of two devices": (("r", "r"), {}, "resourceclaims/c/r", "r", 2),
    "named, and annotated as if made of a template": (
        ("r",),
        FROM_TEMPLATE,
        "resourceclaims/c/r",
        "r",
        1,
    ),
    "with an annotation of its user": (
        ("r",),
        {"resource.kubernetes.io/pod-claim-name": "../../etc"},
        "resourceclaims/c/r",
        "r",
        1,
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_claim_has_a_file_for_each_request(bed: Bed, engines: list[str], case: str) -> None:
    requests, annotations, place, reference, count = CASES[case]
    made = zip(engines, requests, strict=False)
    item = claim("c", *(result(*each) for each in made), annotations=annotations)
    item["metadata"]["ownerReferences"] = [A_POD] if "templates" in place else []
    async with bed.running(device_types=bed.folder / "types"):
        await bed.ready(item)
        ((path, text),) = files(bed, item).items()
        assert path == f"{IN_CONTAINER}/{place}/{DRIVER}-metadata.json"
        item["metadata"]["annotations"] = annotations if "mine" in place else {}
        (request,) = check(text, item, reference)["requests"]
        assert [each["name"] for each in request["devices"]] == engines[:count]
        assert request["devices"][0]["attributes"]["type"] == {"string": ENGINE}
        await bed.unprepare(item)
    assert not [*(bed.folder / "state/metadata").iterdir()]


async def test_the_file_for_extended_resources_names_the_function_that_is_programmed(
    bed: Bed, driver: DriverStandIn
) -> None:
    device = result(bed.add_fpga(), "container-0-request-0")
    bed.install(NLB3)
    bed.api.put(mapping("nlb3", NLB3))
    owner = pod("p", container("c", REGION, 1, functions(NLB3)))
    bed.api.put(with_claim(owner, ("container-0-request-0", "c", REGION)))
    item = extended_claim(owner, device)
    async with bed.running(programming="none"):
        await bed.refused(item)
    async with bed.running():
        await bed.ready(item)
    assert [each.afu_id for each in driver.programmed] == [NLB3]
    ((path, text),) = files(bed, item).items()
    name = item["metadata"]["name"]
    assert (
        path == f"{IN_CONTAINER}/resourceclaims/{name}/container-0-request-0/{DRIVER}-metadata.json"
    )
    (request,) = check(text, item, "container-0-request-0")["requests"]
    attributes = request["devices"][0]["attributes"]
    assert attributes["afuID"] == {"string": NLB3}
    assert attributes["program"] == {"string": ""}
    assert attributes["programmable"] == {"bool": True}
