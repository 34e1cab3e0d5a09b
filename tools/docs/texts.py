"""Docstrings of attributes, and tables in Markdown."""

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, Final

REPOSITORY: Final = Path(__file__).parents[2]


def attribute_docstrings(of: type[Any] | ModuleType) -> dict[str, str]:
    """Return the docstrings below assignments in a class or module, by name."""
    tree = ast.parse(inspect.getsource(of))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else tree.body
    texts = {}
    for node, following in pairwise(body):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if (
            isinstance(target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            texts[target.id] = " ".join(str(following.value.value).split())
    return texts


def members(kind: type[Enum]) -> Iterator[tuple[Any, str]]:
    """Yield the members of an enum with their docstrings (KeyError if one has none)."""
    said = attribute_docstrings(kind)
    for member in kind:
        yield member, said[member.name]


def written_part(path: str, heading: str) -> str:
    """Return what is written by hand in a page: all before a line that begins so."""
    before, _, _ = (REPOSITORY / path).read_text(encoding="utf-8").partition(f"\n{heading}")
    return f"{before}\n"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; cells may hold any text."""
    lines = [" | ".join(headings), " | ".join("---" for _ in headings)]
    lines += [" | ".join(map(cell, row)) for row in rows]
    return "".join(f"| {line} |\n" for line in lines)


def cell(text: str) -> str:
    """Return a text as a table cell: one line, bars and `<` escaped."""
    escaped = " ".join(text.split()).replace("|", "\\|")
    return "".join(
        part if part.startswith("`") else part.replace("<", "&lt;")
        for part in re.split(r"(`[^`]*`)", escaped)
    )


def code(text: str) -> str:
    """Return a text as code; empty for an empty text."""
    return f"`{text}`" if text else ""


def default_cell(text: str) -> str:
    """Return a default for a table: a value as code, words as they are."""
    return code(text) if text and " " not in text else text
