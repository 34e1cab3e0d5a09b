"""Match conditions: the CEL that is read, what it comes to, and what is refused."""

from typing import Any

import pytest

from simulator.apiserver.cel import EvaluationProblem, compile_expression
from simulator.apiserver.cel_syntax import SyntaxProblem
from tests.simulator.apiserver.support import Json

ASKS_FOR_FPGA = """
(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c,
  c.?resources.?limits.orValue({}).exists(k, k.startsWith('fpga.intel.com/')) ||
  c.?resources.?requests.orValue({}).exists(k, k.startsWith('fpga.intel.com/')))
"""


def holds(text: str, item: object = None) -> bool:
    return compile_expression(text).holds({"object": item, "oldObject": None, "request": {}})


def of(**resources: Json) -> Json:
    return {"name": "c", "resources": resources}


FPGA = {"fpga.intel.com/nlb0": "1"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [of(limits=FPGA)]}, True),
        ({"containers": [of(requests=FPGA)]}, True),
        ({"containers": [of(limits={"cpu": "1"})]}, False),
        ({"containers": [{"name": "c"}]}, False),
        ({"containers": [{"name": "c", "resources": {}}], "initContainers": []}, False),
        ({"containers": [{"name": "c"}], "initContainers": [of(limits=FPGA)]}, True),
        ({"containers": [of(limits={"x": "1", **FPGA})]}, True),
    ],
)
def test_the_condition_of_our_configurations_finds_pods_that_ask_for_an_fpga(
    spec: Json, expected: bool
) -> None:
    assert holds(ASKS_FOR_FPGA, {"spec": spec}) is expected


@pytest.mark.parametrize(
    "text",
    [
        "true",
        "!false",
        "1 + 2 == 3",
        "3 - 2 == 1",
        "-1 < 0",
        "1.5 >= 1",
        "2 > 1 && 1 <= 1",
        "'a' + \"b\" == 'ab'",
        r"'it\'s\n' != 'x'",
        "[1, 2] + [3] == [1, 2, 3]",
        "2 in [1, 2]",
        "'a' in {'a': 1}",
        "{'a': 1}['a'] == 1",
        "[1, 2][1] == 2",
        "[1][?5].orValue(7) == 7",
        "{'a': 1}.?b.hasValue() == false",
        "{'a': {'b': 2}}.?a.b.orValue(0) == 2",
        "{}.?a.b.?c.orValue(0) == 0",
        "has(object.spec)",
        "!has(object.status)",
        "false ? false : true",
        "size([1, 2]) == 2 && 'abc'.size() == 3",
        "'abc'.endsWith('c') && 'abc'.contains('b') && 'abc'.matches('^a.c$')",
        "'ABC'.lowerAscii() == 'abc'",
        "string(1) == '1'",
        "[1, 2, 3].all(x, x > 0)",
        "[1, 2, 3].exists_one(x, x == 2)",
        "[1, 2, 3].filter(x, x > 1).map(y, y + 1) == [3, 4]",
        "true != 1",
        "null == null",
        "oldObject == null",
        "true || object.nothing",
        "object.nothing || true",
        "!(object.nothing && false)",
        "[1, 0].exists(x, x == 0 || object.nothing)",
        "object.spec.a == 1 && (object.spec.b == 2 || object.spec.b == 3)",
    ],
)
def test_what_is_true(text: str) -> None:
    assert holds(text, {"spec": {"a": 1, "b": 3}})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("object.nothing", "no such key: nothing"),
        ("object.nothing && true", "no such key: nothing"),
        ("[true].all(x, object.nothing)", "no such key"),
        ("object", "must evaluate to bool"),
        ("1 && true", "no such overload"),
        ("!1", "no such overload"),
        ("1 + 'a' == 2", "no such overload"),
        ("true + true == 2", "no such overload"),
        ("1 < 'a'", "no such overload"),
        ("1.startsWith('a')", "no such overload"),
        ("'a'.startsWith(1)", "no such overload"),
        ("'a'.matches('(')", "no such overload"),
        ("size(1) == 1", "no such overload"),
        ("1 in 2", "no such overload"),
        ("'a'.b", "no such overload"),
        ("'abc'.all(x, true)", "no such overload"),
        ("[1][1] == 1", "no such key: 1"),
        ("object.orValue(1) == 1", "no such overload"),
        ("object.hasValue()", "no such overload"),
    ],
)
def test_what_has_no_value(text: str, problem: str) -> None:
    with pytest.raises(EvaluationProblem, match=problem):
        holds(text, {})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected a name before 'the end'"),
        ("1 +", "expected a name before 'the end'"),
        ("(1", r"expected '\)' before 'the end'"),
        ("1 2", "unexpected '2' behind"),
        ("a == 1", "undeclared reference to 'a'"),
        ("[1].all(x, y)", "undeclared reference to 'y'"),
        ("frobnicate(1)", "undeclared reference to 'frobnicate'"),
        ("{'a': b}", "undeclared reference to 'b'"),
        ("[b][0]", "undeclared reference to 'b'"),
        ("object.a.exists(1, true)", "exists takes a variable"),
        ("has(object)", "takes a field selection"),
        ("object.1", "expected a name before '1'"),
        ("1 * 2", r"unexpected '\*' at character 1"),
        ("true ? 1", "expected ':'"),
        ("'open", 'unexpected "\'"'),
    ],
)
def test_what_is_no_expression(text: str, problem: str) -> None:
    with pytest.raises(SyntaxProblem, match=problem):
        compile_expression(text)


def test_a_variable_of_a_macro_hides_an_outer_one() -> None:
    scope: dict[str, Any] = {"object": [1], "oldObject": None, "request": None}
    assert compile_expression("object.exists(object, object == 1)").holds(scope)


@pytest.mark.parametrize(("text", "value"), [("7 % 3", 1), ("-7 % 3", -1), ("1 + 8 % 3 * 1", None)])
def test_remainders_are_those_of_c(text: str, value: int | None) -> None:
    if value is None:
        with pytest.raises(SyntaxProblem):
            holds(f"{text} == 0")
    else:
        assert holds(f"{text} == {value}")


@pytest.mark.parametrize("text", ["1 % 0", "'a' % 2", "true % 2", "1.5 % 2"])
def test_remainders_of_anything_else_have_no_value(text: str) -> None:
    with pytest.raises(EvaluationProblem):
        holds(f"{text} == 0")


def test_the_end_of_a_pattern_is_the_very_end() -> None:
    assert holds("'a'.matches('^a$')")
    assert not holds(r"'a\n'.matches('^a$')")
    assert holds(r"'a$'.matches('\\$')")
