"""What a claim says: results of ours, and configurations that are read strictly."""

import json
from typing import Any

import pytest

from plugin.dra.claims import (
    FROM_CLAIM,
    FROM_CLASS,
    ClaimRef,
    Config,
    Share,
    has_devices,
    read_claim,
)
from services.containers.holders import PodRef
from services.process.errors import NotAllowed
from simulator.cards import NLB0
from tests.plugin.dra.support import NEVER, claim, config, result

REF = ClaimRef("ns", "c", "uid-of-c")


def read(item: object) -> Any:
    body = item if isinstance(item, bytes | None) else json.dumps(item).encode()
    return read_claim(body, REF, pool="n1")


def configured(*configs: dict[str, Any], request: str = "fpga") -> Config:
    found: Config = read(claim("c", result("d", request), configs=configs)).requests[0].config
    return found


def test_results_of_ours_by_request_and_base_name() -> None:
    other = result("x") | {"driver": "gpu.example.com"}
    found = read(claim("c", result("a", "r/one"), result("b", "r/one"), result("c", "s"), other))
    assert [(each.name, each.devices) for each in found.requests] == [
        ("r", ("a", "b")),
        ("s", ("c",)),
    ]
    assert (found.owner, found.pod) == (None, None)


@pytest.mark.parametrize(
    ("more", "share"),
    [
        ({}, Share()),
        ({"shareID": "s"}, Share("s", 1)),
        ({"shareID": "s", "consumedCapacity": {"shares": "1k"}}, Share("s", 1000)),
        ({"consumedCapacity": {"shares": "2"}}, Share()),
    ],
)
def test_the_part_of_a_device_that_a_claim_has(more: dict[str, Any], share: Share) -> None:
    (request,) = read(claim("c", result("a", **more))).requests
    assert request.shares == (share,)


@pytest.mark.parametrize(
    ("item", "has"),
    [
        (claim("c", result("a"), result("b")), True),
        (claim("c", result("b")), False),
        (claim("c", result("a", driver="gpu.example.com")), False),
        (claim("c", result("a", pool="n2")), False),
        (claim("c", result("a"), uid="another"), False),
        (claim("c") | {"status": {}}, False),
        (None, False),
    ],
)
def test_whether_a_stored_claim_still_has_devices(item: dict[str, Any] | None, has: bool) -> None:
    body = None if item is None else json.dumps(item).encode()
    assert has_devices(body, REF, ["a", "x"], pool="n1") is has


def test_a_stored_claim_that_cant_be_read_may_have_devices() -> None:
    with pytest.raises(NotAllowed, match="can't be read"):
        has_devices(b"no JSON", REF, ["a"], pool="n1")


def test_the_pods_of_a_claim_are_its_owner_and_those_that_it_is_reserved_for() -> None:
    made = claim("c", result("a"), annotations=EXTENDED, ownerReferences=[OWNER])
    made["status"]["reservedFor"] = [
        {"resource": "pods", "name": "p", "uid": "u"},
        {"resource": "pods", "name": "q", "uid": "v"},
        {"resource": "jobs", "name": "j", "uid": "w"},
    ]
    assert [each.uid for each in read(made).pods] == ["u", "v"]


EXTENDED = {"resource.kubernetes.io/extended-resource-claim": "true"}
HALF_A_SHARE = result("a", shareID="s", consumedCapacity={"shares": "500m"})
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}


