"""Reviews without the list of who manages which field."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.admission import field_owners
from services.admission.field_owners import LARGE, LOOKED_AT, WORTH, emptied
from tests.services.building import Object

OWNED: Object = {"f:spec": {f'k:{{"name":"c{number}"}}': {".": {}} for number in range(100)}}
SPEC = {"containers": [{"name": "c", "args": ["]", "["]}]}
TRAPS = (
    ',"managedFields":[',
    ']},"spec":{',
    '],"spec":{',
    "[",
    "]",
    "{}",
    '"',
    "\\",
    '\\"},"spec":{',
    "managedFields",
    "spec",
    "FPGA_",
)
"""Names and texts that look like what is searched for, or would be without their escapes."""


def written(obj: Any) -> bytes:
    """As Go writes it: no blanks."""
    return json.dumps(obj, separators=(",", ":"), ensure_ascii=False).encode()


def of_pod(owners: Any = None, **metadata: Any) -> Object:
    names = {"name": "p", "annotations": {"a": "b" * LARGE}} | metadata
    fields = [{"manager": "m", "fieldsV1": OWNED}] if owners is None else owners
    return {"object": {"metadata": names | {"managedFields": fields}, "spec": SPEC}}


def without_owners(obj: Any) -> Any:
    """A document in which each such list is empty."""
    if isinstance(obj, list):
        return [without_owners(each) for each in obj]
    if not isinstance(obj, dict):
        return obj
    return {
        key: [] if key == "managedFields" and isinstance(value, list) else without_owners(value)
        for key, value in obj.items()
    }


def test_what_the_list_holds_is_left_out_and_nothing_else() -> None:
    assert json.loads(emptied(written(of_pod()))) == without_owners(of_pod())


def test_brackets_before_the_list_do_not_matter() -> None:
    asked = {"userInfo": {"groups": ["a", "b[]"]}} | of_pod(ownerReferences=[{"uid": "["}])
    assert json.loads(emptied(written(asked))) == without_owners(asked)


@pytest.mark.parametrize(
    "obj",
    [
        of_pod([]),
        of_pod("text"),
        of_pod([{"fieldsV1": {}}]),
        of_pod([{"fieldsV1": {"v": ["x" * WORTH]}}]),
        of_pod([{"fieldsV1": {"x": "[" + "x" * WORTH}}]),
        of_pod([{"fieldsV1": {"x": "]" + "x" * WORTH}}]),
        of_pod([{"fieldsV1": {"x": ']},"spec":{' + "x" * WORTH}}]),
        of_pod(annotations={"a": "[" * LOOKED_AT + "b" * LARGE}),
        of_pod()
        | {"object": {"metadata": {"managedFields": [OWNED], "uid": ""}, "x": "y" * LARGE}},
        {"object": {"metadata": {"name": "x" * LARGE}}},
        {},
    ],
)
def test_a_body_stays_where_there_is_nothing_to_leave_out_or_any_doubt(obj: Any) -> None:
    body = written(obj)
    assert emptied(body) == body


def test_a_short_body_stays() -> None:
    body = written(of_pod(annotations={}))
    assert emptied(body) == body
    assert len(body) < LARGE


class Counting(bytes):
    """Counts how often it is searched."""

    searched = 0

    def find(self, *args: Any) -> int:
        self.searched += 1
        return super().find(*args)


@pytest.mark.parametrize("brackets", [0, 3])
def test_a_long_body_with_few_brackets_is_gone_through_once(brackets: int) -> None:
    body = Counting(b"x" * LARGE + b"[" * brackets)
    assert emptied(body) is body
    assert body.searched == brackets + 1


texts = st.lists(st.sampled_from([*TRAPS, "a", "é"]), max_size=4).map("".join)
documents = st.recursive(
    texts | st.integers(0, 9) | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(texts | st.sampled_from(["managedFields", "spec"]), inner, max_size=4)
    ),
    max_leaves=12,
)
owners = st.lists(st.dictionaries(texts, texts | st.dictionaries(texts, texts)), max_size=3)


@given(st.lists(st.tuples(texts, documents), max_size=3), owners | documents, documents)
@example([("a", ["x"])], [{"f": {"k": "v"}}], 1)
@example([], [{"a": {"b": ["x"]}, "spec": {}}], 1)
def test_whatever_json_comes_no_more_than_such_a_list_is_left_out(
    before: list[tuple[str, Any]], fields: Any, spec: Any
) -> None:
    asked = {
        "a": dict(before),
        "o": {"metadata": {"n": 1, "managedFields": fields}, "spec": {"": spec}},
    }
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(field_owners, "LARGE", 0)
        patching.setattr(field_owners, "WORTH", 0)
        left = json.loads(emptied(written(asked)))
    assert without_owners(left) == without_owners(asked)
    assert left["o"]["spec"] == asked["o"]["spec"]
