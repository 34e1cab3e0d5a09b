"""Hostile ResourceClaims, each a function of a seed and a number: none of them may be prepared.

Each asks for what it may not have: a function that its namespace doesn't map, a class's privilege,
two things at once, or something else than our parameters. Some are bent as text and bytes besides;
only those that no bend can make a claim that may be prepared.
"""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, TypeAlias

from plugin.dra.claims import FROM_CLAIM, FROM_CLASS
from simulator.cards import NLB0, NLB3
from tests.fuzz.mutations import bend_bytes, bend_json
from tests.plugin.dra.support import claim, config, result

Parts: TypeAlias = tuple[str, str]
"""The source of a configuration, and its parameters as text: keys may be there twice."""

NEVER: Final = json.dumps({"afu": NLB0, "program": "Never"})
DEVELOP: Final = '{"develop": true}'
MAPPED: Final = '{"mapping": "nlb0"}'
"""What is allowed, by itself: the first two to a class, the last one to a claim."""

MAX_PARAMETERS: Final = 10 * 1024
"""Bytes that the API server accepts."""

ABOUT: Final = '"apiVersion": "accelbind.dev/v1", "kind": "FpgaConfig"'

FOREIGN: Final[Sequence[Parts]] = (
    (FROM_CLAIM, '{"mapping": "theirs"}'),  # of another namespace
    (FROM_CLAIM, '{"mapping": "other/theirs"}'),
    (FROM_CLAIM, '{"mapping": "unheard-of"}'),
    (FROM_CLAIM, '{"mapping": "clash"}'),  # rejected: two objects have the name
    (FROM_CLAIM, '{"mapping": "elsewhere"}'),  # of another interface
    (FROM_CLAIM, DEVELOP),
    (FROM_CLAIM, NEVER),
    (FROM_CLASS, json.dumps({"afu": "f" * 32, "program": "Never"})),  # nobody maps it
)

CONTRADICTIONS: Final[Sequence[Sequence[Parts]]] = (
    ((FROM_CLASS, NEVER), (FROM_CLASS, DEVELOP)),
    ((FROM_CLASS, NEVER), (FROM_CLAIM, '{"mapping": "nlb3"}')),
    ((FROM_CLASS, DEVELOP), (FROM_CLAIM, MAPPED)),
    ((FROM_CLAIM, MAPPED), (FROM_CLAIM, '{"mapping": "nlb3"}')),
    ((FROM_CLASS, NEVER), (FROM_CLASS, json.dumps({"afu": NLB3, "program": "Never"}))),
    ((FROM_CLASS, MAPPED), (FROM_CLAIM, MAPPED)),
    ((FROM_CLASS, DEVELOP), (FROM_CLAIM, DEVELOP)),
)

NEARLY: Final[Sequence[Parts]] = (
    (FROM_CLAIM, '{"mapping": "nlb0", "mapping": "nlb0"}'),
    (FROM_CLAIM, '{"mapping": "nlb3", "mapping": "nlb0"}'),
    (FROM_CLAIM, r'{"mapping": "nlb0", "mappin\u0067": "nlb0"}'),
    (FROM_CLAIM, f'{{{ABOUT}, "mapping": "nlb0"}}'),
    (FROM_CLAIM, '{"mapping": ["nlb0"]}'),
    (FROM_CLAIM, '{"mapping": {"name": "nlb0"}}'),
    (FROM_CLAIM, '{"Mapping": "nlb0"}'),
    (FROM_CLAIM, '{"mapping": "NLB0"}'),
    (FROM_CLAIM, r'{"mapping": "nlb0\u0000"}'),
    (FROM_CLAIM, '["mapping", "nlb0"]'),
    (FROM_CLAIM, json.dumps(MAPPED)),
    (FROM_CLAIM, '{"mapping": "nlb0", "develop": true}'),
    (FROM_CLAIM, '{"mapping": "nlb0", "afu": null}'),
    (FROM_CLASS, '{"develop": true, "develop": true}'),
    (FROM_CLASS, '{"develop": 1}'),
    (FROM_CLASS, '{"develop": "true"}'),
    (FROM_CLASS, '{"develop": true, "program": "Never"}'),
    (FROM_CLASS, f'{{{ABOUT}, "develop": true}}'),
    (FROM_CLASS, json.dumps({"afu": NLB0})),
    (FROM_CLASS, json.dumps({"afu": NLB0, "program": "never"})),
    (FROM_CLASS, json.dumps({"afu": NLB0, "program": "Always"})),
    (FROM_CLASS, json.dumps({"afu": [NLB0], "program": "Never"})),
    (FROM_CLASS, f'{{"afu": {"1" * 32}, "program": "Never"}}'),
    (FROM_CLASS, json.dumps({"afu": f"{NLB0}{NLB0}", "program": "Never"})),
    ("", MAPPED),
    ("FromElsewhere", MAPPED),
    ("fromClaim", MAPPED),
)
"""Nearly what is allowed."""

