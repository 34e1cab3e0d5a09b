"""The custom resource definitions: their form, what they take, and that both judges agree.

What these tests expect of an API server was seen with Kubernetes' own code, 1.31 and 1.36; the
stand-in gave the same errors on thousands of random objects.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from services import names
from services.mappings.model import parse
from services.process.errors import InvalidMapping
from simulator.apiserver import crd
from simulator.apiserver.standin import ApiServerStandIn
from tests.simulator.apiserver.support import client_of, created
from tests.support import REPOSITORY

Json = dict[str, Any]

FOLDER = REPOSITORY / "manifests" / "crd"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KINDS = {"acceleratorfunctions": "AcceleratorFunction", "fpgaregions": "FpgaRegion"}
BASE = "/apis/fpga.intel.com/v2/namespaces/default"
INTERFACE = "ce48969398f05f33946d560708be108a"
AFU = "d8424dc4a4a3c413f89e433683f9040b"
PHYSICAL = "af-ce4.d84.zkiwk5jwxzoubvyhcl4qithctcsko8qt-j5dnop5bas"
OPENCL = "0" * 38


def definition(plural: str) -> Json:
    found: Json = yaml.safe_load((FOLDER / f"{plural}.yaml").read_text())
    return found


def version_of(plural: str) -> Json:
    (version,) = definition(plural)["spec"]["versions"]
    found: Json = version
    return found


def schema_of(plural: str) -> Json:
    found: Json = version_of(plural)["schema"]["openAPIV3Schema"]
    return found


def function(name: str = "nlb0", **spec: object) -> Json:
    return {
        "apiVersion": "fpga.intel.com/v2",
        "kind": "AcceleratorFunction",
        "metadata": {"name": name},
        "spec": {"afuId": AFU, "interfaceId": INTERFACE, "mode": "af"} | spec,
    }


def region(name: str = "arria", **spec: object) -> Json:
    return {
        "apiVersion": "fpga.intel.com/v2",
        "kind": "FpgaRegion",
        "metadata": {"name": name},
        "spec": {"interfaceId": INTERFACE} | spec,
    }


def plural_of(obj: Json) -> str:
    return next(plural for plural, kind in KINDS.items() if kind == obj["kind"])


def problems(obj: Json, old: Json | None = None) -> list[str]:
    """The fields of an object that its schema objects to."""
    causes = crd.validate(schema_of(plural_of(obj)), obj, old)
    return [cause.field for cause in causes]


def can_serve(obj: Json) -> bool:
    try:
        parse(obj)
    except InvalidMapping:
        return False
    return True


def without(obj: Json, key: str) -> Json:
    return obj | {"spec": {name: value for name, value in obj["spec"].items() if name != key}}


# Their form


def nodes(schema: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")


@pytest.mark.parametrize("plural", KINDS)
def test_the_schema_is_structural_and_bounded_where_rules_read_it(plural: str) -> None:
    for path, node in nodes(schema_of(plural)):
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


@pytest.mark.parametrize("plural", KINDS)
def test_names_and_version_are_those_of_existing_clusters(plural: str) -> None:
    found = definition(plural)
    assert found["metadata"]["name"] == f"{plural}.fpga.intel.com"
    spec = found["spec"]
    kind = KINDS[plural]
    assert (spec["group"], spec["scope"]) == ("fpga.intel.com", "Namespaced")
    assert (spec["names"]["kind"], spec["names"]["listKind"]) == (kind, f"{kind}List")
    assert (spec["names"]["plural"], spec["names"]["singular"]) == (plural, kind.lower())
    short = {"acceleratorfunctions": ["af"], "fpgaregions": ["fpga"]}
    assert spec["names"]["shortNames"] == short[plural]
    version = version_of(plural)
    assert (version["name"], version["served"], version["storage"]) == ("v2", True, True)
    assert "subresources" not in version, "whoever writes a status writes it with the object"


def test_the_rule_for_names_is_the_one_of_the_domain() -> None:
    for plural in KINDS:
        name = schema_of(plural)["properties"]["metadata"]["properties"]["name"]
        (rule,) = name["x-kubernetes-validations"]
        shapes = (names._REGION.pattern, names._FUNCTION.pattern)
        region_, function_ = (shape.replace("(", "").replace(")", "") for shape in shapes)
        function_ = function_.replace("\\", "\\\\")  # as CEL spells it in quotes
        assert rule["rule"] == f"!self.matches('^({region_}|{function_})$')"
        assert name["maxLength"] == 63


# What they take


GOOD = [
    function(),
    function(mode="region"),
    function("a" * 63),
    function("arria10.dcp1.0-nlb0"),
    function("af-x"),
    function("region-cursor"),
    function("af"),
    function(afuId="0" * 8, interfaceId="0" * 8),
    function(afuId=f"{OPENCL}00"),
    function(afuId=f"{OPENCL}7f", mode="region"),
    function(afuId="0" * 9, mode="region"),
    function() | {"status": {}},
    region(),
    region("d5005", interfaceId="0" * 8),
    region(mode="regiondevel"),
]
BAD = [
    (function(PHYSICAL), "metadata.name"),
    (function(f"region-{INTERFACE}"), "metadata.name"),
    (region(PHYSICAL), "metadata.name"),
    (region("region-00000000"), "metadata.name"),
    (function("a" * 64), "metadata.name"),
    (function(mode="afregion"), "spec.mode"),
    (function(mode="af-devel"), "spec.mode"),
    (function(mode="myregion"), "spec.mode"),
    (function(mode="regiondevel"), "spec.mode"),
    (function(mode=""), "spec.mode"),
    (function(mode=None), "spec.mode"),
    (function(afuId=AFU.upper()), "spec.afuId"),
    (function(afuId="0" * 7), "spec.afuId"),
    (function(afuId="0" * 41), "spec.afuId"),
    (function(afuId=f"{AFU}\n"), "spec.afuId"),
    (function(afuId=12345678), "spec.afuId"),
    (function(interfaceId="0" * 33), "spec.interfaceId"),
    (function(interfaceId=f"x{INTERFACE[1:]}"), "spec.interfaceId"),
    (function(afuId="0" * 9), "spec"),
    (function(afuId=f"{OPENCL}7f"), "spec"),
    (region(interfaceId="0" * 7), "spec.interfaceId"),
    (region(mode="region"), "spec.mode"),
    (without(function(), "afuId"), "spec.afuId"),
    (without(function(), "interfaceId"), "spec.interfaceId"),
    (without(function(), "mode"), "spec.mode"),
    (without(region(), "interfaceId"), "spec.interfaceId"),
    ({name: value for name, value in region().items() if name != "spec"}, "spec"),
]


@pytest.mark.parametrize("obj", GOOD)
def test_what_can_serve_is_taken(obj: Json) -> None:
    assert problems(obj) == []
    parse(obj)


@pytest.mark.parametrize(("obj", "field"), BAD)
def test_what_cant_serve_is_refused_at_its_field(obj: Json, field: str) -> None:
    found = problems(obj)
    assert found[0] == field
    assert set(found) <= {field, "spec", "<nil>"}, "ids of a wrong length may break a rule as well"


def test_mappings_of_existing_clusters_are_taken() -> None:
    files = [*(REPOSITORY / "examples" / "mappings").glob("*.yaml")]
    objects = [one for file in files for one in yaml.safe_load_all(file.read_text())]
    assert len(objects) >= 6
    for obj in objects:
        assert problems(obj) == []


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


# Through an API server


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """A stand-in with our definitions."""
    async with ApiServerStandIn(tmp_path) as api, client_of(api) as client:
        for plural in KINDS:
            await created(client, CRDS, definition(plural))
        yield client


@pytest.mark.anyio
async def test_a_region_gets_its_mode(http: httpx2.AsyncClient) -> None:
    stored = await created(http, f"{BASE}/fpgaregions", region())
    assert stored["spec"] == {"interfaceId": INTERFACE, "mode": "regiondevel"}
    assert parse(stored).resolution.resource == f"region-{INTERFACE}"
