"""Pictures are made of texts, can be read as texts, and ask for nothing from elsewhere."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from docs_build import maps, pictures, sequences, timelines
from docs_build.sources import BadSource
from docs_build.svg import Canvas, width
from tests.support import REPOSITORY

SVG = "{http://www.w3.org/2000/svg}"
COMMITTED = sorted((REPOSITORY / "docs" / "pictures").glob("*.svg"))


def texts(svg: str) -> list[str]:
    return [each.text or "" for each in ET.fromstring(svg).iter(f"{SVG}text")]  # noqa: S314 - ours


def source(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_pictures_are_well_formed_and_need_nothing_from_elsewhere(path: Path) -> None:
    text = path.read_text()
    root = ET.fromstring(text)  # noqa: S314 - a file of ours
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root.get("aria-label") == (root.findtext(f"{SVG}title"))
    assert re.findall(r"href|url\(|@import|<script|<image|<foreignObject", text) == []
    assert re.findall(r"https?://[^\"' ]+", text) == ["http://www.w3.org/2000/svg"]
    assert "prefers-color-scheme:dark" in text
    assert len(texts(text)) > 5


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_every_picture_is_shown_somewhere(path: Path) -> None:
    pages = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.md")]
    assert [page.name for page in pages if f"pictures/{path.name})" in page.read_text()] != []


def test_every_text_of_a_source_is_in_its_picture() -> None:
    for path in sorted(pictures.FOLDER.iterdir()):
        if path.suffix in pictures.KINDS:
            found = texts(pictures.KINDS[path.suffix](path))
            words = [
                part.strip().strip("`")
                for line in path.read_text().splitlines()[1:]
                for part in line.partition(": ")[2].split(" | ")
                if part
            ]
            assert len(words) > 8
            assert [each for each in words if each not in found] == []


def test_boxes_and_arrows_are_where_the_source_has_them(tmp_path: Path) -> None:
    path = source(
        tmp_path,
        "a.map",
        "size 300 120: two boxes\n# a remark\nbox one ours 10 10 80 40: One\n"
        "box two plain 200 10 80 40: Two | `x < y`\narrow one.right two.left: goes\n",
    )
    root = ET.fromstring(maps.draw(path))  # noqa: S314 - made here
    (one, two) = [each for each in root.iter(f"{SVG}rect") if each.get("class") != "bg"]
    assert (one.get("class"), one.get("x"), two.get("x")) == ("ours", "10", "200")
    (line,) = root.iter(f"{SVG}polyline")
    assert line.get("points") == "90.0,30.0 193.0,30.0"
    assert texts(maps.draw(path)) == ["One", "Two", "x < y", "goes"]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.map", "size 90 90: a\nbox one ours 1 1 20 20: too long a word", "a.map:2.*doesn't fit"),
        ("a.map", "size 90 90: a\narrow one.left two.left", "no side of a box"),
        ("a.map", "size 90 90: a\ncircle 1 1", "'circle' is nothing"),
        ("a.map", "size 90 x: a", "word 3 is to be a number"),
        ("a.sequence", "title: a\nactor one ours: One\none => two: x", "no step between actors"),
        ("a.timeline", "title: a\nmoment: one\nmoment: two\nbar old 0 1: far too long", "bar"),
        ("a.timeline", "title: a\nmoment: one\nlane: two", "'lane' is no part"),
    ],
)
def test_a_source_that_cannot_be_drawn_says_where(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    draw = {".map": maps.draw, ".sequence": sequences.draw, ".timeline": timelines.draw}
    path = source(tmp_path, name, text)
    with pytest.raises(BadSource, match=words):
        draw[path.suffix](path)


def test_a_text_that_would_be_cut_off_is_an_error() -> None:
    canvas = Canvas(100, 50, "small")
    canvas.text(10, 20, "fits")
    with pytest.raises(ValueError, match="cut off"):
        canvas.text(60, 20, "does not fit")
    assert width("wide words") < width("wide words", bold=True)
