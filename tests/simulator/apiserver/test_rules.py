"""Validation rules of custom resource definitions: CEL on `self`, as a real API server says it."""

from typing import Any

import httpx2
import pytest

from simulator.apiserver.schemas import validate
from tests.simulator.apiserver.support import Json, created

pytest.importorskip("cel_expr_python")
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def rule(text: str, message: str = "", expression: str = "") -> Json:
    made = {"rule": text, "message": message, "messageExpression": expression}
    return {name: value for name, value in made.items() if value}


def schema(*rules: Json, **spec: Any) -> Json:
    properties = {"a": {"type": "string"}, "n": {"type": "integer"}}
    inner = {"type": "object", "properties": properties, "x-kubernetes-validations": [*rules]}
    return {"type": "object", "properties": {"spec": inner | spec}}


def messages(rules: Json, spec: object, old: object = None) -> list[str]:
    before = None if old is None else {"metadata": {"name": "x"}, "spec": old}
    causes = validate(rules, {"metadata": {"name": "x"}, "spec": spec}, before)
    return [f"{cause.field}: {cause.message}" for cause in causes]


def test_a_rule_that_holds_says_nothing() -> None:
    assert messages(schema(rule("self.n % 2 == 0", "odd")), {"n": 2}) == []


def test_a_broken_rule_says_its_message() -> None:
    assert messages(schema(rule("self.n > 1", "too few")), {"n": 1}) == [
        "spec: Invalid value: too few"
    ]
    assert messages(schema(rule("self.n > 1")), {"n": 1}) == [
        "spec: Invalid value: failed rule: self.n > 1"
    ]


def test_a_message_can_be_made_of_what_is_wrong_and_falls_back_where_it_cant() -> None:
    rules = schema(rule("self.n > 1", "too few", "'not ' + self.a"))
    assert messages(rules, {"n": 1, "a": "b"}) == ["spec: Invalid value: not b"]
    assert messages(rules, {"n": 1}) == ["spec: Invalid value: too few"]


def test_a_rule_without_a_value_counts_as_broken() -> None:
    (told,) = messages(schema(rule("self.a == 'x'", "no x")), {})
    assert told.startswith("spec: Invalid value: ")
    assert told.endswith("evaluating rule: no x")


def test_rules_of_a_text_show_it_and_those_of_names_are_read_too() -> None:
    text = {"type": "string", "x-kubernetes-validations": [rule("self != 'x'", "is x")]}
    assert messages(schema(properties={"a": text}), {"a": "x"}) == [
        'spec.a: Invalid value: "x": is x'
    ]
    metadata = {"type": "object", "properties": {"name": text}}
    assert messages({"type": "object", "properties": {"metadata": metadata}}, {}) == [
        'metadata.name: Invalid value: "x": is x'
    ]


def test_rules_wait_until_the_object_has_the_right_form() -> None:
    *_, last = messages(schema(rule("self.n > 1")), {"n": "1"})
    assert last.startswith("<nil>: Invalid value: null: some validation rules were not checked")
    (only,) = messages({"type": "object", "properties": {"spec": {"type": "string"}}}, {})
    assert only.startswith("spec: ")


def test_what_an_update_leaves_as_it_was_is_not_looked_at() -> None:
    rules = schema(rule("self.n > 1", "too few"), required=["a"])
    broken = {"n": 1}
    assert messages(rules, broken, broken) == []
    assert messages(rules, {"n": 1, "a": "b"}, broken) == ["spec: Invalid value: too few"]
    assert messages(schema(), {"n": "1", "a": "b"}, {"n": "1"}) == []
    assert messages(schema(), {"n": "2", "a": "b"}, {"n": "1"}) != []


@pytest.mark.anyio
@pytest.mark.parametrize(
    "broken", [rule("self.n >"), rule("oldSelf.n == self.n"), rule("true", expression="self.x +")]
)
async def test_a_definition_whose_rules_cant_be_read_is_refused(
    http: httpx2.AsyncClient, broken: Json
) -> None:
    definition: Json = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.test.example"},
        "spec": {
            "group": "test.example",
            "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema(broken)},
                }
            ],
        },
    }
    answer = await http.post(CRDS, json=definition)
    assert answer.status_code == 422
    assert "x-kubernetes-validations[0]." in answer.json()["message"]
    assert "compilation failed" in answer.json()["message"]
    rules = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    rules["x-kubernetes-validations"] = [rule("self.n > 1")]
    await created(http, CRDS, definition)
