import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.process.yaml import MAX_DEPTH, BrokenDocument, Document, read_documents

TEXT_KEYS = {"8080": 1, "~": None}


def read(text: str | bytes) -> list[Document | BrokenDocument]:
    return list(read_documents(text.encode() if isinstance(text, str) else text))


def values(text: str | bytes) -> list[object]:
    return [found.value if isinstance(found, Document) else found.message for found in read(text)]


def test_scalars_but_plain_nulls_stay_text_so_that_an_id_of_digits_is_one() -> None:
    assert values("a: 0123\nb: 1e3\nc: yes\nd: 2026-01-01\ne: [1, true]\n") == [
        {"a": "0123", "b": "1e3", "c": "yes", "d": "2026-01-01", "e": ["1", "true"]}
    ]
    assert values("text\n---\n- &x a\n- [b]\n---\n~ # x\n") == ["text", ["a", ["b"]], None]
    assert values("a:\nb: ~\nc: null\nd: 'null'\ne: ''\n~: x\n") == [
        {"a": None, "b": None, "c": None, "d": "null", "e": "", "~": "x"}
    ]


def test_documents_are_numbered_and_know_their_lines() -> None:
    assert read("# first\na: 1\n---\n# nothing here\n---\n\n# second\nb: 2\n--- {c: 3}\n") == [
        Document(1, 2, {"a": "1"}),
        Document(2, 8, {"b": "2"}),
        Document(3, 9, {"c": "3"}),
    ]


def test_a_broken_document_is_told_and_the_others_are_read() -> None:
    found = read("a: 1\n---\nb: [1\nc: 2\n---\nd: 4\n---\ne: 'open\n")
    assert [type(one) for one in found] == [Document, BrokenDocument, Document, BrokenDocument]
    assert isinstance(found[1], BrokenDocument)
    assert found[1].number == 2
    assert found[1].line == 4
    assert found[1].message.startswith("not YAML: did not find expected")
    assert found[2] == Document(3, 6, {"d": "4"})


@pytest.mark.parametrize("bad", [b"\xff", b"\0"])
def test_bytes_that_are_no_text_break_only_their_document(bad: bytes) -> None:
    found = read(b"a: 1\n---\n\nb: " + bad + b"\n---\nc: 3\n")
    assert [one.number for one in found] == [1, 2, 3]
    assert isinstance(found[1], BrokenDocument)
    assert found[1].line == 4
    assert found[1].message.startswith("not YAML: ")
    assert isinstance(found[2], Document)


def test_a_marker_inside_a_block_scalar_is_one_unless_it_is_indented() -> None:
    assert values("a: |\n  x\n  ---\n  y\n---\nb: 1\n") == [{"a": "x\n---\ny\n"}, {"b": "1"}]


@pytest.mark.parametrize("word", ["----", "---a", "...a"])
def test_a_marker_is_followed_by_a_blank_or_nothing(word: str) -> None:
    assert values(f"{word}: 1\n") == [{word: "1"}]


def test_line_ends_of_windows_and_byte_order_marks_are_fine() -> None:
    assert values(b"\xef\xbb\xbf---\r\na: 1\r\n---\r\nb: 2\r\n") == [{"a": "1"}, {"b": "2"}]


def test_a_key_given_twice_is_told() -> None:
    assert read("x:\n  a: 1\n  a: 2\n") == [BrokenDocument(1, 3, "'a' is set twice")]


@pytest.mark.parametrize("key", ["? [a]\n: 1\n", "? {a: 1}\n: 1\n"])
def test_a_key_that_is_no_text_is_told(key: str) -> None:
    assert values(key) == ["a key has to be a text"]


@pytest.mark.parametrize("with_types", [False, True])
@pytest.mark.parametrize("text", ["a: &x 1\nb: *x\n", "&x [\n*x]\n", "a: &x {}\nb: {<<: *x}\n"])
def test_aliases_are_refused_where_they_stand(text: str, with_types: bool) -> None:
    found = list(read_documents((text + "---\nok: {}\n").encode(), types=with_types))
    message = "*x: write out what this alias stands for"
    assert found == [BrokenDocument(1, 2, message), Document(2, text.count("\n") + 2, {"ok": {}})]


def test_bottomless_nesting_is_refused() -> None:
    for step in ("[", "- ", "{a: "):
        assert values(step * 200_000 + "a") == [f"it nests more than {MAX_DEPTH} levels deep"]
    assert values("? " * 200_000 + "a") == ["a key has to be a text"]
    (value,) = values("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert str(value) == "[" * MAX_DEPTH + "]" * MAX_DEPTH


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("0", 0), ("-7", -7), ("1.5", 1.5), ("-1e3", -1000.0), ("true", True), ("false", False)),
        *((text, None) for text in ("~", "null", "NULL")),
        *((text, text) for text in ("+7", "010", "0x1F", "1e999", "yes", "True", "NaN", "12:30")),
        *(("'1'", "1"), ("!!str 1", "1"), ("!mine [1]", [1]), ("{8080: 1, ~: }", TEXT_KEYS)),
    ],
)
def test_plain_scalars_of_manifests_have_the_types_of_json(text: str, value: object) -> None:
    (document,) = read_documents(f"a: {text}\n".encode(), types=True)
    assert isinstance(document, Document)
    assert document.value == {"a": value}
    assert str(document.value) == str({"a": value}), "1 is not True"


# JSON escapes other characters as surrogate pairs, which YAML's escapes don't know.
# A key of more than 1024 characters would need a "?" before it.
BASIC_TEXT = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=20)
INNER = st.lists(BASIC_TEXT, max_size=3) | st.dictionaries(BASIC_TEXT, BASIC_TEXT, max_size=3)


@settings(max_examples=40)
@given(
    st.lists(st.dictionaries(BASIC_TEXT, BASIC_TEXT | INNER, min_size=1, max_size=3), max_size=3)
)
def test_json_is_yaml(objects: list[dict[str, object]]) -> None:
    text = "\n---\n".join(json.dumps(value) for value in objects)
    assert values(text) == objects


@given(st.binary() | st.text(alphabet="-. \n\r&*[]{}:?|>%#'\"!a1\ufeff").map(str.encode))
def test_whatever_the_text_it_ends_and_raises_nothing(text: bytes) -> None:
    numbers = [found.number for found in read(text)]
    assert numbers == list(range(1, len(numbers) + 1))
