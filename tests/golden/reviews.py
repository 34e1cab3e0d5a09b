"""500 generated reviews and the mappings that they are answered with.

The same on every machine and every Python: all chance comes from `random.Random(SEED).random()`,
whose numbers Python promises to keep.
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

T = TypeVar("T")
Object = dict[str, Any]

SEED: Final = 13
REVIEWS: Final = 500
DOMAINS: Final = ("fpga.intel.com", "fpga.example.com")

ARRIA: Final = "ce48969398f05f33946d560708be108a"
STRATIX: Final = "bfac4d851ee856fe8c95865ce1bbaa2d"
NLB0: Final = "d8424dc4a4a3c413f89e433683f9040b"
NLB3: Final = "f7df405cbd7acf7222f144b0b93acd18"

AF_NLB0: Final = "af-ce4.d84.zkiWk5jwXzOUbVYHCL4QithCTcSko8QT-J5DNoP5BAs"
AF_STRATIX_NLB3: Final = "af-bfa.f7d.v6xNhR7oVv6MlYZc4buqLfffQFy9es9yIvFEsLk6zRg"


def _mapping(kind: str, namespace: str, name: str, spec: Object, note: str = "") -> Object:
    metadata: Object = {"name": name, "namespace": namespace}
    if note:
        metadata["annotations"] = {"accelbind.dev/deprecated": note}
    return {"apiVersion": "fpga.intel.com/v2", "kind": kind, "metadata": metadata, "spec": spec}


def _function(
    place: str, mode: str, interface: str = ARRIA, afu: str = NLB0, note: str = ""
) -> Object:
    namespace, name = place.split("/")
    spec = {"interfaceId": interface, "afuId": afu, "mode": mode}
    return _mapping("AcceleratorFunction", namespace, name, spec, note)


def _region(place: str, interface: str = ARRIA) -> Object:
    namespace, name = place.split("/")
    return _mapping("FpgaRegion", namespace, name, {"interfaceId": interface})


MAPPINGS: Final = (
    _function("team-a/nlb0", "region"),
    _function("team-a/nlb3", "region", afu=NLB3),
    _function("team-a/nlb0-af", "af"),
    _function("team-a/stratix.nlb3", "region", STRATIX, NLB3),
    _function("team-a/stratix.nlb3-af", "af", STRATIX, NLB3),
    _function("team-a/old-nlb0", "region", note="use nlb0"),
    _function("team-a/nlb0-twin", "region"),
    _function("team-a/Upper_Case", "af", "CE489693-98F0-5F33-946D-560708BE108A", NLB0.upper()),
    _function("team-a/bad-mode", "both"),
    _function("team-a/bad-id", "af", "ce48"),
    _function("team-a/clash", "region", afu=NLB3),
    _region("team-a/clash"),
    _region("team-b/devel"),
    _region("team-b/devel-stratix", STRATIX),
    _function("team-b/nlb0", "af"),
    _function("team-b/nlb3", "region", STRATIX, NLB3),
    _function("default/arria10-nlb0", "af"),
    _function("default/arria10.dcp1.0-nlb0-orchestrated", "region"),
)

TEAM_A: Final = ("nlb0", "nlb0", "nlb3", "nlb0-twin", "old-nlb0", "stratix.nlb3")
TEAM_A_AF: Final = ("nlb0-af", "stratix.nlb3-af", "Upper_Case")
TEAM_B: Final = ("devel", "devel-stratix")
POPULATIONS: Final = (
    *(("team-a", TEAM_A), ("team-a", TEAM_A), ("team-a", TEAM_A_AF), ("team-a", TEAM_A_AF)),
    *(("team-b", TEAM_B), ("team-b", ("nlb0",)), ("team-b", ("nlb3",))),
    ("team-a", TEAM_A + TEAM_A_AF + TEAM_B),
    ("default", ("arria10-nlb0",)),
    ("default", ("arria10.dcp1.0-nlb0-orchestrated",)),
    ("unmapped", ("nlb0",)),
    ("", TEAM_A),
)
"""Namespaces, and the names that their pods ask for."""
ODD: Final = (
    *("nlbO", "nlb00", "NLB0", "bad-mode", "bad-id", "clash", "a~b", "-nlb0", "n" * 64, ""),
    *(f"region-{ARRIA}", f"region-{STRATIX}", "region-ffffffffffffffffffffffffffffffff"),
    *(AF_NLB0, AF_STRATIX_NLB3, "af-ce4.d84", "region-ce48", "d\u00e9j\u00e0", "a/b", '"quoted"'),
)
FOREIGN: Final = ("nvidia.com/gpu", "b-com.com/accelerator", "cpu", "fpga.intel.org/nlb0", "intel")
USUAL_QUANTITIES: Final = ("1", "1", "1", "2", 1, "3")
ODD_QUANTITIES: Final = (
    *("0", 0, "64", "65", "1k", "1Ki", "1e0", "1e3", "1000m", "2000m", "1.0", "0.0", "+1", "01"),
    *("0.5", "1500m", "-1", "", "abc", "1 ", "1.5.", "0x1", "99999999999999999999", "1e99", "1E"),
    *(2.0, 1.5, -3, 10**20, None, True, [1], {"a": 1}),
)
VALUES: Final = (ARRIA, STRATIX, NLB0, NLB3, ARRIA.upper(), "", "nlb0", None)
VARIABLES: Final = (
    *("FPGA_REGION_1", "FPGA_AFU_1", "FPGA_REGION_2", "FPGA_AFU_2", "FPGA_REGION", "FPGA_AFU"),
    *("FPGA_REGION_01", "FPGA_AFU_9999999999", "FPGA_", "FPGA_OTHER", "fpga_region_1"),
)


@dataclass(frozen=True, slots=True)
class Review:
    """A generated review.

    Args:
        number: Its place among all; the golden file names it so.
        about: What kind of review it is, in some words.
        body: What is sent.
    """

    number: int
    about: str
    body: bytes


class Chance:
    """Choices that are the same everywhere, and whose pod they are about.

    Attributes:
        namespace: The namespace of the review.
        names: What its pods usually ask for.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
        self.namespace, self.names = self.of(POPULATIONS)

    def below(self, limit: int) -> int:
        """A number from 0 up to but without `limit`."""
        return int(self._random.random() * limit)

    def of(self, choices: Sequence[T]) -> T:
        """One of these."""
        return choices[self.below(len(choices))]

    def one_in(self, number: int) -> bool:
        """Whether something happens that happens once in so many times."""
        return self.below(number) == 0


