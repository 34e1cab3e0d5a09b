"""Every CEL expression of the manifests, on objects whose lists and maps are null, empty or absent.

An API server sends some empty lists as null, such as the containers of a pod that has none. An
expression without a value there refuses the pod in place of Kubernetes' own message.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from simulator.apiserver.crd import CelError, compile_expression
from simulator.demo.suite import ASKS_FOR_ACCELERATORS
from tests.manifests.helm import with_values
from tests.manifests.rendering import (
    COMPONENTS,
    INCLUDED,
    KUSTOMIZATIONS,
    Json,
    own_overlay,
    rendered,
)

PREFIXES = ("fpga.intel.com/", "accelbind.dev/")
CLASSES = "deviceclass.resource.kubernetes.io/"
GUARDED = {"guard": ("",), "guard-claims": (CLASSES,)}
CEL = ("expression", "rule", "messageExpression")
pytest.importorskip("cel_expr_python")


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Json]:
    """The objects of all kustomizations, of a component each, and of the chart."""
    found = [item for folder in (*KUSTOMIZATIONS, "dra") for item in rendered(folder)]
    for name in COMPONENTS:
        if name not in INCLUDED:
            found += own_overlay(tmp_path_factory.mktemp(name), name)
    return found + with_values(
        {"webhook": {"guard": ["nvidia.com/*"]}, "domains": ["fpga.intel.com", "a.b"]}
    )


def expressions(value: object) -> Iterator[str]:
    """The CEL expressions of an object, of whatever kind."""
    if isinstance(value, list):
        for each in value:
            yield from expressions(each)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name in CEL and isinstance(inner, str):
                yield inner
            else:
                yield from expressions(inner)


def test_every_expression_compiles(objects: list[Json]) -> None:
    found = {text for item in objects for text in expressions(item)}
    assert len(found) > 20
    for text in found:
        # The library knows neither: the end-to-end suite tries that policy.
        if not any(each in text for each in ("authorizer.", ".distinct()")):
            compile_expression(text)


def about_pods(items: list[Json]) -> Iterator[tuple[str, list[str]]]:
    """Each webhook about pods, with the expressions that decide whether it is called."""
    for item in items:
        for hook in item.get("webhooks", ()):
            if "pods" in hook["rules"][0]["resources"]:
                yield hook["name"], [each["expression"] for each in hook["matchConditions"]]


ASKING: list[Json] = [{"resources": {"limits": {f"{prefix}x": "1"}}} for prefix in PREFIXES]
LISTS: list[Any] = [
    *("absent", None, []),
    [{"name": "a"}],
    *[[{"resources": each}] for each in (None, {}, {"limits": None}, {"requests": None})],
    [{"resources": {"limits": {"cpu": "1"}, "requests": None}}],
    [{"name": "a"}, ASKING[0]],
    [{"resources": {"limits": None, "requests": {"accelbind.dev/x": None}}}],
    [{"name": "a"}, {"resources": {"limits": {"nvidia.com/gpu": "1"}}}],
    [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}],
    [{"resources": {"limits": {f"{CLASSES}gpu": "1"}}}],
    [{"resources": {"limits": {"nvidia.example/gpu": "1"}}}],
]
OF_THE_POD: list[Any] = ["absent", None, {}, {"limits": None}, ASKING[1]["resources"]]
METADATA: list[Json] = [
    {},
    *[{"annotations": each} for each in (None, {}, {"kubernetes.io/config.mirror": None})],
    {"annotations": {"kubernetes.io/config.other": "0"}},
]
KUBELET: Json = {"username": "system:node:a", "groups": ["system:nodes"]}
USERS: list[Json] = [
    {"username": "me"},
    {"username": "system:node:a"},
    {"username": "system:node:a", "groups": ["others"]},
    {"username": "mallory", "groups": ["system:nodes"]},
    KUBELET,
]


def present(**fields: object) -> Json:
    return {name: value for name, value in fields.items() if value != "absent"}


def pods() -> Iterator[Json | None]:
    yield from (None, {})
    for containers, init, resources in product(LISTS, LISTS, OF_THE_POD):
        yield present(containers=containers, initContainers=init, resources=resources)


def asks(spec: Json | None, prefixes: tuple[str, ...]) -> bool:
    """Whether a pod, or a container of it, has a resource with such a name."""
    spec = spec or {}
    holders = [spec, *(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    parts = [
        (one.get("resources") or {}).get(part) for one in holders for part in ("limits", "requests")
    ]
    keys = {key for part in parts for key in part or ()}
    return any("/" in key and key.startswith(prefixes) for key in keys)


def test_webhooks_are_called_for_pods_with_accelerators_whatever_else_is_null(
    objects: list[Json],
) -> None:
    conditions = {(name, *texts) for name, texts in about_pods(objects)}
    # None shares a name: an API server keeps the audit annotations of the first of a name.
    assert {name for name, *_ in conditions} == {
        *("pods.accelbind.dev", "last-check.accelbind.dev"),
        *("guard.accelbind.dev", "guard-claims.accelbind.dev"),
    }
    for name, text, _ in sorted(conditions):
        prefixes: tuple[str, ...] = GUARDED.get(name.partition(".")[0], PREFIXES)
        if "'a.b/'" in text:  # the chart, with other domains
            prefixes = (*PREFIXES, "a.b/")
        expression = compile_expression(text)
        for spec in pods():
            called = expression.holds({"object": {"metadata": {}, "spec": spec}})
            assert called is asks(spec, prefixes), (name, spec)
        assert not expression.holds({"object": {"metadata": {}}})


@pytest.mark.parametrize(
    ("claims", "is_called"),
    [("absent", False), (None, False), ([], False), ([{"name": "a"}], True)],
)
def test_the_guard_of_claims_is_called_for_pods_with_claims(
    objects: list[Json], claims: object, *, is_called: bool
) -> None:
    texts = {text for name, (text, _) in about_pods(objects) if name.startswith("guard-claims")}
    (text,) = texts
    spec = present(resourceClaims=claims, containers=[{"name": "a"}])
    assert compile_expression(text).holds({"object": {"spec": spec}}) is is_called


def test_the_demo_has_the_condition_of_the_manifests() -> None:
    (text,) = {
        " ".join(texts[0].split())
        for name, texts in about_pods(rendered("base"))
        if name == "pods.accelbind.dev"
    }
    assert " ".join(ASKS_FOR_ACCELERATORS.split()) == text


def test_mirror_pods_are_known_whatever_else_is_null(objects: list[Json]) -> None:
    for text in {texts[1] for _, texts in about_pods(objects)}:
        expression = compile_expression(text)
        for metadata, user in product(METADATA, USERS):
            scope = {"object": {"metadata": metadata}, "request": {"userInfo": user}}
            is_mirror = "kubernetes.io/config.mirror" in (metadata.get("annotations") or {})
            assert expression.holds(scope) is not (is_mirror and user is KUBELET), scope


def schemas(schema: Json, path: str) -> Iterator[tuple[str, Json]]:
    """All schemas within one, those of list items and of values too, each with its place."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from schemas(inner, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(inner := schema.get(name), dict):
            yield from schemas(inner, f"{path}.{name}")