ALLOCATIONS: Final[Sequence[Sequence[dict[str, Any]]]] = (
    (),
    (result("a", pool="n2"),),
    (result("a"), result("a")),
    (result("gone"),),
    (result("a"), result("odd")),
    (result("a"), result("ve")),
    (result("ve"),),  # of a device type, and the configuration is for FPGAs
    (result("blind"),),
    (result("a", driver="gpu.example.com"),),
)
"""Of devices that can't be had with an allowed configuration."""


def make_claim(seed: int, number: int) -> bytes:
    """The claim of a number, in the run of a seed, as the API server answers."""
    random = Random(f"{seed}:{number}")  # noqa: S311 - to be had again, not secret
    return random.choice(WAYS)(random)


def _written(parts: Sequence[Parts], *results: dict[str, Any], requests: Sequence[str] = ()) -> str:
    configs = [config(f"HERE{n}", source, *requests) for n, (source, _) in enumerate(parts)]
    text = json.dumps(claim("c", *results or (result("a"),), configs=tuple(configs)))
    for number, (_, parameters) in enumerate(parts):
        text = text.replace(f'"HERE{number}"', parameters)
    return text


def _foreign(random: Random) -> bytes:
    """What the namespace doesn't map or a claim may not say, bent."""
    text = _written([random.choice(FOREIGN)])
    if random.random() < 0.5:
        text = bend_json(random, text)
    content = text.encode("utf-8", "surrogatepass")
    return bend_bytes(random, content) if random.random() < 0.3 else content


def _contradictory(random: Random) -> bytes:
    parts = list(random.choice(CONTRADICTIONS))
    random.shuffle(parts)
    return _written(parts).encode()


def _nearly(random: Random) -> bytes:
    parts = [random.choice(NEARLY)]
    if random.random() < 0.3:
        parts.insert(random.randrange(2), random.choice(NEARLY))
    return _written(parts).encode()


def _allocated(random: Random) -> bytes:
    results = random.choice(ALLOCATIONS)
    if not results:
        return json.dumps(claim("c") | random.choice([{}, {"status": {}}])).encode()
    return _written([random.choice([(FROM_CLASS, NEVER), (FROM_CLAIM, MAPPED)])], *results).encode()


def _for_others(random: Random) -> bytes:
    """What is allowed, for another request or another driver."""
    if random.random() < 0.5:
        others = random.choice([["other"], ["fpga/any"], ["FPGA"], ["fpga "], ["", "x"]])
        return _written([(FROM_CLAIM, MAPPED)], requests=others).encode()
    text = _written([(FROM_CLAIM, MAPPED)])
    own = '"opaque": {"driver": "accelbind.dev"'
    name = random.choice(["gpu.example.com", "", "Accelbind.dev", "accelbind.dev ", "fpga"])
    return text.replace(own, own.replace("accelbind.dev", name)).encode()


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
    parameters = random.choice(ways)()
    return _written([(FROM_CLAIM, parameters)]).encode()


WAYS: Final[Sequence[Callable[[Random], bytes]]] = (
    *[_foreign] * 3,
    _contradictory,
    _nearly,
    _allocated,
    _for_others,
    _large,
)
