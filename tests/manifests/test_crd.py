"""The custom resource definitions: their form, what they take, and that both judges agree.

What these tests expect of an API server was seen with Kubernetes' own code, 1.31 and 1.36; the
stand-in gave the same errors on thousands of random objects.
"""

from functools import cache

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from services.mappings.model import parse
from services.process.errors import InvalidMapping
from simulator.apiserver import crd
from tests.manifests.rendering import Json
from tests.manifests.test_expressions import schemas
from tests.simulator.apiserver.support import function
from tests.support import REPOSITORY

FOLDER = REPOSITORY / "manifests" / "crd"
KINDS = {"acceleratorfunctions": "AcceleratorFunction", "fpgaregions": "FpgaRegion"}
INTERFACE = "ce48969398f05f33946d560708be108a"
AFU = "d8424dc4a4a3c413f89e433683f9040b"
PHYSICAL = "af-ce4.d84.zkiwk5jwxzoubvyhcl4qithctcsko8qt-j5dnop5bas"
OPENCL = "0" * 38


@cache
def schema_of(plural: str) -> Json:
    definition = yaml.safe_load((FOLDER / f"{plural}.yaml").read_text())
    (version,) = definition["spec"]["versions"]
    found: Json = version["schema"]["openAPIV3Schema"]
    return found


def region(name: str = "arria", **spec: object) -> Json:
    return function(name) | {"kind": "FpgaRegion", "spec": {"interfaceId": INTERFACE} | spec}


def problems(obj: Json) -> list[str]:
    """The fields of an object that its schema objects to."""
    plural = next(plural for plural, kind in KINDS.items() if kind == obj["kind"])
    return [each.partition(":")[0] for each in crd.validate(schema_of(plural), obj)]


def can_serve(obj: Json) -> bool:
    try:
        parse(obj)
    except InvalidMapping:
        return False
    return True


# Their form


@pytest.mark.parametrize("plural", KINDS)
def test_the_schema_is_structural_and_bounded_where_rules_read_it(plural: str) -> None:
    for path, node in schemas(schema_of(plural), ""):
        assert node["type"] in ("object", "string"), path
        for rule in node.get("x-kubernetes-validations", []):
            assert rule["message"], path
            assert len(rule["message"]) < 2048, path
            assert "oldSelf" not in rule["rule"], "there is none when an object is made"
        if node["type"] == "string" and path.startswith((".spec", ".metadata")):
            assert "maxLength" in node or "enum" in node, f"{path}: rules would cost too much"
    metadata = schema_of(plural)["properties"]["metadata"]
    assert set(metadata) == {"type", "properties"}, "no more may be said of metadata"
    assert set(metadata["properties"]) == {"name"}


def test_names_and_version_are_those_of_existing_clusters() -> None:
    for plural, short in (("acceleratorfunctions", "af"), ("fpgaregions", "fpga")):
        spec = yaml.safe_load((FOLDER / f"{plural}.yaml").read_text())["spec"]
        assert spec["names"]["shortNames"] == [short]
        (version,) = spec["versions"]
        assert (version["name"], version["served"], version["storage"]) == ("v2", True, True)
        assert "subresources" not in version, "whoever writes a status writes it with the object"


# What they take


GOOD = [
    function("a" * 63),
    function("region-cursor"),
    function(afuId=f"{OPENCL}7f", mode="region"),
    function() | {"status": {}},
    region(mode="regiondevel"),
]
BAD = [
    (function(PHYSICAL), "metadata.name"),
    (region("region-00000000"), "metadata.name"),
    (function("a" * 64), "metadata.name"),
    (function(mode="afregion"), "spec.mode"),
    (function(mode=None), "spec.mode"),
    (function(afuId=AFU.upper()), "spec.afuId"),
    (function(afuId=f"{AFU}\n"), "spec.afuId"),
    (function(afuId=12345678), "spec.afuId"),
    (function(interfaceId="0" * 33), "spec.interfaceId"),
    (function(afuId="0" * 9), "spec"),
    (function(afuId=f"{OPENCL}7f"), "spec"),
    (region(interfaceId="0" * 7), "spec.interfaceId"),
    (region(mode="region"), "spec.mode"),
    (function() | {"spec": {"interfaceId": INTERFACE, "mode": "af"}}, "spec.afuId"),
    (region() | {"spec": {}}, "spec.interfaceId"),
    ({name: value for name, value in region().items() if name != "spec"}, "spec"),
]


def test_usable_mappings_are_accepted() -> None:
    files = sorted((REPOSITORY / "examples" / "mappings").glob("*.yaml"))
    existing = [one for file in files for one in yaml.safe_load_all(file.read_text())]
    assert len(existing) >= 6
    for obj in (*GOOD, *existing):
        assert problems(obj) == [], obj
        parse(obj)


@pytest.mark.parametrize(("obj", "field"), BAD)
def test_unusable_mappings_are_refused_at_their_field(obj: Json, field: str) -> None:
    found = problems(obj)
    assert found[0] == field
    assert set(found) == {field}


HEX = st.text("0123456789abcdef", min_size=6, max_size=43)
LABELS = st.from_regex(r"\A[a-z0-9]([-a-z0-9]{0,70}[a-z0-9])?(\.[a-z0-9]{1,5})?\Z")
PHYSICAL_LIKE = st.from_regex(r"\Aaf-[0-9a-f]{3}\.[0-9a-f]{3}\.[a-z0-9-]{9,50}[a-z0-9]\Z")
NAMES = LABELS | PHYSICAL_LIKE | HEX.map("region-{}".format)


@given(
    NAMES,
    st.fixed_dictionaries(
        {
            "interfaceId": HEX | st.just(INTERFACE),
            "afuId": HEX | st.sampled_from([AFU, f"{OPENCL}3e", f"{OPENCL}fd"]),
            "mode": st.sampled_from(["af", "region", "afx", "regiondevel"]),
        }
    ),
)
def test_the_definition_takes_what_the_webhook_takes(name: str, spec: Json) -> None:
    for obj in (function(name, **spec), region(name, interfaceId=spec["interfaceId"])):
        assert (problems(obj) == []) is can_serve(obj)


def test_a_region_gets_its_mode() -> None:
    stored = crd.prune(schema_of("fpgaregions"), region())
    assert stored["spec"] == {"interfaceId": INTERFACE, "mode": "regiondevel"}
    assert parse(stored).resolution.resource == f"region-{INTERFACE}"
