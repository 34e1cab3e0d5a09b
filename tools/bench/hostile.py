"""Pods of 1 MiB that are built to cost as much CPU as possible: one must not delay other reviews.

Each is made for a namespace of many mappings, as a tenant may have that creates them.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Final

from services.admission.guard import MAX_GUARDED
from services.admission.mutate import Policy
from services.admission.pod_review import answer, answer_guard
from services.mappings.index import MappingIndex, build_index
from services.mappings.model import parse
from services.process.errors import InvalidReview
from simulator.cards import A10_INTERFACE

SIZE: Final = 2**20
"""Bytes of a pod."""
LIMIT: Final = 0.25
"""CPU seconds that the slowest may take."""
HEADINGS = ("pod", "endpoint", "bytes", "answer", "outcome", "CPU ms", "at most")
MAPPED: Final = 2000
"""Mappings of the namespace: functions of one region, and of one per mapping."""

_REGION: Final = f"fpga.intel.com/region-{A10_INTERFACE}"
_HEAD: Final = (
    '{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","kind":'
    '{"group":"","version":"v1","kind":"Pod"},"operation":"CREATE","namespace":"default",'
    '"userInfo":{"username":"mallory","groups":["a"]},"object":'
)
_END: Final = "}}"

Pod = Callable[[int], str]
"""Returns a pod of about so many bytes, as JSON."""


def index() -> MappingIndex:
    """Return the mappings of the namespace that the pods are made for."""
    return build_index(
        [
            *(parse(_function(f"f{n}", A10_INTERFACE, n, "region")) for n in range(MAPPED)),
            *(parse(_function(f"r{n}", f"{n:032x}", n, "region")) for n in range(MAPPED)),
            *(parse(_function(f"a{n}", A10_INTERFACE, n, "af")) for n in range(MAPPED)),
            *(parse(_function(f"same{n}", A10_INTERFACE, MAPPED, "region")) for n in range(MAPPED)),
            *(parse(_accelerator(n)) for n in range(MAPPED)),
            *(parse(_short_accelerator(n)) for n in range(MAPPED)),
        ]
    )


def _function(name: str, interface: str, number: int, mode: str) -> object:
    return {
        "apiVersion": "fpga.intel.com/v2",
        "kind": "AcceleratorFunction",
        "metadata": {"name": name},
        "spec": {"interfaceId": interface, "afuId": f"{number:032x}", "mode": mode},
    }


def _accelerator(number: int) -> object:
    """Each brings variables of control characters, which JSON writes with six bytes."""
    long = f"{'a' * 60}.example/k{number}-"
    return {
        "apiVersion": "accelbind.dev/v1alpha1",
        "kind": "Accelerator",
        "metadata": {"name": f"acc{number}"},
        "spec": {
            "target": {"resource": f"nvidia.com/gpu-{number}"},
            "env": [{"name": f"V{number}_{n}", "value": "\x01" * 60} for n in range(4)],
            "nodeSelector": {f"{long}{n}": "x" for n in range(2)},
            "tolerations": [
                {"key": f"{long}{n}", "operator": "Exists", "effect": "NoSchedule"}
                for n in range(2)
            ],
        },
    }


def _short_accelerator(number: int) -> object:
    """Each brings as many variables and tolerations as it may, all short."""
    return {
        "apiVersion": "accelbind.dev/v1alpha1",
        "kind": "Accelerator",
        "metadata": {"name": f"s{number}"},
        "spec": {
            "target": {"resource": f"nvidia.com/gpu-{number}"},
            "env": [{"name": f"S{number}_{n}", "value": ""} for n in range(16)],
            "tolerations": [
                {"key": f"s{number}-{n}", "operator": "Exists", "effect": "NoSchedule"}
                for n in range(8)
            ],
        },
    }


def review(pod: str) -> bytes:
    return f"{_HEAD}{pod}{_END}".encode("utf-8", "surrogatepass")


def rows() -> Iterator[tuple[str, ...]]:
    """One row per pod, the slowest first: CPU is the least of three."""
    mappings = index()
    measured = [
        _measure(name, endpoint, review(pod(SIZE)), mappings)
        for endpoint, pods in (("/mutate", PODS), ("/validate", PODS), ("/guard", GUARDED))
        for name, pod in pods.items()
    ]
    for seconds, *row in sorted(measured, reverse=True):
        yield (*map(str, row), f"{seconds * 1e3:.0f}", f"{LIMIT * 1e3:.0f}")


def outcome(body: bytes, mappings: MappingIndex, endpoint: str = "/mutate") -> tuple[str, int]:
    """Answer a review; return what became of it, and how many bytes the answer has."""
    policy = Policy(guard=("nvidia.com/*",))
    try:
        if endpoint == "/guard":
            response = answer_guard(body, mappings, policy)
        else:
            response = answer(body, mappings, policy, validating=endpoint == "/validate")
    except InvalidReview:
        return "rejected", 0
    return f"{response.outcome} {response.reason}".strip(), len(response.body)


def _measure(
    name: str, endpoint: str, body: bytes, mappings: MappingIndex
) -> tuple[float, str, str, int, int, str]:
    """Return the least CPU seconds of three calls, and the columns of a row."""
    times = []
    what, size = outcome(body, mappings, endpoint)
    for _ in range(3):
        begun = time.process_time()
        outcome(body, mappings, endpoint)
        times.append(time.process_time() - begun)
    return min(times), name, endpoint, len(body), size, what


# Parts of pods


def _fill(size: int, part: Callable[[int], str]) -> str:
    """Join parts, numbered from 0, up to a size."""
    parts, left = [], size
    for n in count():
        parts.append(part(n))
        left -= len(parts[-1]) + 1
        if left <= 0:
            return ",".join(parts)
    raise AssertionError


def _members(key: str, value: str) -> Pod:
    """Limits with as many members as fit; `key` and `value` may use the number `n`."""
    return lambda size: _pod(_container(_limits(_fill(size, _member(key, value)))))


def _member(key: str, value: str) -> Callable[[int], str]:
    return lambda n: f'"{key.format(n=n)}":{value.format(n=n)}'


def _limits(members: str, requests: str | None = None) -> str:
    more = "" if requests is None else f',"requests":{{{requests}}}'
    return f'"resources":{{"limits":{{{members}}}{more}}}'


def _container(fields: str, name: str = "c", more: str = "") -> str:
    return f'{{"name":"{name}",{fields}{more}}}'


def _pod(containers: str, inits: str = "", metadata: str = '{"name":"p"}') -> str:
    first = f',"initContainers":[{inits}]' if inits else ""
    return f'{{"metadata":{metadata},"spec":{{"containers":[{containers}]{first}}}}}'


def _env(pairs: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> str:
    return ",".join(f'{{"name":"{name}","value":"{value}"}}' for name, value in pairs)


def _spelled(first: int, units: int) -> str:
    """A container that requests units of a region, and names a function for each."""
    pairs = [
        pair
        for n in range(1, units + 1)
        for pair in (
            (f"FPGA_REGION_{n}", A10_INTERFACE),
            (f"FPGA_AFU_{n}", f"{(first + n) % MAPPED:032x}"),
        )
    ]
    return _container(_limits(f'"{_REGION}":"{units}"'), more=f',"env":[{_env(pairs)}]')


def _containers(part: Callable[[int], str], *, init: bool = False) -> Pod:
    if init:
        return lambda size: _pod(_container('"image":"x"'), _fill(size, part))
    return lambda size: _pod(_fill(size, part))


def _half(first: Callable[[int], str], second: Callable[[int], str]) -> Pod:
    """Init containers of one kind, then of another."""
    return lambda size: _pod(
        _container('"image":"x"'), f"{_fill(size // 2, first)},{_fill(size // 2, second)}"
    )


def _asks(key: str, value: str = '"1"', more: str = "") -> Callable[[int], str]:
    """A container with one request; `key` may use the number `n`."""
    return lambda n: _container(_limits(f'"{key.format(n=n % MAPPED)}":{value}'), more=more)


def _with_env(part: Callable[[int], str]) -> Pod:
    """A container with as many variables as fit."""
    return lambda size: _pod(
        _container(_limits(f'"{_REGION}":"64"'), more=f',"env":[{_fill(size, part)}]')
    )


def _variable(name: str, value: str = "x") -> Callable[[int], str]:
    return lambda n: (
        f'{{"name":"{name.format(n=n)}","value":"{value.format(n=n, hex=f"{n:032x}")}"}}'
    )


def _placed(
    field: str, brackets: tuple[str, str], part: Callable[[int], str], containers: str
) -> Pod:
    """A pod that requests accelerators, with as many members of its placement as fit."""
    first, last = brackets
    return lambda size: (
        f'{{"metadata":{{"name":"p"}},"spec":{{"containers":[{containers}],'
        f'"{field}":{first}{_fill(size, part)}{last}}}}}'
    )


def _note(
    text: Callable[[int], str],
    containers: Callable[[int], str] = lambda _: _container(_limits('"fpga.intel.com/f0":"1"')),
) -> Pod:
    """A pod with an earlier note; quotes of `text` are written as `'`."""

    def pod(size: int) -> str:
        escaped = text(size).replace("'", '\\"')
        metadata = f'{{"name":"p","annotations":{{"accelbind.dev/requested":"{escaped}"}}}}'
        return _pod(containers(size), metadata=metadata)

    return pod


def _defaults(part: str) -> Pod:
    """A pod with LimitRanger's annotation, which repeats a part."""
    asks = _container(_limits('"fpga.intel.com/f0":"1"'))

    def pod(size: int) -> str:
        text = f"LimitRanger plugin set: {part * (size // len(part))}\\n"
        metadata = f'{{"name":"p","annotations":{{"kubernetes.io/limit-ranger":"{text}"}}}}'
        return _pod(asks, metadata=metadata)

    return pod