def reviews() -> Iterator[Review]:
    """All of them, in order."""
    for number in range(REVIEWS):
        yield _review(number, Chance(SEED * 10_000 + number))


def _review(number: int, chance: Chance) -> Review:
    if number % 10 == 8:
        about, body = _of_something_else(number, chance)
    elif number % 10 == 9:
        about, body = _broken(number, chance)
    else:
        about, body = "pod", _bytes(_envelope(number, chance, _pod(chance)))
    return Review(number, about, body)


def _bytes(obj: object) -> bytes:
    return json.dumps(obj).encode()


def _envelope(number: int, chance: Chance, pod: object) -> Object:
    namespace = chance.namespace
    request: Object = {
        "uid": f"00000000-0000-4000-8000-{number:012}",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "p",
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": "somebody"},
        "object": pod,
        "oldObject": None,
        "dryRun": chance.one_in(10),
        "options": {"kind": "CreateOptions"},
    }
    if not namespace:
        del request["namespace"]
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": request,
    }


# Pods --------------------------------------------------------------------------------------------


def _pod(chance: Chance) -> Object:
    wild = chance.one_in(4)
    metadata: Object = {"name": "p", "namespace": "team-a", "labels": {"app": "x"}}
    if chance.one_in(4):
        metadata["annotations"] = _annotations(chance)
    if chance.one_in(6):
        del metadata["name"]
        metadata["generateName"] = "p-"
    spec: Object = {
        "containers": [_container(chance, f"c{n}", wild) for n in range(_few(chance))],
        "nodeSelector": {"a/b": "c"},
    }
    if chance.one_in(3):
        init = [_container(chance, f"i{n}", wild) for n in range(_few(chance))]
        for each in init:
            if chance.one_in(2):
                each["restartPolicy"] = "Always"
        spec["initContainers"] = init
    if chance.one_in(12):
        spec["ephemeralContainers"] = [_container(chance, "e0", wild)]
    if chance.one_in(15):
        spec["resources"] = {"limits": {"fpga.intel.com/nlb0": "1"}}
    pod: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return pod


def _few(chance: Chance) -> int:
    return chance.of((1, 1, 1, 2, 2, 3))


def _annotations(chance: Chance) -> Object:
    return chance.of(
        (
            {"a": "b"},
            {"kubernetes.io/config.mirror": "0123"},
            {"accelbind.dev/requested": '{"c0":{"fpga.intel.com/nlb0":1}}'},
            {"accelbind.dev/requested": "{"},
            {"accelbind.dev/requested": ""},
        )
    )


