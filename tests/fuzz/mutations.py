"""Bent AdmissionReviews, each a function of a seed and a number: any can be had again.

The JSON is bent as text, so that a key may stand in an object twice, and values may be what no
writer of JSON would write.
"""

import gzip
import json
import re
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Final

from tests.support import shared_dir
from tests.webhook.reviews import AFU, INTERFACE, LOGICAL, RESOURCE, body, pod

ROUNDS: Final = 4
"""How many times a review is bent at most."""
MAX_BODY: Final = 4 * 1024 * 1024
"""Where bodies are cut: a little above what the webhook takes."""

NAMES: Final = [
    LOGICAL,
    RESOURCE,
    f"fpga.intel.com/region-{INTERFACE}",
    "fpga.intel.com/region-nlb0",
    "fpga.intel.com/",
    "fpga.intel.com/" + "x" * 300,
    "fpga.intel.com/af-ce4.d84.!!!",
    "FPGA.INTEL.COM/arria10-nlb0",
    "cpu",
    "",
    "\u2028\x00\ud800",
]
QUANTITIES: Final = [
    *("1", "0", "-1", "64", "65", "3000000", "1Ki", "0.5", "1e3", "1e999999999", "1m", "1000m"),
    *("9" * 4000, "", " 1", "1 ", "+1", "0x10", "٣", "1Ei", "NaN", ".", "1.", ".5", "--1"),
]
NUMBERS: Final = ["1e999", "-1e999", "9" * 400, "-0", "0.1e-400", "1E400", "18446744073709551616"]
TEXTS: Final = [
    *("FPGA_REGION_1", "FPGA_AFU_1", "FPGA_REGION", INTERFACE, AFU, "$(FPGA_AFU_1)", '"', "\\"),
    *("c0", "CREATE", "Pod", "default", "Always", "accelbind.dev/requested", "\ud800", "\udc00x"),
    *("\x00", "\U0001f600", "a" * 20_000, '{"c0":{"fpga.intel.com/arria10-nlb0":1}}', "../../.."),
]
KEYS: Final = [
    *("limits", "requests", "resources", "env", "name", "value", "valueFrom", "initContainers"),
    *("containers", "restartPolicy", "annotations", "metadata", "spec", "object"),
    *("namespace", "operation", "subResource", "ephemeralContainers", "resourceClaims", "~1/~0"),
]
"""Keys that matter, and some that look so."""


@cache
def small() -> list[bytes]:
    """Hand-made reviews, of each way through the mutation."""
    everything = pod("fpga.intel.com/region-nlb0", "2")
    everything["metadata"]["annotations"] = {"accelbind.dev/requested": '{"c0":{}}', "a/b": "c"}
    first = everything["spec"]["containers"][0]
    first["env"] = [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "FPGA_REGION_1", "value": INTERFACE},
        {"name": "FPGA_AFU_1", "value": AFU},
    ]
    sidecar = {"name": "sidecar", "restartPolicy": "Always"}
    everything["spec"]["initContainers"] = [
        {**first, "name": "init", "env": []},
        pod()["spec"]["containers"][0] | sidecar,
    ]
    return [
        body(),
        body(pod("fpga.intel.com/region-nlb0", "2")),
        body(pod(RESOURCE)),
        body(everything),
        body({"spec": {}}, kind={"group": "apps", "version": "v1", "kind": "Deployment"}),
        body(pod("cpu"), operation="UPDATE", subResource="status"),
    ]


@cache
def large() -> list[bytes]:
    """Recorded reviews; the hand-made ones where there are none."""
    folder = shared_dir()
    recorded = sorted(folder.glob("recorded/*/admissionreview-*.json")) if folder else []
    return [path.read_bytes() for path in recorded] or small()


def make_case(seed: int, number: int) -> tuple[str, bytes]:
    """The path and the body of a request, by its number in the run of a seed."""
    random = Random(f"{seed}:{number}")  # noqa: S311 - to be had again, not secret
    content = random.choice(large() if random.random() < 0.1 else small())
    if random.random() < 0.75:
        content = bend_json(random, content.decode()).encode("utf-8", "surrogatepass")
    if random.random() < 0.25:
        for _ in range(random.randint(1, ROUNDS)):
            content = bend_bytes(random, content)
    return random.choice(["/mutate", "/pods", "/validate"]), content[:MAX_BODY]


