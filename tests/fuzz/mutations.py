"""Bent AdmissionReviews, each a function of a seed and a number: any can be had again."""

import gzip
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import TypeAlias

from tests.support import shared_dir
from tests.webhook.reviews import AFU, INTERFACE, LOGICAL, RESOURCE, body, pod

ROUNDS = 4
"""How many times a review is bent at most."""
MAX_BODY = 4 * 1024 * 1024
"""Where bodies are cut: a little above what the webhook takes."""

NAMES = [
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
QUANTITIES = [
    *("1", "0", "-1", "64", "65", "3000000", "1Ki", "0.5", "1e3", "1e999999999", "1m", "1000m"),
    *("9" * 4000, "", " 1", "1 ", "+1", "0x10", "٣", "1Ei", "NaN", ".", "1.", ".5", "--1"),
]
NUMBERS = ["1e999", "-1e999", "9" * 400, "-0", "0.1e-400", "1E400", "18446744073709551616", "1.0"]
TEXTS = [
    *("FPGA_REGION_1", "FPGA_AFU_1", "FPGA_REGION", INTERFACE, AFU, "$(FPGA_AFU_1)", '"', "\\"),
    *("c0", "CREATE", "Pod", "default", "Always", "accelbind.dev/requested", "\ud800", "\udc00x"),
    *("\x00", "\U0001f600", "a" * 20_000, '{"c0":{"fpga.intel.com/arria10-nlb0":1}}', "../../.."),
]
KEYS = [
    *("limits", "requests", "resources", "env", "name", "value", "valueFrom", "initContainers"),
    *("containers", "restartPolicy", "annotations", "metadata", "spec", "object", "uid", "kind"),
    *("namespace", "operation", "subResource", "ephemeralContainers", "resourceClaims", "~1/~0"),
]


@dataclass
class Raw:
    """Text that goes into the JSON as it is."""

    text: str


@dataclass
class Entry:
    """A value of an object or array; in an array its key is empty."""

    key: str
    value: "Json"


@dataclass
class Node:
    """An object or array, as entries, so that a key may stand in it twice."""

    is_object: bool
    entries: list[Entry]


Json: TypeAlias = Node | Raw | str | int | float | bool | None


@dataclass(frozen=True)
class Case:
    """One request.

    Args:
        path: Where it is posted to.
        body: Its body.
        headers: Its headers beside Host, and how the body is framed.
        chunked: Whether the body comes in chunks.
    """

    path: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)
    chunked: bool = False


class Seeds:
    """The reviews that are bent: hand-made ones, and recorded ones where they are at hand."""

    @cached_property
    def small(self) -> list[bytes]:
        """Hand-made reviews, of each way through the mutation."""
        return [
            body(),
            body(pod("fpga.intel.com/region-nlb0", "2")),
            body(pod(RESOURCE)),
            body(_pod_of_everything()),
            body({"spec": {}}, kind={"group": "apps", "version": "v1", "kind": "Deployment"}),
            body(pod("cpu"), operation="UPDATE", subResource="status"),
        ]

    @cached_property
    def large(self) -> list[bytes]:
        """Recorded reviews; the hand-made ones where there are none."""
        folder = shared_dir()
        recorded = sorted(folder.glob("recorded/*/admissionreview-*.json")) if folder else []
        return [path.read_bytes() for path in recorded] or self.small