def test_the_environment_counts_only_for_claims_of_the_scheduler() -> None:
    owned = claim("c", result("a"), ownerReferences=[OWNER])
    assert read(owned).owner is None
    owned["metadata"]["annotations"] = EXTENDED
    assert read(owned).owner == PodRef("ns", "p", "u")


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (None, "it was deleted"),
        (b"[", "can't be read"),
        (claim("c", result("a"), uid="other"), "has been replaced"),
        (claim("c") | {"status": {}}, "is not allocated"),
        (claim("c"), "has no device of driver accelbind.dev"),
        (claim("c", result("a") | {"pool": "n2"}), 'of pool "n2", and this is node "n1"'),
        (claim("c", result("a"), result("a")), '"a" twice'),
        (claim("c", HALF_A_SHARE), r"ns/c was allocated a share of \"a\": .*whole number"),
        (claim("c", result("a"), annotations=EXTENDED), "belongs to no pod"),
        (
            claim(
                "c",
                result("a"),
                annotations=EXTENDED,
                ownerReferences=[OWNER | {"controller": False}],
            ),
            "belongs to no pod",
        ),
    ],
)
def test_a_claim_that_is_not_the_one_or_not_ours_is_refused(item: object, reason: str) -> None:
    with pytest.raises(NotAllowed, match=reason):
        read(item)


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ((), Config()),
        ((config({"afu": NLB0.upper(), "program": "Never"}),), Config(afu=NLB0)),
        ((config({"develop": True}),), Config(develop=True)),
        ((config(NEVER), config({"mapping": "m"}, FROM_CLAIM)), Config(afu=NLB0, mapping="m")),
        ((config(NEVER, FROM_CLASS, "fpga"),), Config(afu=NLB0)),
        ((config(NEVER, FROM_CLASS, "fpga/loaded"),), Config(afu=NLB0)),
        ((config(NEVER, FROM_CLASS, "other", "fpga/blank"),), Config()),
        ((config(NEVER), config(NEVER)), Config(afu=NLB0)),
        ((config({"a": 1}) | {"opaque": {"driver": "x", "parameters": {"a": 1}}},), Config()),
        (({"source": FROM_CLASS, "opaque": None},), Config()),
    ],
)
def test_a_configuration_counts_for_its_requests(
    configs: tuple[dict[str, Any], ...], expected: Config
) -> None:
    assert configured(*configs, request="fpga/loaded") == expected


@pytest.mark.parametrize(
    ("parameters", "source"),
    [
        ({"afu": NLB0, "program": "Always"}, FROM_CLASS),
        ({"afu": "x", "program": "Never"}, FROM_CLASS),
        ({"afu": int("1" * 32), "program": "Never"}, FROM_CLASS),
        ({"afu": NLB0, "program": "Never", "more": 1}, FROM_CLASS),
        ({"develop": 1}, FROM_CLASS),
        ({"mapping": "m"}, FROM_CLASS),
        ({"develop": True}, FROM_CLAIM),
        (NEVER, FROM_CLAIM),
        ({"mapping": ""}, FROM_CLAIM),
        ({"mapping": "m"}, "FromElsewhere"),
        ({"mapping": "m"}, "fromClaim"),
        ({"mapping": "m"}, ""),
        ({"mapping": ["m"]}, FROM_CLAIM),
        ({"Mapping": "m"}, FROM_CLAIM),
        ({"mapping": "m", "develop": True}, FROM_CLAIM),
        ({"mapping": "m", "afu": None}, FROM_CLAIM),
        ({"mapping": "m", "apiVersion": "accelbind.dev/v1", "kind": "FpgaConfig"}, FROM_CLAIM),
        (["mapping", "m"], FROM_CLAIM),
        ('{"mapping": "m"}', FROM_CLAIM),
        ({"develop": "true"}, FROM_CLASS),
        ({"develop": True, "program": "Never"}, FROM_CLASS),
        ({"afu": NLB0}, FROM_CLASS),
        ({"afu": NLB0, "program": "never"}, FROM_CLASS),
        (None, FROM_CLAIM),
    ],
)
def test_any_other_configuration_is_refused(parameters: object, source: str) -> None:
    with pytest.raises(NotAllowed, match=r"configuration of driver accelbind\.dev"):
        configured(config(parameters, source))


def test_two_values_for_one_request_are_refused() -> None:
    with pytest.raises(NotAllowed, match="different values"):
        configured(*(config({"mapping": name}, FROM_CLAIM) for name in "ab"))


@pytest.mark.parametrize(
    "text",
    [
        '{"mapping": "a", "mappin\\u0067": "b"}',
        '{"mapping": "a", "mapping": "a"}',
        "[" * 5000,
        "1" * 5000,
    ],
)
def test_repeated_keys_and_what_python_cannot_read_are_refused(text: str) -> None:
    item = json.dumps(claim("c", result("a"), configs=(config("HERE", FROM_CLAIM),)))
    with pytest.raises(NotAllowed):
        read(item.replace('"HERE"', text).encode())
