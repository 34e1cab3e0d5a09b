"""Fields and types of mappings, which are those of the custom resource definitions."""

from typing import Any

import msgspec
import pytest
import yaml

from services.mappings.kinds import SPECS, TABLE, unknown_fields, wrong_type
from tests.services.building import accelerator, function
from tests.support import REPOSITORY


@pytest.mark.parametrize("kind", SPECS)
def test_fields_are_those_of_the_definition(kind: str) -> None:
    text = (REPOSITORY / f"manifests/crd/{TABLE[kind].plural}.yaml").read_text()
    (version,) = yaml.safe_load(text)["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    (shapes, defined) = msgspec.json.schema_components([SPECS[kind]])
    assert names(spec) == names(defined[shapes[0]["$ref"].rpartition("/")[2]], defined)


def names(schema: dict[str, Any], defined: dict[str, Any] | None = None) -> Any:
    """The names of all fields, as nested dictionaries."""
    if defined and "$ref" in schema:
        schema = defined[schema["$ref"].rpartition("/")[2]]
    if "items" in schema:
        return names(schema["items"], defined)
    return {name: names(each, defined) for name, each in schema.get("properties", {}).items()}


def of(**spec: object) -> dict[str, Any]:
    obj = accelerator("a", "a/x")
    return obj | {"spec": obj["spec"] | spec}


def annotated(value: object) -> dict[str, Any]:
    obj = of()
    return obj | {"metadata": obj["metadata"] | {"annotations": {"a": value}, "generation": 1}}


@pytest.mark.parametrize(
    ("obj", "problem"),
    [
        (annotated("true"), ""),
        (function("f", "af") | {"status": {"any": 1}}, ""),
        ({"kind": "FpgaRegion", "metadata": {}}, ""),  # that it has no spec is another finding
        (annotated(True), "metadata.annotations[...]: Expected `str`, got `bool`"),
        (of(target={"resource": "a/x", "count": "2"}), "spec.target.count: Expected `int`, got"),
        (of(env=[{"name": "A", "value": 5}]), "spec.env[0].value: Expected `str`, got `int`"),
        (of(runtimeClassName=None, env=None, target={"resource": "a/x", "count": None}), ""),
        (of(alsoRequest=[{"resource": "a/y", "count": None, "per": None}]), ""),
        (of(alsoRequest=[None]), "spec.alsoRequest[0]: Expected `object`, got `null`"),
        (of(nodeselector={}), 'there is no field "spec.nodeselector"'),
        (of(alsoRequest=[{"resource": "a/y", "of": 1}]), 'no field "spec.alsoRequest[0].of"'),
        (of(nodeSelector={"any": ""}) | {"sepc": {}}, 'there is no field "sepc"'),
    ],
)
def test_fields_that_an_api_server_refuses_or_drops_are_named(
    obj: dict[str, Any], problem: str
) -> None:
    found = wrong_type(obj["kind"], obj)
    unknown = [] if found else [*unknown_fields(obj["kind"], obj)]
    assert problem in "; ".join([found, *unknown])
    assert bool(found or unknown) is bool(problem)