def _pod_of_everything() -> dict[str, object]:
    everything = pod("fpga.intel.com/region-nlb0", "2")
    everything["metadata"]["annotations"] = {"accelbind.dev/requested": '{"c0":{}}', "a/b": "c"}
    secret = {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    first = everything["spec"]["containers"][0]
    first["env"] = [
        {"name": "A", **secret},
        {"name": "FPGA_REGION_1", "value": INTERFACE},
        {"name": "FPGA_AFU_1", "value": AFU},
    ]
    everything["spec"]["initContainers"] = [
        {**first, "name": "init", "env": []},
        {**pod()["spec"]["containers"][0], "name": "sidecar", "restartPolicy": "Always"},
    ]
    return everything


def make_case(seeds: Seeds, seed: int, number: int) -> Case:
    """The case of a number, in the run of a seed."""
    random = Random(f"{seed}:{number}")  # noqa: S311 - to be had again, not secret
    start = random.choice(seeds.large if random.random() < 0.1 else seeds.small)
    content = _bend_json(random, start) if random.random() < 0.75 else start
    if random.random() < 0.25:
        for _ in range(random.randint(1, ROUNDS)):
            content = random.choice(BYTE_BENDERS)(random, content)
    content = content[:MAX_BODY]
    path = random.choice(["/mutate", "/pods", "/validate"])
    if random.random() < 0.97:
        return Case(path, content, chunked=random.random() < 0.1)
    return Case(path, content, _odd_headers(random), chunked=random.random() < 0.5)


def _odd_headers(random: Random) -> tuple[tuple[str, str], ...]:
    return random.choice(
        [
            (),
            (("Content-Type", "text/plain"),),
            (("Content-Type", "application/json;charset=utf-16"),),
            (("Content-Type", "application/json"), ("Content-Encoding", "gzip")),
            (("Content-Type", "application/json"), ("X", "y" * 4000)),
            (("Content-Type", "application/json"), ("Accept", "text/html")),
        ]
    )


def _bend_json(random: Random, content: bytes) -> bytes:
    tree = _tree(json.loads(content))
    for _ in range(random.randint(1, ROUNDS)):
        places = list(_places(tree))
        if not places:
            break
        bend = random.choice(TREE_BENDERS)
        bend(random, *random.choice(places))
        if bend is _repeat:  # what is repeated once more would be without bounds
            break
    text = _dump(tree, ascii_only=random.random() < 0.5)
    return text.encode("utf-8", "surrogatepass")


def _tree(value: object) -> Json:
    if isinstance(value, dict):
        return Node(True, [Entry(key, _tree(inner)) for key, inner in value.items()])
    if isinstance(value, list):
        return Node(False, [Entry("", _tree(inner)) for inner in value])
    assert value is None or isinstance(value, (str, int, float))
    return value


def _places(tree: Json) -> Iterable[tuple[Node, int]]:
    """All places in a tree, those that matter to us twice."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, Node):
            continue
        for position, entry in enumerate(node.entries):
            if entry.key != "managedFields":
                yield node, position
                waiting.append(entry.value)
            if entry.key in KEYS:
                yield node, position


def _dump(value: Json, *, ascii_only: bool) -> str:
    if isinstance(value, Raw):
        return value.text
    if not isinstance(value, Node):
        return json.dumps(value, ensure_ascii=ascii_only)
    inner = [_dump(entry.value, ascii_only=ascii_only) for entry in value.entries]
    if not value.is_object:
        return f"[{','.join(inner)}]"
    keys = [json.dumps(entry.key, ensure_ascii=ascii_only) for entry in value.entries]
    return "{" + ",".join(f"{key}:{text}" for key, text in zip(keys, inner, strict=True)) + "}"


def _nested(random: Random) -> Raw:
    depth = random.choice([3, 100, 1000, 100_000])
    opening, closing = random.choice([("[", "]"), ('{"a":', "}")])
    return Raw(opening * depth + "1" + closing * depth)


def _quantities(random: Random) -> Node:
    names = random.sample(NAMES, 3)
    return Node(True, [Entry(name, random.choice(QUANTITIES)) for name in names])


def _variable(random: Random) -> Node:
    keys = ("name", "value")
    return Node(True, [Entry(key, random.choice(TEXTS)) for key in keys])


def _texts(random: Random) -> Node:
    return Node(False, [Entry("", random.choice(TEXTS)) for _ in range(random.randint(0, 3))])


VALUES: list[Callable[[Random], Json]] = [
    lambda random: random.choice([None, True, False, 0, -1, 1.5]),
    lambda random: Raw(random.choice(NUMBERS)),
    lambda random: random.choice(QUANTITIES),
    lambda random: random.choice(NAMES),
    lambda random: random.choice(TEXTS),
    *(_nested, _quantities, _variable, _texts),
]


def _odd_value(random: Random) -> Json:
    return random.choice(VALUES)(random)


def _replace_value(random: Random, node: Node, position: int) -> None:
    node.entries[position].value = _odd_value(random)


def _rename(random: Random, node: Node, position: int) -> None:
    node.entries[position].key = random.choice(random.choice([KEYS, NAMES, TEXTS]))


def _drop(_random: Random, node: Node, position: int) -> None:
    del node.entries[position]


def _double(random: Random, node: Node, position: int) -> None:
    """The same once more: in an object, a key that stands there twice."""
    first = node.entries[position]
    value = _odd_value(random) if random.random() < 0.5 else first.value
    node.entries.insert(random.randint(0, len(node.entries)), Entry(first.key, value))


def _add(random: Random, node: Node, _position: int) -> None:
    key = random.choice(random.choice([KEYS, NAMES]))
    node.entries.append(Entry(key, _odd_value(random)))


def _repeat(random: Random, node: Node, position: int) -> None:
    """Very many of the same."""
    entry = node.entries[position]
    most = MAX_BODY // (1 + len(_dump(entry.value, ascii_only=True)))
    node.entries.extend([entry] * min(most, random.choice([2, 20, 500])))


def _flip(random: Random, content: bytes) -> bytes:
    bent = bytearray(content)
    for _ in range(random.choice([1, 1, 3, 20])):
        if bent:
            bent[random.randrange(len(bent))] = random.randrange(256)
    return bytes(bent)


def _cut(random: Random, content: bytes) -> bytes:
    return content[: random.randint(0, len(content))]


def _take_out(random: Random, content: bytes) -> bytes:
    start = random.randint(0, len(content))
    return content[:start] + content[start + random.choice([1, 2, 50]) :]


def _put_in(random: Random, content: bytes) -> bytes:
    at = random.randint(0, len(content))
    odd = [b"\xed\xa0\x80", b"\xff", b"\x00", b"\\ud800", b"{", b"]", b'"', b",", b"\xc0\xaf"]
    return content[:at] + random.choice([*odd, random.randbytes(20)]) + content[at:]


def _double_slice(random: Random, content: bytes) -> bytes:
    start = random.randint(0, len(content))
    return content[:start] + content[max(0, start - random.randint(0, 200)) :]


def _encode_otherwise(random: Random, content: bytes) -> bytes:
    text = content.decode("latin-1")
    ways: list[Callable[[], bytes]] = [
        lambda: text.encode("utf-16"),
        lambda: text.encode("utf-32"),
        lambda: b"\xef\xbb\xbf" + content,
        lambda: gzip.compress(content, 1, mtime=0),
        lambda: b"",
        lambda: content + content,
        lambda: b" " * random.choice([1, 4 * 1024 * 1024]) + content,
        lambda: content + b"\n\n",
    ]
    return random.choice(ways)()


TREE_BENDERS: list[Callable[[Random, Node, int], None]] = [
    *(_replace_value, _replace_value, _replace_value, _rename, _drop, _double, _double, _add),
    _repeat,
]
BYTE_BENDERS: list[Callable[[Random, bytes], bytes]] = [
    *(_flip, _flip, _flip, _cut, _take_out, _put_in, _put_in, _double_slice, _encode_otherwise),
]
