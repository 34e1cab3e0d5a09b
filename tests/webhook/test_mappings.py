"""Reviews of mappings over the webhook's own HTTP face."""

import json
from typing import Any

from structlog.testing import capture_logs

from tests.webhook.asgi import Bench
from tests.webhook.reviews import AFU, INTERFACE, NAME, response_of, review

KIND = {"group": "fpga.intel.com", "version": "v2", "kind": "AcceleratorFunction"}


def mapping(name: str = "new", **spec: object) -> dict[str, Any]:
    return {
        "apiVersion": "fpga.intel.com/v2",
        "kind": "AcceleratorFunction",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"afuId": AFU, "interfaceId": INTERFACE, "mode": "af", **spec},
    }


def body(obj: dict[str, Any], **request: object) -> bytes:
    kind = KIND | {"kind": obj["kind"]}
    return json.dumps(review(obj, kind=kind, name=obj["metadata"]["name"], **request)).encode()


def test_mappings_are_judged_by_the_index_that_serves() -> None:
    bench = Bench()
    status, _, answer = bench.ask("/validate-mapping", body(mapping()))
    assert (status, response_of(answer)["warnings"]) == (
        200,
        [f"duplicate of {NAME}: pods that use either get a warning"],
    )
    region = mapping(NAME, mode="regiondevel") | {"kind": "FpgaRegion"}
    status, _, answer = bench.ask("/validate-mapping", body(region))
    response = response_of(answer)
    assert (status, response["allowed"]) == (200, False)
    assert f"AcceleratorFunction default/{NAME} has the same name" in response["status"]["message"]
    assert bench.figures.requests == {
        ("validate-mapping", "allowed", "usable"): 1,
        ("validate-mapping", "denied", "name-clash"): 1,
    }


def test_nothing_is_admitted_that_mappings_not_loaded_yet_may_clash_with() -> None:
    bench = Bench()
    bench.mappings.loaded = False
    status, _, answer = bench.ask("/validate-mapping", body(mapping()))
    assert (status, json.loads(answer)["reason"]) == (503, "ServiceUnavailable")
    old = mapping(mode="no")
    unchanged = body(old, operation="UPDATE", oldObject=old)
    assert response_of(bench.ask("/validate-mapping", unchanged)[2])["allowed"] is True
    assert bench.figures.requests == {
        ("validate-mapping", "rejected", "not-loaded"): 1,
        ("validate-mapping", "allowed", "unchanged-spec"): 1,
    }


def test_a_refused_mapping_is_logged_as_one() -> None:
    with capture_logs() as logs:
        Bench(verbose=True).ask("/validate-mapping", body(mapping(mode="no")))
        Bench(verbose=True).ask("/validate-mapping", body(mapping()))
    refused, admitted = logs
    assert (refused["event"], refused["mapping"]) == ("mapping refused", "new")
    assert "spec.mode must be af or region" in refused["message"]
    assert (admitted["event"], admitted["mapping"]) == ("mapping admitted", "new")
    assert "pod" not in refused.keys() | admitted.keys()


def test_a_review_of_a_mapping_may_have_256_kib() -> None:
    bench = Bench(max_body=2**20)
    noted = mapping() | {"status": "x" * 2**18}
    status, _, answer = bench.ask("/validate-mapping", body(noted))
    assert (status, "at most 262144 bytes" in json.loads(answer)["message"]) == (413, True)


def test_what_a_mapping_has_beside_metadata_and_spec_is_not_read() -> None:
    noted = mapping() | {"status": "[" * 900 + "]" * 900}
    text = body(noted).replace(b'"[', b"[").replace(b']"', b"]")
    status, _, answer = Bench().ask("/validate-mapping", text)
    assert (status, response_of(answer)["allowed"]) == (200, True)


def test_mappings_are_not_patched() -> None:
    assert Bench().ask("/mutate-mapping", body(mapping()))[0] == 404
