"""Tables and lines fit the terminal, and lose nothing."""

import pytest

from accelbind.output import OutputFormat, fact_lines, print_result, table_lines, wrapped
from services.process.text import count

ID = "ab" * 16
HEADINGS = ("DEVICE", "KIND", "INTERFACE", "AFU", "STATE")
ROWS = [
    ("dfl-fme.0", "fme", ID, "", "ok"),
    ("dfl-port.0", "port", ID, ID[::-1], "a sentence about what is wrong with it and what to do"),
]


def table(columns: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    return list(table_lines(HEADINGS, ROWS))


def test_a_pipe_gets_columns_as_wide_as_their_text() -> None:
    head, first, second = table_lines(HEADINGS, ROWS)
    assert head.index("AFU") == first.index(" -  ") + 1 == second.index(ID[::-1])
    assert second.endswith("what to do")


@pytest.mark.parametrize("columns", [40, 50, 60, 80, 100, 130])
def test_a_table_fits_and_is_complete(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = table(columns, monkeypatch)
    assert max(map(len, lines)) <= columns
    words = " ".join(lines).split()
    for row in ROWS:
        assert all(word in words for cell in row for word in cell.split())


def test_the_widest_columns_go_below(monkeypatch: pytest.MonkeyPatch) -> None:
    assert table(80, monkeypatch) == [
        "DEVICE       KIND   INTERFACE",
        f"dfl-fme.0    fme    {ID}",
        "  STATE ok",
        f"dfl-port.0   port   {ID}",
        f"  AFU {ID[::-1]}",
        "  STATE a sentence about what is wrong with it and what to do",
    ]


def test_a_word_is_never_broken() -> None:
    assert list(wrapped(f"  path {ID} is", 20)) == ["  path", f"    {ID}", "    is"]
    assert list(wrapped(f"    {ID}", 20)) == [f"    {ID}"]


def test_lines_are_wrapped_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    facts = {"interfaceId": ID, "name": "some words that do not fit into one line"}
    lines = list(fact_lines(facts))
    assert lines == [
        "interface id",
        f"        {ID}",
        "name          some words that do not fit",
        "              into one line",
    ]
    assert max(map(len, lines)) == 40
    print_result(OutputFormat.TEXT, facts, [*lines, ("red", "a b " * 12)])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= len(lines[1])


def test_one_is_singular() -> None:
    assert [count(number, "card") for number in (0, 1, 2)] == ["0 cards", "1 card", "2 cards"]
