"""As much of PromQL as the dashboard's queries need, over samples of a run.

Selectors with `=`, `!=`, `=~`; `rate` and `increase` over `$__rate_interval`, which is four scrapes
as Grafana has it; `sum`, `min`, `max`, each with `by`; `histogram_quantile`; one `-`; `time()`.
Increases aren't extrapolated to the edges of their interval. Anything else is an error.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from docs_build.samples import Labels, Samples, Series

Key = tuple[tuple[str, str], ...]
Vector = dict[Key, float]
"""Values at a moment, by labels."""

SCRAPES: Final = 4
"""How many scrapes the rate interval spans."""

_TOKEN: Final = re.compile(
    r'\s*([a-zA-Z_:][\w:]*|\d+(?:\.\d+)?|"(?:[^"\\]|\\.)*"|\$\w+|=~|!=|[{}()\[\],=-])'
)
_AGGREGATES: Final[dict[str, Callable[[Iterable[float]], float]]] = {
    "sum": sum,
    "min": min,
    "max": max,
}


class BadQuery(ValueError):
    """A query that can't be answered here."""


@dataclass(slots=True)
class _Tokens:
    """The words of a query, and how far it is read."""

    words: list[str]
    place: int = 0

    def peek(self) -> str:
        return self.words[self.place] if self.place < len(self.words) else ""

    def take(self, wanted: str = "") -> str:
        word = self.peek()
        if not word or (wanted and word != wanted):
            raise BadQuery(f"{' '.join(self.words)}: {wanted or 'more'} is wanted, not {word!r}")
        self.place += 1
        return word

    def taken(self, word: str) -> bool:
        if self.peek() != word:
            return False
        self.place += 1
        return True


def ask(query: str, samples: Samples, at: int, variables: Labels | None = None) -> Vector:
    """What a query gives at a scrape.

    Args:
        query: In PromQL.
        samples: What was scraped.
        at: Which scrape, from 0.
        variables: The dashboard's, such as `node`.

    Raises:
        BadQuery: It needs more of PromQL than there is here.
    """
    for name, value in (variables or {}).items():
        query = query.replace(f"${name}", value)
    words, end = [], 0
    for match in _TOKEN.finditer(query):
        if match.start() != end:
            break
        words.append(match[1])
        end = match.end()
    if query[end:].strip():
        raise BadQuery(f"{query}: {query[end:].strip()!r} is beyond what is read here")
    tokens = _Tokens(words)
    found = _Moment(samples, at).difference(tokens)
    if tokens.peek():
        raise BadQuery(f"{query}: {tokens.peek()!r} is left over")
    return found


@dataclass(frozen=True, slots=True)
class _Moment:
    """A scrape at which queries are answered."""

    samples: Samples
    at: int

    def difference(self, tokens: _Tokens) -> Vector:
        left = self.term(tokens)
        if not tokens.taken("-"):
            return left
        right = self.term(tokens)
        (number,) = right.values()
        return {key: value - number for key, value in left.items()}

    def term(self, tokens: _Tokens) -> Vector:
        word = tokens.take()
        if word in _AGGREGATES:
            return self._aggregate(word, tokens)
        if word == "histogram_quantile":
            return self._quantile(tokens)
        if word in {"rate", "increase"}:
            tokens.take("(")
            found = self._increase(tokens, per_second=word == "rate")
            tokens.take(")")
            return found
        if word == "time":
            tokens.take("(")
            tokens.take(")")
            return {(): self.samples.begun + self.at * self.samples.every}
        if word.isidentifier():
            return dict(self._now(word, tokens))
        raise BadQuery(f"{' '.join(tokens.words)}: {word!r} is not understood here")

    def _aggregate(self, word: str, tokens: _Tokens) -> Vector:
        by: set[str] = set()
        if tokens.taken("by"):
            tokens.take("(")
            while not tokens.taken(")"):
                by.add(tokens.take())
                tokens.taken(",")
        tokens.take("(")
        inner = self.difference(tokens)
        tokens.take(")")
        groups: dict[Key, list[float]] = {}
        for key, value in inner.items():
            kept = tuple(pair for pair in key if pair[0] in by)
            groups.setdefault(kept, []).append(value)
        return {key: _AGGREGATES[word](values) for key, values in groups.items()}

    def _quantile(self, tokens: _Tokens) -> Vector:
        tokens.take("(")
        share = float(tokens.take())
        tokens.take(",")
        inner = self.difference(tokens)
        tokens.take(")")
        histograms: dict[Key, list[tuple[float, float]]] = {}
        for key, value in inner.items():
            bound = float(dict(key)["le"].replace("+Inf", "inf"))
            rest = tuple(pair for pair in key if pair[0] != "le")
            histograms.setdefault(rest, []).append((bound, value))
        found = {key: _quantile(share, sorted(each)) for key, each in histograms.items()}
        return {key: value for key, value in found.items() if value is not None}

    def _selected(self, name: str, tokens: _Tokens) -> list[Series]:
        chosen = [each for each in self.samples.series if each.name == name]
        if tokens.taken("{"):
            while not tokens.taken("}"):
                label, how, value = tokens.take(), tokens.take(), tokens.take()[1:-1]
                chosen = [each for each in chosen if _fits(each.labels.get(label, ""), how, value)]
                tokens.taken(",")
        return chosen

    def _now(self, name: str, tokens: _Tokens) -> Iterable[tuple[Key, float]]:
        for each in self._selected(name, tokens):
            value = each.values[self.at]
            if value is not None:
                yield tuple(sorted(each.labels.items())), value

    def _increase(self, tokens: _Tokens, *, per_second: bool) -> Vector:
        chosen = self._selected(tokens.take(), tokens)
        tokens.take("[")
        tokens.take("$__rate_interval")
        tokens.take("]")
        found: Vector = {}
        for each in chosen:
            window = each.values[max(0, self.at - SCRAPES) : self.at + 1]
            known = [value for value in window if value is not None]
            if len(known) > 1:
                seconds = (len(known) - 1) * self.samples.every if per_second else 1.0
                key = tuple(sorted(each.labels.items()))
                found[key] = (known[-1] - known[0]) / seconds
        return found


def _fits(value: str, how: str, wanted: str) -> bool:
    if how == "=~":
        return re.fullmatch(wanted, value) is not None
    return (value == wanted) == (how == "=")


def _quantile(share: float, buckets: list[tuple[float, float]]) -> float | None:
    """The value below which a share of what was counted lies, between its bucket's bounds."""
    total = buckets[-1][1]
    if total <= 0:
        return None
    rank, low, below = share * total, 0.0, 0.0
    for bound, count in buckets:
        if count >= rank:
            if bound == float("inf"):
                return low
            return low + (bound - low) * (rank - below) / ((count - below) or 1.0)
        low, below = bound, count
    return low