def _noted(names: int) -> Callable[[int], str]:
    """The note of a container `c` that requested none of so many accelerators."""
    members = ",".join(f"'accelbind.dev/s{n}':0" for n in range(names))
    return lambda _: f"{{'c':{{{members}}}}}"


def _join(part: Callable[[int], str], number: int) -> str:
    return ",".join(part(n) for n in range(number))


def _in_pod(member: Callable[[int], str]) -> Pod:
    """A pod that requests a function, with one more member of its spec."""
    asks = _container(_limits('"fpga.intel.com/f0":"1"'))
    return lambda size: f'{{"spec":{{"containers":[{asks}],"x":{member(size)}}}}}'


def _nested(start: str, end: str, share: int) -> Callable[[int], str]:
    return lambda size: start * (size // share) + "1" + end * (size // share)


def _repeated(member: str) -> Pod:
    """A pod with the same member of its spec again and again."""
    return lambda size: f'{{"spec":{{{_fill(size, lambda _: member)}}}}}'


def _named(name: Callable[[int], str]) -> Pod:
    return lambda size: _pod(_container(_limits('"fpga.intel.com/f0":"1"'), name=name(size)))


def _wrong_pairs(size: int) -> str:
    pairs = _fill(size, _variable("FPGA_REGION_{n}1", A10_INTERFACE))
    return _pod(_container(_limits(f'"{_REGION}":"64"'), more=f',"env":[{pairs}]'))


def _pairs(n: int) -> str:
    return _env(
        [(f"FPGA_REGION_{n + 1}", A10_INTERFACE), (f"FPGA_AFU_{n + 1}", f"{n % MAPPED:032x}")]
    )


PODS: Final[Mapping[str, Pod]] = {
    "unknown names": _members("fpga.intel.com/n{n}", '"1"'),
    "unknown names, typos of a known one": _members("fpga.intel.com/f{n}x", '"0"'),
    "unknown names of 63 letters": _members("fpga.intel.com/" + "n" * 50 + "{n:013}", '"1"'),
    "a name of 1 MiB": lambda size: _pod(_container(_limits(f'"fpga.intel.com/{"n" * size}":"1"'))),
    "mapped names with no unit": _members("fpga.intel.com/f{n}", '"0"'),
    "mapped names, one unit each": _members("fpga.intel.com/a{n}", '"1"'),
    "physical names, unmapped": _members("fpga.intel.com/region-{n:032x}f", '"1"'),
    "the same name again": _members("fpga.intel.com/f0", '"1"'),
    "names of other domains": _members("example.com/n{n}", '"1"'),
    "quantities of 128 characters": _members("fpga.intel.com/f{n}", '"' + "0" * 127 + '1"'),
    "quantities with exponents": _members("fpga.intel.com/f{n}", '"1e-999999999"'),
    "quantities that are no numbers": _members("fpga.intel.com/f{n}", '"x"'),
    "a number of 1 MiB": lambda size: _pod(
        _container(_limits(f'"fpga.intel.com/f0":{"9" * size}'))
    ),
    "a quantity of 1 MiB": lambda size: _pod(
        _container(_limits(f'"fpga.intel.com/f0":"{"9" * size}"'))
    ),
    "names in requests only": lambda size: _pod(
        _container(_limits("", _fill(size, _member("fpga.intel.com/f{n}", '"1"'))))
    ),
    "requests that differ": lambda size: _pod(
        _container(
            _limits(
                _fill(size // 2, _member("fpga.intel.com/f{n}", '"1"')),
                _fill(size // 2, _member("fpga.intel.com/f{n}", '"2"')),
            )
        )
    ),
    "containers without resources": _containers(lambda _: "{}"),
    "containers, one function each": _containers(_asks("fpga.intel.com/f{n}")),
    "containers, a region each": _containers(_asks("fpga.intel.com/r{n}")),
    "containers, an unknown name each": _containers(_asks("fpga.intel.com/n{n}")),
    "containers, 64 units": _containers(_asks("fpga.intel.com/f{n}", '"64"')),
    "init containers, one function each": _containers(_asks("fpga.intel.com/f{n}"), init=True),
    "init containers, two functions in turn": _containers(
        lambda n: _asks("fpga.intel.com/f{n}")(n % 2), init=True
    ),
    "init containers, names of one function": _containers(
        _asks("fpga.intel.com/same{n}"), init=True
    ),
    "init containers, 64 variables each": _containers(lambda n: _spelled(n * 64, 64), init=True),
    "init containers, variables and then any": _half(
        lambda n: _spelled(n * 64, 64), _asks(_REGION)
    ),
    "init containers, functions and then any": _half(_asks("fpga.intel.com/f{n}"), _asks(_REGION)),
    "containers, an accelerator each": _containers(_asks("accelbind.dev/acc{n}")),
    "containers, the same accelerator": _containers(_asks("accelbind.dev/acc0")),
    "containers of an accelerator, with variables": _containers(
        _asks("accelbind.dev/acc0", more=',"env":[{"name":"V0_0","value":"y"}]')
    ),
    "an accelerator, many tolerations": _placed(
        "tolerations",
        ("[", "]"),
        lambda n: f'{{"key":"t{n}","operator":"Exists"}}',
        _container(_limits('"accelbind.dev/acc0":"1"')),
    ),
    "256 accelerators, many tolerations": _placed(
        "tolerations",
        ("[", "]"),
        lambda n: f'{{"key":"t{n}","operator":"Exists"}}',
        _join(_asks("accelbind.dev/s{n}"), 256),
    ),
    "an accelerator, many node labels": _placed(
        "nodeSelector",
        ("{", "}"),
        lambda n: f'"l{n}":"x"',
        _container(_limits('"accelbind.dev/acc0":"1"')),
    ),
    "variables of ours, allowed": _with_env(_pairs),
    "variables of ours, not mapped": _with_env(_variable("FPGA_AFU_{n}1", "{hex}")),
    "variables of ours, without a partner": _wrong_pairs,
    "variables of others": _with_env(_variable("A{n}")),
    "a variable of 1 MiB": lambda size: _with_env(lambda _: _variable("FPGA_X", "y" * size)(0))(1),
    "variables with escapes": _with_env(_variable("\\u0046PGA_{n}")),
    "an earlier note, many names": _note(
        lambda size: "{'c':{" + _fill(size, lambda n: f"'fpga.intel.com/f{n}':1") + "}}"
    ),
    "an earlier note, for containers of one name": _note(
        _noted(MAPPED), lambda _: _join(_asks("accelbind.dev/s{n}"), 256)
    ),
    "an earlier note of 512 names, for containers of one name": _note(
        _noted(512), lambda _: _join(_asks("accelbind.dev/s{n}"), 256)
    ),
    "an earlier note, nested": _note(_nested("{'c':", "}", 8)),
    "defaults of a LimitRange, run together": _defaults("a limit for container b"),
    "defaults of a LimitRange, empty": _defaults("; "),
    "defaults of a LimitRange, of one container": _defaults("fpga.intel.com/f0, "),
    "lists in lists": _in_pod(_nested("[", "]", 2)),
    "objects in objects": _in_pod(_nested('{"a":', "}", 6)),
    "500 levels, again and again": _in_pod(
        lambda size: f"[{_fill(size, lambda _: '[' * 500 + ']' * 500)}]"
    ),
    "members again and again": _repeated('"containers":[{"name":"c"}]'),
    "a list of the wrong type at its end": lambda size: _pod(_fill(size, lambda _: "{}") + ",1"),
    "a name of unprintable characters": _named(lambda size: "\\u0007" * (size // 6)),
    "a name of surrogates": _named(lambda size: "\\ud800" * (size // 6)),
}
"""What each pod is full of → how to make it."""

_GUARDED_GPU: Final = _asks("nvidia.com/gpu-{n}")

GUARDED: Final[Mapping[str, Pod]] = {
    "containers, a guarded resource each": _containers(_GUARDED_GPU),
    "containers of no name": _containers(_asks("nvidia.com/x{n}")),
    "guarded resources of no name": _members("nvidia.com/x{n}", '"1"'),
    "guarded resources of no unit": _members("nvidia.com/x{n}", '"0e0"'),
    "guarded resources in requests only": lambda size: _pod(
        _container(_limits("", _fill(size, _member("nvidia.com/x{n}", '"1"'))))
    ),
    "a note, for containers of one name": _note(
        _noted(MAPPED), lambda _: _join(_GUARDED_GPU, MAX_GUARDED)
    ),
    "a note of 512 names, for containers of one name": _note(
        _noted(512), lambda _: _join(_GUARDED_GPU, MAX_GUARDED)
    ),
    "a note of 256 names, and resources of no name": _note(
        _noted(256),
        lambda _: _container(_limits(_join(_member("nvidia.com/x{n}", "0"), MAX_GUARDED))),
    ),
}
"""The same of pods for the guard."""
