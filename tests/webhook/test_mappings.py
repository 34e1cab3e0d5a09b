"""Reviews of mappings over the webhook's own HTTP face."""

import json
from typing import Any

import yaml
from structlog.testing import capture_logs

from services.admission.mapping_review import MAX_SPEC
from simulator.apiserver import crd
from tests.services.building import function
from tests.support import REPOSITORY
from tests.webhook.asgi import Bench
from tests.webhook.reviews import NAME, response_of, review
from webhook.settings import MAX_BODY

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


def largest() -> dict[str, Any]:
    """An Accelerator with all that its schema allows, as an API server has it."""
    resource, escaped = "a" * 253 + "/" + "b" * 62, "\u2028" * 1024  # six bytes each in JSON
    key = "c" * 253 + "/" + "d" * 62
    spec: dict[str, Any] = {
        "target": {"resource": resource + "t", "count": 1024},
        "alsoRequest": [
            {"resource": f"{resource}{n}", "count": 1024, "per": "Container"} for n in range(4)
        ],
        "env": [{"name": "E" * 61 + f"{n:02}", "value": escaped} for n in range(16)],
        "nodeSelector": {f"{key}{n}": "v" * 63 for n in range(8)},
        "tolerations": [
            {"key": f"{key}{n}", "operator": "Equal", "value": "v" * 63, "effect": "NoSchedule"}
            for n in range(8)
        ],
        "runtimeClassName": "r" * 253,
    }
    return {
        "apiVersion": "accelbind.dev/v1alpha1",
        "kind": "Accelerator",
        "metadata": {"name": "n" * 63, "namespace": "default"},
        "spec": spec,
    }


def test_the_largest_accelerator_can_be_changed() -> None:
    schema = yaml.safe_load((REPOSITORY / "manifests/crd/accelerators.yaml").read_text())
    (version,) = schema["spec"]["versions"]
    accelerator = largest()
    assert crd.validate(version["schema"]["openAPIV3Schema"], accelerator) == []
    assert 100_000 < len(json.dumps(accelerator["spec"])) < MAX_SPEC
    kind = {"group": "accelbind.dev", "version": "v1alpha1", "kind": "Accelerator"}
    old = accelerator | {"spec": accelerator["spec"] | {"runtimeClassName": "r"}}
    text = json.dumps(review(accelerator, kind=kind, operation="UPDATE", oldObject=old)).encode()
    status, _, answer = Bench(max_body=MAX_BODY).ask("/validate-mapping", text)
    assert (status, response_of(answer)["allowed"]) == (200, True)
