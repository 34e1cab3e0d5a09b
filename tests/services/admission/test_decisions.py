"""Decisions: what comes of a pod, spelled for the API server and the audit log."""

from services.admission.mutate import Patched, Policy, Refused, Unchanged, decide
from tests.services.building import REGION, Object, container, decode, pod, usual

LOGICAL = "fpga.intel.com/"
POLICY = Policy()
MAPPINGS = usual()


def asking(name: str = "app", count: int = 1) -> Object:
    return container(name, {"cpu": "1", LOGICAL + "nlb0": str(count)})


def test_a_decision_comes_with_its_patch_and_what_the_audit_says() -> None:
    decision = decide(decode(pod(asking())), MAPPINGS, POLICY)
    assert isinstance(decision.result, Patched)
    assert decision.audit == {
        "reason": "rewritten",
        "rewrites": f"app: fpga.intel.com/nlb0=1 as {REGION}",
    }


def test_a_refusal_comes_with_its_codes_each_once() -> None:
    limits = {LOGICAL + "x": "1", LOGICAL + "y": "1", LOGICAL + "z": "0.5"}
    decision = decide(decode(pod(container("app", limits))), MAPPINGS, POLICY)
    assert isinstance(decision.result, Refused)
    assert decision.audit == {"reason": "invalid-quantity,unknown-name"}


def test_a_pod_that_stays_as_it_is_has_nothing_to_note() -> None:
    decision = decide(decode(pod(container("app"))), MAPPINGS, POLICY)
    assert isinstance(decision.result, Unchanged)
    assert decision.audit is None
