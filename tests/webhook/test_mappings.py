"""Reviews of mappings over the webhook's own HTTP face."""

import json
from typing import Any

from structlog.testing import capture_logs

from tests.services.building import function
from tests.webhook.asgi import Bench
from tests.webhook.reviews import NAME, response_of, review

KIND = {"group": "fpga.intel.com", "version": "v2", "kind": "AcceleratorFunction"}


def mapping(name: str = "new", **spec: object) -> dict[str, Any]:
    made = function(name, "af")
    return made | {"spec": made["spec"] | spec}


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
    assert f"AcceleratorFunction default/{NAME} and FpgaRegion" in response["status"]["message"]
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
        Bench().ask("/validate-mapping", body(mapping(mode="no")))
        Bench().ask("/validate-mapping", body(mapping()))
    refused, admitted = logs
    assert (refused["event"], refused["mapping"]) == ("mapping refused", "new")
    assert "spec.mode must be af or region" in refused["message"]
    assert (admitted["event"], admitted["mapping"]) == ("mapping admitted", "new")
    assert "pod" not in refused.keys() | admitted.keys()
