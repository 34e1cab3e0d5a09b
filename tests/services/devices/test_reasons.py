"""The table of reason codes against the codes that are made anywhere in the code."""

import ast
from collections.abc import Iterator

import pytest

from services.devices.health import DeviceNodeState, Reading, evaluate_id, evaluate_node
from services.devices.limits import TOO_HOT, TOO_MUCH_POWER
from services.devices.model import Problem
from services.devices.reasons import FLAGS, OTHERWISE, REASONS, REGISTERS, remedy
from services.node.table import GONE
from tests.support import REPOSITORY

TABLE = REPOSITORY / "services" / "devices" / "reasons.py"
COMPOSED = ("afu-id-", "interface-id-")
SUFFIX = "-unreadable"


def modules() -> Iterator[ast.Module]:
    for room in ("services", "plugin", "accelbind"):
        for path in sorted((REPOSITORY / room).rglob("*.py")):
            if path != TABLE and not path.name.endswith(("_pb2.py", "_pb2_grpc.py")):
                yield ast.parse(path.read_text())


def constants(module: ast.Module) -> dict[str, str]:
    """Names of a module that stand for a text."""
    found = {}
    for node in module.body:
        value = getattr(node, "value", None)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            for target in getattr(node, "targets", [getattr(node, "target", None)]):
                if isinstance(target, ast.Name):
                    found[target.id] = value.value
    return found


def made() -> Iterator[str]:
    """Codes that stand in a call of `Problem` or `Register`, as a text or as a constant."""
    for module in modules():
        named = constants(module)
        for node in ast.walk(module):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            place = {"Problem": 0, "Register": 1}.get(node.func.id)
            if place is None or len(node.args) <= place:
                continue
            code = node.args[place]
            if isinstance(code, ast.Constant):
                yield str(code.value)
            elif isinstance(code, ast.Name) and code.id in named:
                yield named[code.id]


def texts() -> set[str]:
    return {
        node.value
        for module in modules()
        for node in ast.walk(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_every_code_that_is_made_is_in_the_table() -> None:
    found = set(made())
    assert {"card-hung", "port-errors", "recovering", "sensors-hung", "no-driver"} <= found
    assert found - set(REASONS) == {GONE}  # of a row without a device, in `accelbind devices` only
    assert {TOO_HOT, TOO_MUCH_POWER} <= set(REASONS)


def test_every_code_of_the_table_is_made_somewhere() -> None:
    known = texts()
    registers = {f"{each}{SUFFIX}" for each in (*REGISTERS, *FLAGS)}
    whole = {each for each in REASONS if not each.startswith(COMPOSED)}
    assert whole - registers - known == set()


@pytest.mark.parametrize("text", ["", "ff" * 16, "no id", "f" * 31])
@pytest.mark.parametrize("what", ["afu-id", "interface-id"])
def test_every_verdict_on_an_id_is_in_the_table(what: str, text: str) -> None:
    _, problem = evaluate_id(what, "file", "port", Reading(text))
    assert problem is not None
    assert problem.reason in REASONS


def test_every_verdict_on_a_device_node_is_in_the_table() -> None:
    problems = [evaluate_node("n", state) for state in DeviceNodeState]
    assert {each.reason for each in problems if each} <= set(REASONS)


def test_a_problem_has_a_remedy_whatever_its_code() -> None:
    assert remedy("no-sysfs") == "name the host's root with --root"
    assert remedy(Problem("unheard-of", "").reason) == OTHERWISE
    assert all(each.meaning and each.todo for each in REASONS.values())