def _container(chance: Chance, name: str, wild: bool) -> Object:
    container: Object = {"name": name, "image": "registry.example/work:1"}
    resources = _resources(chance, wild)
    if resources is not None:
        container["resources"] = resources
    env = _env(chance, wild)
    if env is not None:
        container["env"] = env
    return container


def _resources(chance: Chance, wild: bool) -> Object | None:
    if chance.one_in(6):
        return chance.of((None, {}, {"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}}))
    limits = dict(_ask(chance, wild) for _ in range(chance.of((1, 1, 1, 1, 2, 3))))
    limits["memory"] = "1Gi"
    shapes: tuple[Object, ...] = (
        {"limits": limits},
        *({"limits": limits, "requests": dict(limits)} for _ in range(7)),
        {"requests": limits},
        {"limits": limits, "requests": {**limits, "fpga.intel.com/nlb0": "5"}},
        {"limits": limits, "requests": None, "claims": []},
        {"limits": limits, "requests": dict(list(limits.items())[1:])},
    )
    return chance.of(shapes if wild else shapes[:5])


def _ask(chance: Chance, wild: bool) -> tuple[str, object]:
    if wild and chance.one_in(3):
        return chance.of(FOREIGN), chance.of(USUAL_QUANTITIES)
    name = chance.of(ODD) if wild and chance.one_in(2) else chance.of(chance.names)
    if chance.one_in(12):
        name = chance.of((f"region-{ARRIA}", AF_NLB0, f"region-{STRATIX}", AF_STRATIX_NLB3))
    domain = DOMAINS[1] if chance.one_in(8) else DOMAINS[0]
    odd = wild and chance.one_in(2)
    return f"{domain}/{name}", chance.of(ODD_QUANTITIES if odd else USUAL_QUANTITIES)


def _env(chance: Chance, wild: bool) -> object:
    usual = [{"name": "A", "value": "b"}, {"name": "LD_PRELOAD", "value": "/x.so"}]
    kind = chance.below(8)
    if kind < 3:
        return usual[: chance.below(3)] or None
    if kind == 3 and chance.one_in(2):
        interface, afu = chance.of(((ARRIA, NLB0), (ARRIA, NLB3), (STRATIX, NLB3), (STRATIX, NLB0)))
        number = chance.of((1, 1, 2, 7))
        pair = [(f"FPGA_REGION_{number}", interface), (f"FPGA_AFU_{number}", afu)]
        return [*usual, *({"name": name, "value": value} for name, value in pair)]
    if kind == 4 and wild:
        return [_variable(chance) for _ in range(1 + chance.below(3))]
    if kind == 5 and wild:
        return []
    return None


def _variable(chance: Chance) -> Object:
    variable: Object = {"name": chance.of(VARIABLES)}
    if chance.one_in(5):
        variable["valueFrom"] = {"fieldRef": {"fieldPath": "metadata.name"}}
    else:
        variable["value"] = chance.of(VALUES)
    return variable


# Reviews of something else, and broken ones ------------------------------------------------------


def _of_something_else(number: int, chance: Chance) -> tuple[str, bytes]:
    review = _envelope(number, chance, _pod(chance))
    request = review["request"]
    kind = (number // 10) % 8
    if kind == 0:
        about = "update"
        request |= {"operation": "UPDATE", "oldObject": _pod(chance)}
    elif kind == 1:
        about = "delete"
        request |= {"operation": "DELETE", "object": None, "oldObject": request["object"]}
    elif kind == 2:
        about = "connect"
        request |= {"operation": "CONNECT", "subResource": "exec", "object": {"kind": "Options"}}
    elif kind == 3:
        about = "deployment"
        request["kind"] = {"group": "apps", "version": "v1", "kind": "Deployment"}
    elif kind == 4:
        about = "ephemeral containers"
        request |= {"operation": "UPDATE", "subResource": "ephemeralcontainers"}
    elif kind == 5:
        about = "status created"
        request["subResource"] = "status"
    elif kind == 6:
        about = "pod of another group"
        request["kind"] = {"group": "example.com", "version": "v1", "kind": "Pod"}
    else:
        about = "mapping"
        request["kind"] = {"group": "fpga.intel.com", "version": "v2", "kind": "FpgaRegion"}
        request["object"] = _region("team-a/r")
    return about, _bytes(review)


def _broken(number: int, chance: Chance) -> tuple[str, bytes]:
    review = _envelope(number, chance, _pod(chance))
    ways = (*_BROKEN_ENVELOPES.items(), *_BROKEN_REQUESTS.items(), *_BROKEN_PODS.items())
    about, change = (*ways, *((each, {}) for each in _BROKEN_BYTES))[(number // 10) % _WAYS]
    if about in _BROKEN_ENVELOPES:
        review |= change
    elif about in _BROKEN_REQUESTS:
        review["request"] |= change
    elif about in _BROKEN_PODS:
        review["request"]["object"] |= change
    else:
        return about, _broken_bytes(about, _bytes(review))
    return about, _bytes(review)


_BROKEN_ENVELOPES: Final[dict[str, Object]] = {
    "v1beta1": {"apiVersion": "admission.k8s.io/v1beta1"},
    "no version": {"apiVersion": None},
    "another kind": {"kind": "Pod"},
    "no request": {"request": None},
    "request of text": {"request": "pod"},
    "with a response": {"response": {"uid": "x", "allowed": True}},
}
_BROKEN_REQUESTS: Final[dict[str, Object]] = {
    "empty uid": {"uid": ""},
    "uid of a number": {"uid": 17},
    "null uid": {"uid": None},
    "uid with quotes": {"uid": '"\u00fc\n\u0000'},
    "kind of text": {"kind": "Pod"},
    "null kind": {"kind": None},
    "operation of a number": {"operation": 1},
    "operation in lower case": {"operation": "create"},
    "namespace of a list": {"namespace": ["team-a"]},
    "null namespace": {"namespace": None},
    "null object": {"object": None},
    "object of text": {"object": "pod"},
    "object of a list": {"object": []},
}
_BROKEN_PODS: Final[dict[str, Object]] = {
    "no spec": {"spec": None},
    "empty spec": {"spec": {}},
    "null metadata": {"metadata": None},
    "annotations of a list": {"metadata": {"annotations": ["a"]}},
    "annotation of a number": {"metadata": {"annotations": {"accelbind.dev/requested": 1}}},
    "null annotations": {"metadata": {"name": "p", "annotations": None}},
    "null containers": {"spec": {"containers": None}},
    "containers of an object": {"spec": {"containers": {"c0": {}}}},
    "null container": {"spec": {"containers": [None]}},
    "container without a name": {
        "spec": {"containers": [{"resources": {"limits": {"fpga.intel.com/nlb0": "1"}}}]}
    },
    "two of one name": {
        "spec": {
            "containers": [
                {"name": "c", "resources": {"limits": {"fpga.intel.com/nlb0": "1"}}},
                {"name": "c", "resources": {"limits": {"fpga.intel.com/nlb3": "1"}}},
            ]
        }
    },
    "limits of a list": {"spec": {"containers": [{"name": "c", "resources": {"limits": ["x"]}}]}},
    "env of text": {
        "spec": {
            "containers": [
                {"name": "c", "env": "A=b", "resources": {"limits": {"fpga.intel.com/nlb0": "1"}}}
            ]
        }
    },
    "nothing but broken env": {"spec": {"containers": [{"name": "c", "env": {"a": 1}}]}},
}
_BROKEN_BYTES: Final = (
    *("empty", "cut short", "two values", "no JSON", "number", "list", "null", "invalid UTF-8"),
    *("byte order mark", "comment", "nested 60 deep", "uid twice", "blanks around"),
)
_WAYS: Final = (
    len(_BROKEN_ENVELOPES) + len(_BROKEN_REQUESTS) + len(_BROKEN_PODS) + len(_BROKEN_BYTES)
)


def _broken_bytes(about: str, body: bytes) -> bytes:
    deep = b'"deep": ' + b"[" * 60 + b"]" * 60 + b', "containers"'
    made = {
        "empty": b"",
        "cut short": body[: len(body) // 2],
        "two values": body + b"{}",
        "no JSON": b"apiVersion: admission.k8s.io/v1\n",
        "number": b"17",
        "list": b"[" + body + b"]",
        "null": b"null",
        "invalid UTF-8": body.replace(b'"p"', b'"\xff\xfe"'),
        "byte order mark": b"\xef\xbb\xbf" + body,
        "comment": b"/* review */" + body,
        "nested 60 deep": body.replace(b'"containers"', deep, 1),
        "uid twice": body.replace(b'"uid": ', b'"uid": "first", "uid": ', 1),
        "blanks around": b" \r\n\t" + body + b"\n \n",
    }
    return made[about]
