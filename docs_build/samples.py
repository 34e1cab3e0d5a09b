"""Samples of metrics, scraped from processes at even intervals, as a text that people can read.

    every 5 from 1763764800                     seconds between scrapes; when the first was, in UTC
    accelbind_ready{job="accelbind-webhook"} 1*30 - 0*4

A line is a series: a value a scrape, `1*30` for thirty of them, `-` where it wasn't there.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

Labels = Mapping[str, str]

_SERIES: Final = re.compile(r"(\w+)\{(.*)\} (\S.*)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Series:
    """A series.

    Args:
        name: Of the metric, as in queries.
        labels: Those of scraping, `job` and `node`, among them.
        values: One a scrape; None where it wasn't there.
    """

    name: str
    labels: Labels
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Samples:
    """What was scraped in a run.

    Args:
        every: Seconds between two scrapes.
        begun: When the first was, in seconds since 1970.
        series: What was scraped.
    """

    every: float
    begun: float
    series: tuple[Series, ...]

    @property
    def count(self) -> int:
        """How many scrapes there were."""
        return max((len(each.values) for each in self.series), default=0)


def read(path: Path) -> Samples:
    """The samples in a file."""
    first, *rest = path.read_text(encoding="utf-8").splitlines()
    _, every, _, begun = first.split()
    return Samples(float(every), float(begun), tuple(map(_read, rest)))


def _read(line: str) -> Series:
    found = _SERIES.fullmatch(line)
    if found is None:
        raise ValueError(f"{line!r:.80} is no series")
    labels = {name: _unescaped(value) for name, value in _LABEL.findall(found[2])}
    return Series(found[1], labels, tuple(_spread(found[3])))


def _spread(text: str) -> Iterator[float | None]:
    for word in text.split():
        value, _, times = word.partition("*")
        yield from [None if value == "-" else float(value)] * int(times or 1)


def text_of(samples: Samples) -> str:
    """The samples as `read` takes them."""
    lines = [f"every {samples.every:g} from {samples.begun:.0f}"]
    for each in sorted(samples.series, key=lambda one: (one.name, sorted(one.labels.items()))):
        labels = ",".join(
            f'{name}="{_escaped(value)}"' for name, value in sorted(each.labels.items())
        )
        words = []
        for value, same in groupby(each.values):
            times = len(list(same))
            shown = "-" if value is None else f"{value:.10g}"
            words.append(f"{shown}*{times}" if times > 1 else shown)
        lines.append(f"{each.name}{{{labels}}} {' '.join(words)}")
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _unescaped(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value)
