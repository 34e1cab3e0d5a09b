import pytest

from services.process.text import clip, listing, numbered, plain, quote


@pytest.mark.parametrize(
    ("text", "limit", "clipped"),
    [("", 3, ""), ("abc", 3, "abc"), ("abcd", 3, "ab…"), ("a" * 1_000_000, 5, "aaaa…")],
)
def test_long_text_is_cut_with_an_ellipsis(text: str, limit: int, clipped: str) -> None:
    assert clip(text, limit) == clipped


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("größe", "größe"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\ud800", "\\ud800"),
        ("\u202eevil", "\\u202eevil"),
    ],
)
def test_control_characters_of_terminals_are_escaped(text: str, shown: str) -> None:
    assert plain(text) == shown
    assert quote(text) == f'"{shown}"'


def test_text_is_cut_at_the_limit_after_it_was_escaped() -> None:
    assert plain("\n" * 50, 80) == "\\n" * 39 + "\\…"
    assert quote("x" * 120) == f'"{"x" * 120}"'
    assert quote("x" * 121) == f'"{"x" * 119}…"'


@pytest.mark.parametrize(
    ("items", "most", "more", "text"),
    [
        (["a"], None, 0, "a"),
        (["a", "b"], 2, 0, "a and b"),
        (["a", "b", "c"], None, 0, "a, b and c"),
        (["a", "b"], 1, 0, "a and 1 more"),
        (["a", "b", "c"], 2, 6, "a, b and 7 more"),
    ],
)
def test_words_are_listed_as_a_person_would(
    items: list[str], most: int | None, more: int, text: str
) -> None:
    assert listing(items, most=most, more=more) == text


def test_one_sentence_stands_alone_and_several_are_counted() -> None:
    assert numbered(["it is wrong"], limit=100) == "it is wrong"
    assert numbered(["it is wrong"], limit=5) == "it i…"
    assert (
        numbered(iter(["a is wrong", "b too"]), limit=99) == "2 problems: (1) a is wrong (2) b too"
    )
    assert numbered(["a" * 10, "b"], limit=20) == "2 problems: (1) aaa…"
