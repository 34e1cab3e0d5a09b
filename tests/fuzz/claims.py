"""Hostile ResourceClaims, each a function of a seed and a number: none of them may be prepared.

Each asks for what it may not have: a function that its namespace doesn't map, a class's privilege,
or something else than our parameters. Some are bent as text and bytes besides; only those that no
bend can make a claim that may be prepared. Other refusals are tables in tests/plugin/dra.
"""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeAlias

from plugin.dra.claims import FROM_CLAIM, FROM_CLASS
from simulator.cards import NLB0
from tests.fuzz.mutations import bend_bytes, bend_json
from tests.plugin.dra.support import claim, config, result

Parts: TypeAlias = tuple[str, str]
"""The source of a configuration, and its parameters as text: keys may be there twice."""

MAX_PARAMETERS: Final = 10 * 1024
"""Bytes that the API server accepts."""


FOREIGN: Final[Sequence[Parts]] = (
    (FROM_CLAIM, '{"mapping": "theirs"}'),  # of another namespace
    (FROM_CLAIM, '{"mapping": "other/theirs"}'),
    (FROM_CLAIM, '{"mapping": "unheard-of"}'),
    (FROM_CLAIM, '{"mapping": "clash"}'),  # rejected: two objects have the name
    (FROM_CLAIM, '{"mapping": "elsewhere"}'),  # of another interface
    (FROM_CLAIM, '{"develop": true}'),  # allowed to a class
    (FROM_CLAIM, json.dumps({"afu": NLB0, "program": "Never"})),  # allowed to a class
    (FROM_CLASS, json.dumps({"afu": "f" * 32, "program": "Never"})),  # nobody maps it
)


def make_claim(seed: int, number: int) -> bytes:
    """The claim of a number, in the run of a seed, as the API server answers."""
    random = Random(f"{seed}:{number}")  # noqa: S311 - to be had again, not secret
    return random.choice(WAYS)(random)


def _written(source: str, parameters: str) -> str:
    item = claim("c", result("a"), configs=(config("HERE", source),))
    return json.dumps(item).replace('"HERE"', parameters)


def _foreign(random: Random) -> bytes:
    """What the namespace doesn't map or a claim may not say, bent."""
    text = _written(*random.choice(FOREIGN))
    if random.random() < 0.5:
        text = bend_json(random, text)
    content = text.encode("utf-8", "surrogatepass")
    return bend_bytes(random, content) if random.random() < 0.3 else content


def _large(random: Random) -> bytes:
    """Very long, very deep, or very many."""
    size = random.choice([300, 5000, MAX_PARAMETERS])
    opening, closing = random.choice([("[", "]"), ('{"mapping":', "}")])
    ways: list[Callable[[], str]] = [
        lambda: json.dumps({"mapping": "nlb0" + "x" * size}),
        lambda: f'{{"mapping": "nlb0"{" " * size}, "x": 0}}',
        lambda: opening * size + closing * size,
        lambda: opening * size,
        lambda: f'{{"mapping": {"9" * size}}}',
        lambda: json.dumps({f"key-{n}": n for n in range(size // 20)}),
    ]
    return _written(FROM_CLAIM, random.choice(ways)()).encode()


WAYS: Final[Sequence[Callable[[Random], bytes]]] = (_foreign, _foreign, _foreign, _large)
