"""Verdicts: what comes of a pod, spelled for the API server and the audit log."""

import json

from services.admission.mutate import Patched, Policy, Refused, Unchanged
from services.admission.verdicts import judge
from tests.services.building import REGION, Object, container, decode, pod, usual

LOGICAL = "fpga.intel.com/"
POLICY = Policy()
MAPPINGS = usual()


def asking(name: str = "app", count: int = 1) -> Object:
    return container(name, {"cpu": "1", LOGICAL + "nlb0": str(count)})


def test_a_verdict_comes_with_its_patch_and_what_the_audit_says() -> None:
    verdict = judge(decode(pod(asking())), MAPPINGS, POLICY)
    assert isinstance(verdict.result, Patched)
    assert json.loads(verdict.result.patch) == verdict.result.operations
    assert verdict.audit == {
        "reason": "rewritten",
        "rewrites": f"app: fpga.intel.com/nlb0=1 as {REGION}",
    }


def test_a_refusal_comes_with_its_codes_each_once() -> None:
    limits = {LOGICAL + "x": "1", LOGICAL + "y": "1", LOGICAL + "z": "0.5"}
    verdict = judge(decode(pod(container("app", limits))), MAPPINGS, POLICY)
    assert isinstance(verdict.result, Refused)
    assert verdict.audit == {"reason": "invalid-quantity,unknown-name"}


def test_a_pod_that_stays_as_it_is_has_nothing_to_note() -> None:
    verdict = judge(decode(pod(container("app"))), MAPPINGS, POLICY)
    assert isinstance(verdict.result, Unchanged)
    assert verdict.audit is None
