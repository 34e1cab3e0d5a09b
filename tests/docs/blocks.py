"""The commands in the documentation, from its fenced blocks."""

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support import REPOSITORY

SHELL = ("sh", "bash", "console")
INERT = ("yaml", "json", "text", "python", "toml", "diff", "promql")
"""Languages of blocks without commands. For Mermaid, the site would need a script of others."""

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<body>.*?)^ *```[ ]*$", re.MULTILINE | re.DOTALL
)
_HERE = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?")
_COMMENT = re.compile(r"\s+#\s.*$")
_GOES_ON = ("\\", "|", "&&", "||")


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a page, which may have several lines, without its prompt."""

    page: str
    line: int
    text: str

    @property
    def plain(self) -> str:
        """Its first line, with those that continue it, without a comment."""
        return _COMMENT.sub("", self.text.replace("\\\n", " ").partition("\n")[0]).strip()


def pages() -> list[str]:
    found = [
        *REPOSITORY.glob("*.md"),
        *REPOSITORY.glob("docs/**/*.md"),
        *REPOSITORY.glob("examples/**/*.md"),
        *REPOSITORY.glob("manifests/**/*.md"),
        *REPOSITORY.glob("simulator/**/*.md"),
    ]
    return sorted(str(path.relative_to(REPOSITORY)) for path in found)


def languages(page: str) -> list[str]:
    return [match["language"] for match in _FENCE.finditer(_text(page))]


def commands(page: str) -> list[Command]:
    text = _text(page)
    found: list[Command] = []
    for match in _FENCE.finditer(text):
        if match["language"] in SHELL:
            first = text.count("\n", 0, match.start("body")) + 1
            body = textwrap.dedent(match["body"])
            prompted = match["language"] == "console"
            found += [Command(page, first + at, one) for at, one in _cut(body, prompted=prompted)]
    return found


def _text(page: str) -> str:
    return (REPOSITORY / page).read_text()


def _cut(body: str, *, prompted: bool) -> Iterator[tuple[int, str]]:
    """Yield the commands of a block with their line numbers, without the output of prompts."""
    lines = iter(enumerate(body.splitlines()))
    for at, line in lines:
        if prompted and not line.startswith("$ "):
            continue
        if not prompted and (not line.strip() or line.startswith("#")):
            continue
        taken = [line.removeprefix("$ ") if prompted else line]
        if here := _HERE.search(line):
            for _, more in lines:
                taken.append(more)
                if more.strip() == here[1]:
                    break
        while _COMMENT.sub("", taken[-1]).rstrip().endswith(_GOES_ON) or _open("\n".join(taken)):
            following = next(lines, None)
            if following is None:
                break
            taken.append(following[1])
        yield at, "\n".join(taken)


def _open(text: str) -> bool:
    """Return whether a quotation is still open."""
    if _HERE.search(text):
        return False
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return True
    return False


def inline_commands(page: str) -> list[str]:
    text = _FENCE.sub("", _text(page))
    spans = re.findall(r"`(accelbind [a-z][^`]*)`", text)
    return [" ".join(span.split()) for span in spans]
