"""Variables that name functions: who may write them, and how they are numbered."""

import json

import pytest

from services.admission.mutate import Policy, Refused, Unchanged, mutate
from services.pods.functions import FUNCTION_VARIABLES, permitted_functions, read_functions
from services.pods.pod import EnvVar, decode_pod
from services.pods.reasons import ReviewReason
from services.pods.refusals import MAX_REFUSALS
from tests.services.building import (
    ARRIA,
    KNOWN,
    NLB0,
    NLB3,
    REGION,
    STRATIX,
    STRATIX_REGION,
    Object,
    container,
    judge,
    mutated,
    pair,
    pod,
    refused,
)

LOGICAL = "fpga.intel.com/"
UNMAPPED = "0" * 32


def problems(obj: Object) -> list[str]:
    """What is wrong with the variables of a pod that is otherwise fine."""
    result = refused(obj)
    assert {refusal.code for refusal in result.refusals} == {ReviewReason.ENV_NOT_ALLOWED}
    return [refusal.text for refusal in result.refusals]


def test_a_forged_function_on_a_physical_region_is_refused() -> None:
    (problem,) = problems(pod(container("app", {REGION: "1"}, env=pair(1, afu=UNMAPPED))))
    assert problem == (
        f'container "app": FPGA_AFU_1="{UNMAPPED}" and FPGA_REGION_1="{ARRIA}" name a function '
        'that no mapping of mode region has in namespace "default": remove the variables, and '
        "request a function by its logical name"
    )


def test_only_mapped_pairs_may_stay() -> None:
    both = {REGION: "1", STRATIX_REGION: "1"}
    # each ID is mapped, but not with the other; and a reference, which Kubernetes would expand
    for env in (pair(1, interface=STRATIX, afu=NLB0), pair(1, afu=f"{NLB0}$(EMPTY)")):
        (problem,) = problems(pod(container("app", both, env=env)))
        assert "a function that no mapping of mode region" in problem


def test_ids_are_compared_in_canonical_spelling() -> None:
    for env in (pair(1, interface=ARRIA.upper()), pair(1, afu=f" {NLB0[:8]}-{NLB0[8:]}")):
        assert isinstance(judge(pod(container("app", {REGION: "1"}, env=env))), Unchanged)


@pytest.mark.parametrize(
    ("variable", "problem"),
    [
        ({"name": "FPGA_REGION", "value": ARRIA}, "FPGA_REGION is reserved"),
        ({"name": "FPGA_AFU_0", "value": NLB0}, "FPGA_AFU_0 is reserved"),
        ({"name": "FPGA_AFU_01", "value": NLB0}, "FPGA_AFU_01 is reserved"),
        ({"name": "FPGA_AFU_1\n", "value": NLB0}, "FPGA_AFU_1\\n is reserved"),
        ({"name": "FPGA_AFU_\u0661", "value": NLB0}, "FPGA_AFU_\u0661 is reserved"),
        ({"name": "FPGA_AFU_" + "9" * 10, "value": NLB0}, "FPGA_AFU_9999999999 is reserved"),
        ({"name": "FPGA_AFU_9", "value": ""}, "FPGA_AFU_9 has no plain value"),
        ({"name": "FPGA_AFU_9", "value": NLB0, "valueFrom": {}}, "FPGA_AFU_9 has no plain value"),
        ({"name": "FPGA_AFU_1", "value": NLB3}, "FPGA_AFU_1 is set twice"),
        ({"name": "FPGA_AFU_2", "value": NLB0}, "FPGA_AFU_2 is set without FPGA_REGION_2"),
        ({"name": "FPGA_REGION_2", "value": ARRIA}, "FPGA_REGION_2 is set without FPGA_AFU_2"),
    ],
)
def test_wrong_variables_beside_a_good_pair_are_named(variable: Object, problem: str) -> None:
    env = [*pair(1), variable]
    (message,) = problems(pod(container("app", {REGION: "2"}, env=env)))
    assert message.startswith(f'container "app": {problem}')
    assert len(message) < 400


def test_a_reserved_name_can_not_hide_behind_an_escape() -> None:
    env = pair(1, afu=UNMAPPED)
    text = json.dumps(pod(container("app", {REGION: "1"}, env=env)), separators=(",", ":"))
    hidden = text.replace("FPGA_", "\\u0046PGA_")
    assert "FPGA_" not in hidden
    result = mutate(decode_pod(hidden.encode()), KNOWN.namespace("default"), Policy())
    assert isinstance(result, Refused)


def test_pairs_may_have_any_order_and_number() -> None:
    env = [*pair(7, afu=NLB3), *[each | {"valueFrom": None} for each in pair(999_999_999)][::-1]]
    assert isinstance(judge(pod(container("app", {REGION: "2"}, env=env))), Unchanged)


def test_variables_may_not_name_a_region_more_often_than_it_is_asked_for() -> None:
    env = [*pair(1), *pair(3), *pair(2, STRATIX, NLB3)]
    (problem,) = problems(pod(container("app", {REGION: "1", STRATIX_REGION: "1"}, env=env)))
    assert problem == (
        f'container "app": the variables up to FPGA_REGION_3 name 2 functions for region-{ARRIA}, '
        "but the container requests only 1 unit by that name: remove the variables, accelbind "
        "sets them for functions requested by logical name"
    )


def test_a_new_request_takes_the_lowest_free_numbers() -> None:
    env = [*pair(2), *pair(4, afu=NLB3)]
    before = pod(container("app", {REGION: "2", LOGICAL + "nlb0": "3"}, env=env))
    after = mutated(before)
    assert after["spec"]["containers"][0]["env"] == env + pair(1) + pair(3) + pair(5)


def test_two_domains_cover_the_variables_of_one_region_together() -> None:
    policy = Policy(domains=("fpga.intel.com", "fpga.example.org"))
    limits = {REGION: "1", f"fpga.example.org/region-{ARRIA}": "1"}
    before = pod(container("app", limits, env=[*pair(1), *pair(2)]))
    assert isinstance(judge(before, policy=policy), Unchanged)


def test_no_more_problems_are_looked_for_than_are_shown() -> None:
    another_form, region, afu = "FPGA_REGION_X{NUMBER}", *FUNCTION_VARIABLES
    for names in ([another_form], [region], [region, afu]):
        variables = [
            EnvVar(name.format(NUMBER=n), UNMAPPED)
            for n in range(1, MAX_REFUSALS + 2)
            for name in names
        ]
        checked = permitted_functions(variables, KNOWN.namespace("default"), {})
        assert len(checked.problems) == MAX_REFUSALS
        assert len(read_functions(variables).problems) in (0, MAX_REFUSALS)


def test_variables_of_another_form_may_be_ignored() -> None:
    named = [("A", "a"), ("FPGA_REGION_1", ARRIA), ("FPGA_AFU_1", NLB0), ("FPGA_AFUS", None)]
    variables = [EnvVar(name, value) for name, value in named]
    assert read_functions(variables, other_forms=True).by_number == {1: (ARRIA, NLB0)}
    assert len(read_functions(variables).problems) == 1
