"""Fields and types of mappings, which are those of the custom resource definitions."""

from typing import Any

import pytest
import yaml

from services.mappings.kinds import TABLE
from services.mappings.schema import SPECS, unknown_fields, wrong_types
from tests.services.building import accelerator, function
from tests.support import REPOSITORY

TYPES = {"string": str, "integer": int}


def shape(schema: dict[str, Any]) -> object:
    """What a schema of a definition says, as `SPECS` says it."""
    if schema["type"] == "array":
        return [shape(schema["items"])]
    if schema["type"] == "object":
        others = schema.get("additionalProperties")
        fields = schema["properties"] if others is None else {"*": others}
        return {name: shape(inner) for name, inner in fields.items()}
    return TYPES[schema["type"]]


@pytest.mark.parametrize("kind", SPECS)
def test_fields_and_types_are_those_of_the_definition(kind: str) -> None:
    text = (REPOSITORY / f"manifests/crd/{TABLE[kind].plural}.yaml").read_text()
    (version,) = yaml.safe_load(text)["spec"]["versions"]
    fields = version["schema"]["openAPIV3Schema"]["properties"]
    assert shape(fields["spec"]) == SPECS[kind]
    assert fields.keys() <= {"apiVersion", "kind", "metadata", "spec", "status"}


def of(**spec: object) -> dict[str, Any]:
    obj = accelerator("a", "a/x")
    return obj | {"spec": obj["spec"] | spec}


GOOD = [of(), function("f", "af"), function("f", "af") | {"status": {"any": 1}}, {"kind": "Pod"}, 5]


@pytest.mark.parametrize("obj", GOOD)
def test_what_an_api_server_takes_has_no_problem(obj: object) -> None:
    assert [*wrong_types(obj), *unknown_fields(obj)] == []


COUNT = "spec.target.count must be a whole number"


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"target": {"resource": "a/x", "count": "2"}}, f"{COUNT}: write it without quotes"),
        ({"target": {"resource": "a/x", "count": "x"}}, COUNT),
        ({"target": {"resource": "a/x", "count": True}}, COUNT),
        ({"env": [{"value": 5}]}, "spec.env[0].value must be a text: put it into quotes"),
        ({"nodeSelector": {"gpu": True}}, "spec.nodeSelector.gpu must be a text: put it into"),
        ({"alsoRequest": {}}, "spec.alsoRequest must be a list"),
        ({"runtimeClassName": None}, "spec.runtimeClassName must be a text: remove it, or give"),
    ],
)
def test_a_value_of_another_type_is_named(spec: dict[str, object], problem: str) -> None:
    obj = of(**spec)
    (said,) = wrong_types(obj)
    assert said.startswith(problem)
    assert [*unknown_fields(obj)] == []


@pytest.mark.parametrize(
    ("obj", "problem"),
    [
        (of(nodeselector={}), '"spec.nodeselector"; did you mean nodeSelector?'),
        (of(target={"resource": "a/x", "of": 1}), '"spec.target.of"; there are resource, count'),
        (of() | {"sepc": {}}, '"sepc"; did you mean spec?'),
    ],
)
def test_a_field_that_an_api_server_drops_is_named(obj: object, problem: str) -> None:
    assert [*unknown_fields(obj)] == [f"there is no field {problem}"]
    assert [*wrong_types(obj)] == []


def test_labels_and_annotations_are_texts_and_other_metadata_is_open() -> None:
    obj = of()
    obj["metadata"] |= {"annotations": {"a": True}, "generation": 1}
    assert [*wrong_types(obj)] == ["metadata.annotations.a must be a text: put it into quotes"]
    assert [*unknown_fields(obj)] == []
