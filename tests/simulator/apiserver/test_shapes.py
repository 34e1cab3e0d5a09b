"""The pure parts: quantities, patches, schemas, names."""

from typing import Any

import pytest

from simulator.apiserver import names, patches, quantities, schemas, shapes, wire
from tests.simulator.apiserver.support import Json


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("1", "1"),
        (2, "2"),
        (0.5, "500m"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("1.", "1"),
        ("1000", "1k"),
        ("1024", "1024"),
        ("1Ki", "1Ki"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("5E", "5E"),
        ("100k", "100k"),
        ("-1", "-1"),
        ("+3", "3"),
        ("0", "0"),
        ("0.1n", "1n"),
    ],
)
def test_quantities_become_canonical(given: object, expected: str) -> None:
    assert quantities.canonical(given) == expected


@pytest.mark.parametrize(
    "given", ["", "x", "1x", "1 ", "--1", "1e", "1KI", ".", True, None, "1e9999"]
)
def test_what_is_no_quantity_is_refused(given: object) -> None:
    with pytest.raises(quantities.NotAQuantity, match="quantities must match"):
        quantities.canonical(given)


def test_nanos_are_whole_numbers() -> None:
    assert quantities.nanos("1500m") == 1_500_000_000


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"env": [{"name": "A", "value": "2"}]}, {"A": "2", "B": "1"}),
        ({"env": [{"name": "C", "value": "1"}]}, {"A": "1", "B": "1", "C": "1"}),
        ({"env": [{"name": "A", "$patch": "delete"}]}, {"B": "1"}),
        ({"env": [{"$patch": "replace"}, {"name": "Z", "value": "1"}]}, {"Z": "1"}),
        ({"env": None}, {}),
    ],
)
def test_strategic_patches_merge_by_name(patch: Json, expected: dict[str, str]) -> None:
    target = {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]}
    result = patches.strategic(target, patch)
    found = {one["name"]: one["value"] for one in result.get("env", []) if "name" in one}
    assert found == expected


def test_strategic_directives_replace_and_delete_objects() -> None:
    target = {"a": {"x": 1}, "b": {"y": 1}}
    patch = {"a": {"$patch": "replace", "z": 2}, "b": {"$patch": "delete"}}
    assert patches.strategic(target, patch) == {"a": {"z": 2}}


def test_a_list_without_a_merge_key_is_replaced() -> None:
    target = {"tolerations": [{"key": "a", "operator": "Exists"}]}
    patch = {"tolerations": [{"key": "b", "operator": "Exists"}]}
    assert patches.strategic(target, patch) == patch


def test_empty_fields_are_left_out() -> None:
    item: Json = {"labels": {}, "spec": {"containers": [], "emptyDir": {}, "args": [], "x": None}}
    assert shapes.without_empty(item) == {"spec": {"containers": [], "emptyDir": {}}}


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "minLength": 2, "maxLength": 3, "enum": ["ab", "abc", "c"]},
        "count": {"type": "integer", "minimum": 1, "maximum": 3},
        "list": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "either": {"x-kubernetes-int-or-string": True, "type": "string"},
        "nothing": {"type": "string", "nullable": True},
        "flag": {"type": "boolean"},
    },
}


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"text": "ab", "count": 2, "list": ["a"], "map": {"x": 1}, "free": {"y": 1}}, []),
        ({"either": 1, "nothing": None, "flag": True}, []),
        ({"either": "1"}, []),
        ({"text": "c"}, ["text in body should be at least 2 chars long"]),
        ({"text": "abcd"}, ["Unsupported value", "Too long: may not be more than 3 bytes"]),
        ({"count": 0}, ["should be greater than or equal to 1"]),
        ({"count": 4}, ["should be less than or equal to 3"]),
        ({"count": True}, ['must be of type integer: "boolean"']),
        ({"list": []}, ["should have at least 1 items"]),
        ({"list": ["a", "b", "c"]}, ["must have at most 2 items"]),
        ({"list": [1]}, ['list[0] in body must be of type string: "integer"']),
        ({"map": {"x": "y"}}, ['map.x in body must be of type integer: "string"']),
        ({"text": None}, ['must be of type string: "null"', "Unsupported value: null"]),
        ({"either": 1.5}, ["must be of type string"]),
    ],
)
def test_schemas_say_what_does_not_fit(item: Json, expected: list[str]) -> None:
    texts = [cause.text() for cause in schemas.validate(SCHEMA, item)]
    assert len(texts) == len(expected)
    for text, part in zip(texts, expected, strict=True):
        assert part in text


def test_pruning_names_what_it_drops() -> None:
    item = {"metadata": {"name": "x"}, "list": [{"a": 1}], "free": {"y": 1}, "odd": 1}
    schema = {"properties": SCHEMA["properties"] | {"list": {"items": {"properties": {}}}}}
    kept, dropped = schemas.prune(schema, item)
    assert dropped == ["list[0].a", "odd"]
    assert kept == {"metadata": {"name": "x"}, "list": [{}], "free": {"y": 1}}


@pytest.mark.parametrize("name", ["a", "a.b", "0-a.x", "a" * 253])
def test_subdomains(name: str) -> None:
    assert names.subdomain_problem(name) == ""


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a.", "a" * 254, "a..b"])
def test_no_subdomains(name: str) -> None:
    assert names.subdomain_problem(name)


@pytest.mark.parametrize("name", ["", "/a", "a/", "a/b/c", "a" * 64, "a/-b", "A/b"])
def test_no_qualified_names(name: str) -> None:
    assert names.qualified_problem(name)


def test_pretty_json_is_gos() -> None:
    data = wire.encode({"b": [], "a": {}, "c": ["<"]})
    assert wire.pretty(data) == b'{\n  "b": [],\n  "a": {},\n  "c": [\n    "\\u003c"\n  ]\n}'
    assert wire.encode({"b": 1, "a": 2}, sort=True) == b'{"a":2,"b":1}'