def definitions(items: list[Json]) -> Iterator[tuple[str, Json]]:
    for item in items:
        if item["kind"] == "CustomResourceDefinition":
            for version in item["spec"]["versions"]:
                yield item["metadata"]["name"], version["schema"]["openAPIV3Schema"]


def sample(schema: Json, *, whole: bool) -> Any:
    """A value of a schema: with all its fields, or with the required ones only."""
    match schema["type"]:
        case "object":
            fields = schema.get("properties", {})
            names = fields if whole else schema.get("required", ())
            return {name: sample(fields[name], whole=whole) for name in names}
        case "array":
            return [sample(schema["items"], whole=whole)] if whole else []
        case "integer":
            return schema.get("minimum", 0)
        case _:
            return schema.get("enum", ["a/b"])[0]


def test_rules_of_definitions_have_a_verdict_whatever_is_absent(objects: list[Json]) -> None:
    """Kubernetes removes nulls from custom resources, so a field is there or absent."""
    judged = 0
    for name, root in definitions(objects):
        for path, schema in schemas(root, name):
            for rule in schema.get("x-kubernetes-validations", ()):
                values = [sample(schema, whole=whole) for whole in (True, False)]
                if schema["type"] == "object":
                    values += [{**values[1], key: values[0][key]} for key in values[0]]
                for value in values:
                    try:
                        compile_expression(rule["rule"]).holds({"self": value})
                    except CelError as error:
                        pytest.fail(f"{path}: {rule['rule']} has no value for {value}: {error}")
                    judged += 1
    assert judged > 100


def test_no_field_within_a_list_has_a_default(objects: list[Json]) -> None:
    """Clients replace lists as a whole: they would find a difference at each apply."""
    found = {name for name, _ in definitions(objects)}
    assert {name.partition(".")[0] for name in found} == {
        *("acceleratorfunctions", "fpgaregions", "accelerators")
    }
    for name, root in definitions(objects):
        defaults = {path for path, schema in schemas(root, name) if "default" in schema}
        assert not [path for path in defaults if ".items" in path]
        if name.startswith("accelerators"):
            assert defaults == {f"{name}.spec.target.count"}
