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
    for word in ("----", "---a", "...a"):  # a blank or nothing follows it
        assert values(f"{word}: 1\n") == [{word: "1"}]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: &x [1]\nb: {c: *x}\n", {"a": [1], "b": {"c": [1]}}),
        ("a: &x 8080\n*x : b\n", {"a": 8080, "8080": "b"}),
        ("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}\n", {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}),
        ("<<: {a: 1, b: 1}\nb: 2\n", {"a": 1, "b": 2}),
        ("b: 2\n<<: {a: 1, b: 1}\n", {"a": 1, "b": 1}),
        ("<<: [{a: 1}, {a: 2, b: 2}]\n", {"a": 1, "b": 2}),
        ("<<: {a: 1}\n<<: {b: 2}\n", {"a": 1, "b": 2}),
        ("!!merge <<: {a: 1}\nb: 2\n", {"a": 1, "b": 2}),
        ("'<<': 1\n", {"<<": 1}),
        ("a: <<\n", {"a": "<<"}),
    ],
)
def test_aliases_and_merge_keys_are_those_of_kubectl(text: str, value: object) -> None:
    """As `kubectl create --dry-run=client -o json` of 1.36 prints them."""
    (document,) = read_documents(text.encode(), types=True)
    assert isinstance(document, Document)
    assert document.value == value


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: *x\n", 2, "not YAML: found undefined alias"),
        ("a: &x 1\nb: &x 2\n", 2, "not YAML: found duplicate anchor"),
        ("\n&x [*x]\n", 2, "it nests more than 100"),
        ("a:\n? [1]\n: b\n", 2, "a key has to be a text"),
        ("a: &x 1\n<<: [*x]\n", 2, "<< needs a mapping, or a list of mappings"),
        ("<<: {a: 1}\na: 1\na: 2\n", 3, "'a' is set twice"),
        (f"a: &x {'[' * 60}{']' * 60}\nb: {'[' * 60}*x{']' * 60}\n", 1, "it nests more than 100"),
    ],
)
def test_aliases_that_cannot_be_are_refused_where_they_stand(
    text: str, line: int, message: str
) -> None:
    broken, after = read_documents((text + "---\nok: {}\n").encode())
    assert isinstance(broken, BrokenDocument)
    assert (broken.line, broken.message[: len(message)]) == (line, message)
    assert after == Document(2, text.count("\n") + 2, {"ok": {}})


def laughing(name: str) -> str:
    """A document of a few bytes that stands for gigabytes."""
    rows = [f"{name}: &a0 [l, l, l, l, l, l, l, l, l]"]
    rows += [f"{name}{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        laughing("a"),
        f"a: &x {'l' * 1000}\nb: [{', '.join(['*x'] * 2000)}]\n",
        "a: &s llllllll\n" + f"b: &x [{', '.join(['*s'] * 999)}]\nc: [{', '.join(['*x'] * 999)}]",
        f"a: &x {{k{'l' * 1000}: 1}}\nb: {{<<: [{', '.join(['*x'] * 2000)}]}}",
    ],
)
def test_the_size_of_aliases_is_bounded(text: str) -> None:
    (message,) = values(text)
    assert "the aliases of this text stand for too much" in str(message)
    many = values("---\n".join([f"a: &x {'l' * 1000}\nb: [*x, *x]\n"] * 1000))
    assert isinstance(many[0], dict)
    assert isinstance(many[-1], str), "all documents have one bound"


BOM = "\ufeff"


@pytest.mark.parametrize(
    "text",
    [
        f"{BOM}---\r\na: 1\r\n---\r\nb: 2\r\n",
        f"a: 1\n---\n\n# x\n{BOM}b: 2\n",
        f"a: 1\n---\n{BOM}# x\nb: 2\n",
    ],
)
def test_files_with_byte_order_marks_may_be_joined(text: str) -> None:
    assert values(text) == [{"a": "1"}, {"b": "2"}]
    for encoding in ("utf-16-le", "utf-16-be"):
        assert values(f"{BOM}{text}".encode(encoding)) == [{"a": "1"}, {"b": "2"}]


def test_bottomless_nesting_is_refused() -> None:
    for step in ("[", "- ", "{a: "):
        assert values(step * 200_000 + "a") == [f"it nests more than {MAX_DEPTH} levels deep"]
    assert values("? " * 200_000 + "a") == [f"it nests more than {MAX_DEPTH} levels deep"]
    (value,) = values("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert str(value) == "[" * MAX_DEPTH + "]" * MAX_DEPTH


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("0", 0), ("-7", -7), ("+7", 7), ("1_000", 1000), ("2001-01-01", "2001-01-01")),
        *(("010", 8), ("0o10", 8), ("-010", -8), ("0_7", 7), ("08", 8), ("0x1F", 31)),
        *(("-0X10", -16), ("0b11", 3), ("0x", "0x"), (2**64 - 1, 2**64 - 1), (2**70, float(2**70))),
        *(("1.5", 1.5), ("-1e3", -1000), ("1.0", 1), ("5.", 5), (".5", 0.5), ("1_0.5", 10.5)),
        *((text, True) for text in ("true", "True", "yes", "Y", "ON")),
        *((text, False) for text in ("false", "no", "n", "Off")),
        *((text, None) for text in ("~", "null", "NULL")),
        *((text, text) for text in ("oFF", "1e999", "NaN", "12:30", ".", "1" * 401)),
        *(("'1'", "1"), ("!!str 1", "1"), ("!mine [1]", [1]), ("{8080: 1, ~: }", TEXT_KEYS)),
    ],
)
def test_plain_scalars_of_manifests_have_the_types_that_kubectl_reads(
    text: str, value: object
) -> None:
    (document,) = read_documents(f"a: {text}\n".encode(), types=True)
    assert isinstance(document, Document)
    assert document.value == {"a": value}
    assert str(document.value) == str({"a": value}), "1 is not True"


# A key of more than 1024 characters would need a "?" before it.
BASIC_TEXT = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=20)
INNER = st.lists(BASIC_TEXT, max_size=3) | st.dictionaries(BASIC_TEXT, BASIC_TEXT, max_size=3)


@settings(max_examples=40)
@given(
    st.lists(st.dictionaries(BASIC_TEXT, BASIC_TEXT | INNER, min_size=1, max_size=3), max_size=3)
)
def test_json_is_yaml(objects: list[dict[str, object]]) -> None:
    assert (
        values("\n---\n".join(json.dumps(each, ensure_ascii=False) for each in objects)) == objects
    )


@given(st.binary() | st.text(alphabet="-. \n\r&*[]{}:?|>%#'\"!a1\ufeff").map(str.encode))
def test_reading_any_text_ends_without_an_error(text: bytes) -> None:
    numbers = [found.number for found in read(text)]
    assert numbers == list(range(1, len(numbers) + 1))