_ENTRY = re.compile(r'"((?:[^"\\]|\\.)*)"\s*:\s*')


def bend_json(random: Random, text: str) -> str:
    """Bend some entries of objects, the half of them those that matter."""
    for _ in range(random.randint(1, ROUNDS)):
        entries = list(_ENTRY.finditer(text))
        if not entries or len(text) > MAX_BODY:
            break
        liked = [entry for entry in entries if entry[1] in KEYS]
        entry = random.choice(random.choice([entries, liked or entries]))
        try:
            _, end = json.JSONDecoder().raw_decode(text, entry.end())
        except (ValueError, RecursionError):
            break  # it is no JSON any more
        bent = random.choice(BENDERS)(random, entry[0], text[entry.end() : end])
        text = text[: entry.start()] + bent + text[end:]
    return text


def _written(random: Random, value: object) -> str:
    return json.dumps(value, ensure_ascii=random.random() < 0.5)


def _nested(random: Random) -> str:
    depth = random.choice([3, 100, 1000, 100_000])
    opening, closing = random.choice([("[", "]"), ('{"a":', "}")])
    return opening * depth + "1" + closing * depth


VALUES: Final[list[Callable[[Random], str]]] = [
    lambda random: random.choice(["null", "true", "false", "0", "-1", "1.5", *NUMBERS]),
    lambda random: _written(random, random.choice([*QUANTITIES, *NAMES])),
    lambda random: _written(random, random.choice(TEXTS)),
    lambda random: _written(
        random, {name: random.choice(QUANTITIES) for name in random.sample(NAMES, 3)}
    ),
    lambda random: _written(random, {"name": random.choice(TEXTS), "value": random.choice(TEXTS)}),
    _nested,
]


def _odd(random: Random) -> str:
    return random.choice(VALUES)(random)


def _odd_key(random: Random) -> str:
    return _written(random, random.choice(random.choice([KEYS, NAMES, TEXTS]))) + ":"


def _repeat(random: Random, key: str, value: str) -> str:
    """Very many of the same: the entry, or the items of a list."""
    times = min(MAX_BODY // (1 + len(key + value)), random.choice([2, 20, 500]))
    if value.startswith("[") and value != "[]":
        return f"{key}[{','.join([value[1:-1]] * times)}]"
    return ",".join([key + value] * times)


BENDERS: Final[list[Callable[[Random, str, str], str]]] = [
    *[lambda random, key, value: key + _odd(random)] * 3,  # noqa: ARG005 - as the others
    lambda random, key, value: _odd_key(random) + value,  # noqa: ARG005 - the same
    lambda random, key, value: '"dropped":0',  # noqa: ARG005 - the same
    *[lambda random, key, value: f"{key}{value},{key}{random.choice([value, _odd(random)])}"] * 2,
    lambda random, key, value: f"{key}{value},{_odd_key(random)}{_odd(random)}",
    _repeat,
]


def bend_bytes(random: Random, content: bytes) -> bytes:
    """Flip, cut, double or replace some bytes, or encode all of them in another way."""
    at, size = random.randint(0, len(content)), random.choice([1, 2, 50, 200])
    odd = [b"\xed\xa0\x80", b"\xff", b"\x00", b"\\ud800", b"{", b"]", b'"', b",", b"\xc0\xaf"]
    text = content.decode("latin-1")
    ways: list[Callable[[], bytes]] = [
        *[lambda: content[:at] + random.randbytes(1) + content[at + 1 :]] * 3,
        lambda: content[:at],
        lambda: content[:at] + content[at + size :],
        *[lambda: content[:at] + random.choice([*odd, random.randbytes(20)]) + content[at:]] * 2,
        lambda: content[:at] + content[max(0, at - size) :],
        lambda: random.choice(
            [
                text.encode("utf-16"),
                text.encode("utf-32"),
                b"\xef\xbb\xbf" + content,
                gzip.compress(content, 1, mtime=0),
                b"",
                content + content,
                b" " * random.choice([1, 4 * 1024 * 1024]) + content,
            ]
        ),
    ]
    return random.choice(ways)()
