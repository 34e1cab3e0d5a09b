"""Tables and lines fit the terminal, and lose nothing."""

import pytest

from accelbind.output import fact_lines, table_lines, wrapped

ID = "ab" * 16
HEADINGS = ("DEVICE", "KIND", "INTERFACE", "AFU", "STATE")
ROWS = [
    ("dfl-fme.0", "fme", ID, "", "ok"),
    ("dfl-port.0", "port", ID, ID[::-1], "a sentence about what is wrong with it and what to do"),
]


def test_a_pipe_gets_columns_as_wide_as_their_text() -> None:
    head, first, second = table_lines(HEADINGS, ROWS)
    assert head.index("AFU") == first.index(" -  ") + 1 == second.index(ID[::-1])
    assert second.endswith("what to do")


@pytest.mark.parametrize("columns", [40, 80, 130])
def test_a_table_fits_and_is_complete(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = [*table_lines(HEADINGS, ROWS), *fact_lines({"interfaceId": ID, "name": ROWS[1][-1]})]
    assert max(map(len, lines)) <= columns
    words = " ".join(lines).split()
    for row in ROWS:
        assert all(word in words for cell in row for word in cell.split())
    if columns == 80:
        assert lines[:3] == [
            "DEVICE       KIND   INTERFACE",
            f"dfl-fme.0    fme    {ID}",
            "  STATE ok",
        ]


def test_a_word_is_never_broken() -> None:
    assert list(wrapped(f"  path {ID} is", 20)) == ["  path", f"    {ID}", "    is"]
    assert list(wrapped(f"    {ID}", 20)) == [f"    {ID}"]
