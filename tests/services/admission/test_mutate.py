"""What becomes of a pod, rule by rule; each expected pod is written out by hand."""

import copy
import json
from typing import Any

import pytest

from services.admission.mutate import (
    POD_FACTOR,
    Patched,
    Policy,
    Rewrite,
    Unchanged,
    UnchangedReason,
    mutate,
)
from services.mappings.index import build_index
from services.mappings.model import Rejected, parse
from services.pods.pod import decode_pod
from services.pods.refusals import RefusalReason
from services.process.errors import InvalidReview
from tests.services.building import (
    AF_NLB0,
    AF_STRATIX_NLB3,
    ARRIA,
    NLB0,
    NLB3,
    REGION,
    STRATIX,
    STRATIX_REGION,
    Object,
    apply,
    container,
    function,
    index,
    judge,
    mutated,
    pair,
    pod,
    refused,
    region,
    usual,
)

REQUESTED = "accelbind.dev/requested"
LOGICAL = "fpga.intel.com/"


def limits_of(obj: Object, n: int = 0, kind: str = "containers") -> Any:
    return obj["spec"][kind][n]["resources"]["limits"]


def env_of(obj: Object, n: int = 0, kind: str = "containers") -> Any:
    return obj["spec"][kind][n].get("env")


def requested_of(obj: Object) -> Any:
    return json.loads(obj["metadata"]["annotations"][REQUESTED])


# What is rewritten, and to what


def test_a_function_of_mode_region_becomes_its_region_and_variables() -> None:
    before = pod(container("app", {"cpu": "1", "fpga.intel.com/nlb0": "2"}))
    expected = copy.deepcopy(before)
    asking = expected["spec"]["containers"][0]
    asking["resources"] = {
        "limits": {"cpu": "1", REGION: "2"},
        "requests": {"cpu": "1", REGION: "2"},
    }
    asking["env"] = [
        {"name": "FPGA_REGION_1", "value": ARRIA},
        {"name": "FPGA_AFU_1", "value": NLB0},
        {"name": "FPGA_REGION_2", "value": ARRIA},
        {"name": "FPGA_AFU_2", "value": NLB0},
    ]
    expected["metadata"]["annotations"] = {REQUESTED: '{"app":{"fpga.intel.com/nlb0":2}}'}
    assert mutated(before) == expected


def test_a_function_of_mode_af_becomes_its_name_and_no_variables() -> None:
    before = pod(container("app", {"fpga.intel.com/nlb0-af": "1"}))
    expected = copy.deepcopy(before)
    expected["spec"]["containers"][0]["resources"] = {
        "limits": {AF_NLB0: "1"},
        "requests": {AF_NLB0: "1"},
    }
    expected["metadata"]["annotations"] = {REQUESTED: '{"app":{"fpga.intel.com/nlb0-af":1}}'}
    assert mutated(before) == expected


def test_a_region_for_its_workload_becomes_the_region_and_no_variables() -> None:
    after = mutated(pod(container("app", {"fpga.intel.com/arria-devel": "1"})))
    assert limits_of(after) == {REGION: "1"}
    assert env_of(after) is None


def test_the_patch_changes_no_more_than_it_must() -> None:
    before = pod(
        container(
            "app", {"cpu": "1", "fpga.intel.com/nlb0": "1"}, env=[{"name": "A", "value": "a"}]
        ),
        annotations={"owner": "me"},
    )
    result = judge(before)
    assert isinstance(result, Patched)
    path = "/spec/containers/0"
    assert result.operations == [
        {"op": "remove", "path": f"{path}/resources/limits/fpga.intel.com~1nlb0"},
        {"op": "remove", "path": f"{path}/resources/requests/fpga.intel.com~1nlb0"},
        {
            "op": "add",
            "path": f"{path}/resources/limits/fpga.intel.com~1region-{ARRIA}",
            "value": "1",
        },
        {
            "op": "add",
            "path": f"{path}/resources/requests/fpga.intel.com~1region-{ARRIA}",
            "value": "1",
        },
        {"op": "add", "path": f"{path}/env/-", "value": {"name": "FPGA_REGION_1", "value": ARRIA}},
        {"op": "add", "path": f"{path}/env/-", "value": {"name": "FPGA_AFU_1", "value": NLB0}},
        {
            "op": "add",
            "path": "/metadata/annotations/accelbind.dev~1requested",
            "value": '{"app":{"fpga.intel.com/nlb0":1}}',
        },
    ]
    assert result.rewrites == (
        Rewrite("app", False, "fpga.intel.com/nlb0", REGION, 1, usual().by_name["nlb0"]),
    )
    assert result.warnings == ()


def test_limits_without_requests_are_rewritten_alone() -> None:
    before = pod(container("app", {"fpga.intel.com/nlb0-af": 1}, requests={"cpu": "1"}))
    after = mutated(before)
    assert after["spec"]["containers"][0]["resources"] == {
        "limits": {AF_NLB0: "1"},
        "requests": {"cpu": "1"},
    }


@pytest.mark.parametrize("requests", [None, {}])
def test_requests_may_be_absent_null_or_empty(requests: Object | None) -> None:
    before = pod(container("app", {"fpga.intel.com/nlb0-af": "1"}))
    before["spec"]["containers"][0]["resources"]["requests"] = requests
    assert limits_of(mutated(before)) == {AF_NLB0: "1"}


def test_names_that_stand_for_one_resource_add_up() -> None:
    after = mutated(pod(container("app", {LOGICAL + "nlb3": "1", LOGICAL + "nlb0": "2"})))
    assert limits_of(after) == {REGION: "3"}
    assert env_of(after) == pair(1) + pair(2) + pair(3, afu=NLB3)
    assert requested_of(after) == {"app": {LOGICAL + "nlb0": 2, LOGICAL + "nlb3": 1}}


def test_functions_are_numbered_by_name_however_the_pod_orders_them() -> None:
    limits = {LOGICAL + "stratix.nlb3": "1", LOGICAL + "nlb3": "1", LOGICAL + "nlb0": "1"}
    after = mutated(pod(container("app", limits)))
    assert limits_of(after) == {REGION: "2", STRATIX_REGION: "1"}
    assert env_of(after) == pair(1) + pair(2, afu=NLB3) + pair(3, STRATIX, NLB3)


def test_a_logical_and_a_physical_name_in_one_container_are_both_served() -> None:
    for limits in ({LOGICAL + "nlb0": "1", REGION: "2"}, {REGION: "2", LOGICAL + "nlb0": "1"}):
        after = mutated(pod(container("app", limits)))
        assert after["spec"]["containers"][0]["resources"] == {
            "limits": {REGION: "3"},
            "requests": {REGION: "3"},
        }
        assert env_of(after) == pair(1)


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ({}, {}),
        ({REGION: "2"}, {REGION: "3"}),
        ({LOGICAL + "nlb0": "1"}, {REGION: "3"}),
    ],
)
def test_requests_follow_the_limits_where_either_name_stands_in_them(
    requests: Object, expected: Object
) -> None:
    limits = {LOGICAL + "nlb0": "1", REGION: "2"}
    after = mutated(pod(container("app", limits, requests=requests)))
    assert after["spec"]["containers"][0]["resources"] == {
        "limits": {REGION: "3"},
        "requests": expected,
    }


def test_a_request_in_an_init_container_is_rewritten() -> None:
    after = mutated(
        pod(container("app"), init=[container("setup", {LOGICAL + "nlb0": "1"}, env=[])])
    )
    assert limits_of(after, kind="initContainers") == {REGION: "1"}
    assert env_of(after, kind="initContainers") == pair(1)
    assert requested_of(after) == {"setup": {LOGICAL + "nlb0": 1}}


def test_every_container_is_rewritten_for_itself() -> None:
    before = pod(
        container("plain", {"cpu": "1"}, env=pair(7)),
        container("one", {LOGICAL + "nlb0": "1"}),
        container("two", {LOGICAL + "stratix.nlb3": "1"}),
        init=[container("side", {LOGICAL + "nlb3": "1"}, restartPolicy="Always")],
    )
    after = mutated(before)
    assert after["spec"]["containers"][0] == before["spec"]["containers"][0]
    assert [env_of(after, n) for n in (1, 2)] == [pair(1), pair(1, STRATIX, NLB3)]
    assert env_of(after, kind="initContainers") == pair(1, afu=NLB3)
    assert requested_of(after) == {
        "one": {LOGICAL + "nlb0": 1},
        "side": {LOGICAL + "nlb3": 1},
        "two": {LOGICAL + "stratix.nlb3": 1},
    }
    result = judge(before)
    assert isinstance(result, Patched)
    assert [(r.container, r.init) for r in result.rewrites] == [
        ("side", True),
        ("one", False),
        ("two", False),
    ]


@pytest.mark.parametrize("quantity", ["2", 2, 2.0, "2000m", "2e0", "0.002k", "+2"])
def test_quantities_are_read_as_kubernetes_does(quantity: str | float) -> None:
    assert limits_of(mutated(pod(container("app", {LOGICAL + "nlb0": quantity})))) == {REGION: "2"}


def test_equal_quantities_may_be_written_differently() -> None:
    before = pod(container("app", {LOGICAL + "nlb0": "1k"}, requests={LOGICAL + "nlb0": "1000"}))
    after = mutated(before, policy=Policy(max_units=1000))
    assert after["spec"]["containers"][0]["resources"]["requests"] == {REGION: "1000"}


@pytest.mark.parametrize("quantity", ["0", 0, "0m", None])
def test_a_quantity_of_zero_is_rewritten_without_variables(quantity: str | int | None) -> None:
    after = mutated(pod(container("app", {LOGICAL + "nlb0": quantity, "cpu": "1"})))
    assert limits_of(after) == {REGION: "0", "cpu": "1"}
    assert env_of(after) is None
    assert requested_of(after) == {"app": {LOGICAL + "nlb0": 0}}


# The user's env stays as it is


@pytest.mark.parametrize("env", [None, []])
def test_an_empty_env_is_set_at_once(env: list[Object] | None) -> None:
    before = pod(container("app", {LOGICAL + "nlb0": "1"}))
    before["spec"]["containers"][0]["env"] = env
    result = judge(before)
    assert isinstance(result, Patched)
    path = "/spec/containers/0/env"
    assert {"op": "add", "path": path, "value": pair(1)} in result.operations
    assert env_of(apply(before, result)) == pair(1)


USER_ENV: list[Object] = [
    {"name": "Z", "value": "last first"},
    {"name": "FROM", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    {"name": "QUOTED", "value": 'say "hi" \\ \u2028 {}'},
    {"name": "JSON", "value": '"}, {"name": "FPGA_AFU_1", "value": "0"}, {"name": "x'},
    {"name": "EMPTY"},
    {"name": "Z", "value": "twice"},
    {"name": "FPGA_OTHER", "value": "not ours"},
    {"name": "MY_FPGA_REGION_1", "value": "not ours either"},
]


def test_user_env_keeps_order_and_sources_and_is_only_added_to() -> None:
    after = mutated(pod(container("app", {LOGICAL + "nlb0": "1"}, env=USER_ENV)))
    assert env_of(after) == USER_ENV + pair(1)


@pytest.mark.parametrize("variable", USER_ENV, ids=lambda variable: variable["name"])
def test_each_odd_variable_is_inert(variable: Object) -> None:
    after = mutated(pod(container("app", {LOGICAL + "nlb0": "1"}, env=[variable])))
    assert env_of(after) == [variable, *pair(1)]


def test_an_env_with_blanks_between_its_parts_is_read_too() -> None:
    text = json.dumps(pod(container("app", {LOGICAL + "nlb0": "1"}, env=[{"name": "A"}])), indent=1)
    result = mutate(decode_pod(text.encode()), usual(), Policy())
    assert isinstance(result, Patched)
    assert "/spec/containers/0/env/-" in {operation["path"] for operation in result.operations}


# What is left alone


def test_a_pod_that_asks_for_nothing_is_left_alone() -> None:
    before = pod(
        container("app", {"cpu": "1", "nvidia.com/gpu": "1", "fpga.intel.com": "1"}, env=pair(1)),
        container("bare"),
        container("odd", {}, requests={}),
    )
    before["spec"]["containers"][2]["resources"] = {"limits": None, "requests": None, "claims": []}
    assert judge(before) == Unchanged(UnchangedReason.NOTHING_ASKED)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"containers": None, "initContainers": None},
        {"containers": [{"name": "a", "resources": None, "env": None}]},
    ],
)
def test_pods_with_nulls_and_gaps_are_left_alone(spec: Object) -> None:
    assert judge({"metadata": None, "spec": spec}) == Unchanged(UnchangedReason.NOTHING_ASKED)
    assert judge({"spec": None}) == Unchanged(UnchangedReason.NOTHING_ASKED)
    assert judge({}) == Unchanged(UnchangedReason.NOTHING_ASKED)


@pytest.mark.parametrize("value", ["", "hash", None])
def test_a_mirror_pod_is_left_alone(value: str | None) -> None:
    before = pod(
        container("app", {LOGICAL + "nlb0": "1"}),
        annotations={"kubernetes.io/config.mirror": value},
    )
    assert judge(before) == Unchanged(UnchangedReason.MIRROR_POD)


@pytest.mark.parametrize("resource", [REGION, AF_NLB0])
def test_a_physical_name_that_is_mapped_stays(resource: str) -> None:
    assert judge(pod(container("app", {resource: "1"}))) == Unchanged(
        UnchangedReason.ALREADY_PHYSICAL
    )


# Refused names


def test_an_unknown_name_is_refused_with_the_names_there_are() -> None:
    result = refused(pod(container("app", {LOGICAL + "nlb1": "1"})))
    assert result.message == (
        'container "app": fpga.intel.com/nlb1 does not exist in namespace "default"; '
        "did you mean nlb0? Available: arria-devel, nlb0, nlb0-af, nlb3, stratix.nlb3 and "
        "stratix.nlb3-af"
    )
    (refusal,) = result.refusals
    assert (refusal.reason, refusal.container) == (RefusalReason.UNKNOWN_NAME, "app")


def test_a_name_that_is_like_none_gets_no_guess() -> None:
    result = refused(pod(container("app", {LOGICAL + "zzzzzzzz": "1"})))
    assert result.message.startswith(
        'container "app": fpga.intel.com/zzzzzzzz does not exist in namespace "default". '
        "Available: arria-devel, "
    )


def test_a_namespace_without_mappings_says_so() -> None:
    empty = index(*[function("nlb0", "af", namespace="elsewhere")]).namespace("default")
    result = refused(pod(container("app", {LOGICAL + "nlb0": "1"})), empty)
    assert result.message == (
        'container "app": fpga.intel.com/nlb0 does not exist in namespace "default"; the '
        "namespace has no mappings: create an AcceleratorFunction or FpgaRegion"
    )


def test_a_name_of_another_namespace_is_unknown() -> None:
    assert refused(pod(container("app", {LOGICAL + "secret": "1"}))).refusals[0].reason == (
        RefusalReason.UNKNOWN_NAME
    )


def test_the_reason_of_a_mapping_that_can_not_serve_is_told() -> None:
    mappings = index(
        function("x", "region"),
        region("x"),
        rejected=[Rejected("FpgaRegion", "default", "y", "FpgaRegion default/y: it is bad")],
    ).namespace("default")
    result = refused(pod(container("app", {LOGICAL + "x": "1", LOGICAL + "y": "1"})), mappings)
    assert result.message == (
        '2 problems: (1) container "app": fpga.intel.com/x can\'t be used: AcceleratorFunction '
        "default/x and FpgaRegion default/x have the same name, so neither can be used: rename one "
        'of them (2) container "app": fpga.intel.com/y can\'t be used: FpgaRegion default/y: it '
        "is bad"
    )
    assert {refusal.reason for refusal in result.refusals} == {RefusalReason.UNUSABLE_MAPPING}


def test_a_long_reason_is_cut() -> None:
    rejected = [Rejected("FpgaRegion", "default", "y", "why " * 1000)]
    mappings = build_index(rejected).namespace("default")
    message = refused(pod(container("app", {LOGICAL + "y": "1"})), mappings).message
    assert len(message) < 500
    assert message.endswith("…")


@pytest.mark.parametrize("resource", ["region-" + "0" * 32, AF_STRATIX_NLB3.split("/")[1]])
def test_a_physical_name_that_is_not_mapped_is_refused(resource: str) -> None:
    mappings = index(function("nlb0", "region")).namespace("default")
    result = refused(pod(container("app", {LOGICAL + resource: "1"})), mappings)
    assert result.refusals[0].reason is RefusalReason.UNMAPPED_RESOURCE
    assert result.message == (
        f'container "app": fpga.intel.com/{resource} is a physical resource, and no mapping of '
        'namespace "default" resolves to it. Available: nlb0'
    )


@pytest.mark.parametrize(
    "name", ["", "a b", "nlb0/x", "x/nlb0", "x" * 300, "a\nb", "\x1b[2J", "ä", "~", "~1"]
)
def test_names_that_are_none_are_refused_on_one_line(name: str) -> None:
    result = refused(pod(container("app", {LOGICAL + name: "1"})))
    assert result.refusals[0].reason is RefusalReason.UNKNOWN_NAME
    assert result.message.isprintable()
    assert len(result.message) < 500


def test_a_container_without_name_is_told_by_its_place() -> None:
    result = refused(pod(container("", {LOGICAL + "x": "1"})))
    assert result.message.startswith("container at /spec/containers/0: fpga.intel.com/x does")


def test_an_init_container_is_called_one() -> None:
    result = refused(pod(container("app"), init=[container("setup", {LOGICAL + "x": "1"})]))
    assert result.message.startswith('init container "setup": fpga.intel.com/x does')


# Refused quantities


@pytest.mark.parametrize("quantity", ["1500m", "-1", "x", "", "1e999999999", 0.5, -1])
def test_a_quantity_that_is_no_count_is_refused(quantity: str | float) -> None:
    result = refused(pod(container("app", {LOGICAL + "nlb0": quantity})))
    (refusal,) = result.refusals
    assert refusal.reason is RefusalReason.INVALID_QUANTITY
    assert refusal.message.startswith('container "app": invalid quantity of fpga.intel.com/nlb0: ')


def test_a_request_that_is_no_count_is_refused() -> None:
    before = pod(container("app", {LOGICAL + "nlb9": "1"}, requests={LOGICAL + "nlb9": "1500m"}))
    result = refused(before)
    assert [refusal.reason for refusal in result.refusals] == [RefusalReason.INVALID_QUANTITY]


def test_requests_that_differ_from_limits_are_refused() -> None:
    before = pod(container("app", {LOGICAL + "nlb0": "2"}, requests={LOGICAL + "nlb0": "1"}))
    result = refused(before)
    (refusal,) = result.refusals
    assert refusal.reason is RefusalReason.REQUESTS_DIFFER
    assert result.message == (
        'container "app": fpga.intel.com/nlb0 is 2 in limits but 1 in requests: accelerators '
        "can't be overcommitted, make them equal or remove the request"
    )


def test_every_request_that_differs_is_named() -> None:
    limits = {LOGICAL + "nlb0": "2", LOGICAL + "nlb3": "2", LOGICAL + "zzz": "1"}
    before = pod(container("app", limits, requests=dict.fromkeys(limits, "1")))
    assert [refusal.reason for refusal in refused(before).refusals] == [
        RefusalReason.REQUESTS_DIFFER,
        RefusalReason.REQUESTS_DIFFER,
        RefusalReason.UNKNOWN_NAME,
    ]


def test_requests_without_limits_are_refused() -> None:
    result = refused(pod(container("app", {"cpu": "1"}, requests={LOGICAL + "nlb0": "1"})))
    assert [refusal.reason for refusal in result.refusals] == [RefusalReason.REQUESTS_DIFFER]
    assert result.message == (
        'container "app": fpga.intel.com/nlb0 is in requests but not in limits: accelerators '
        "can't be overcommitted, set the same quantity in limits"
    )


def test_requests_without_any_limits_are_refused() -> None:
    before = pod(container("app"))
    before["spec"]["containers"][0]["resources"] = {"requests": {LOGICAL + "nlb0": "1"}}
    assert refused(before).refusals[0].reason is RefusalReason.REQUESTS_DIFFER


@pytest.mark.parametrize("mode", ["af", "region"])
def test_three_million_units_are_refused_with_the_limit(mode: str) -> None:
    mappings = index(function("x", mode)).namespace("default")
    result = refused(pod(container("app", {LOGICAL + "x": "3000000"})), mappings)
    assert result.message == (
        'container "app": 3000000 accelerators are requested, but the limit is 64 per container '
        "(--max-units of the webhook)"
    )
    assert result.refusals[0].reason is RefusalReason.TOO_MANY_UNITS


def test_the_limit_counts_all_units_of_a_container() -> None:
    fits = {LOGICAL + "nlb0": "60", REGION: "4"}
    assert limits_of(mutated(pod(container("app", fits)))) == {REGION: "64"}
    refused(pod(container("app", {LOGICAL + "nlb0": "60", REGION: "5"})))
    refused(pod(container("app", {LOGICAL + "nlb0": "2"})), policy=Policy(max_units=1))


def test_many_full_containers_fit_into_a_pod_and_no_unit_more() -> None:
    full = [container(f"c{n}", {REGION: "2"}) for n in range(POD_FACTOR)]
    policy = Policy(max_units=2)
    assert isinstance(judge(pod(*full), policy=policy), Unchanged)
    result = refused(pod(*full, container("more", {LOGICAL + "nlb0": "1"})), policy=policy)
    assert result.message == (
        'container "more": the pod requests more than 128 accelerators, the limit for all its '
        "containers together (64 times --max-units of the webhook)"
    )
    assert result.refusals[0].reason is RefusalReason.TOO_MANY_UNITS


# Modes


def test_functions_of_different_modes_in_one_container_are_refused() -> None:
    result = refused(pod(container("app", {LOGICAL + "nlb0": "1", LOGICAL + "nlb0-af": "1"})))
    (refusal,) = result.refusals
    assert refusal.reason is RefusalReason.MIXED_MODES
    assert result.message == (
        'container "app": resources of different modes are requested, but a node runs one mode: '
        "fpga.intel.com/nlb0 (mode region) and fpga.intel.com/nlb0-af (mode af); "
        "request them in different pods"
    )


@pytest.mark.parametrize(
    "limits",
    [
        {LOGICAL + "nlb0": "1", LOGICAL + "arria-devel": "1"},
        {LOGICAL + "nlb0-af": "1", LOGICAL + "arria-devel": "1"},
        {LOGICAL + "nlb0-af": "1", REGION: "1"},
        {AF_NLB0: "1", REGION: "1"},
        {LOGICAL + "stratix.nlb3": "1", LOGICAL + "arria-devel": "1", REGION: "1"},
    ],
)
def test_other_mixtures_are_refused_too(limits: Object) -> None:
    result = refused(pod(container("app", limits)))
    assert [refusal.reason for refusal in result.refusals] == [RefusalReason.MIXED_MODES]


def test_a_region_that_is_mapped_in_two_modes_goes_with_either() -> None:
    assert limits_of(mutated(pod(container("app", {REGION: "1", LOGICAL + "nlb0": "1"})))) == {
        REGION: "2"
    }
    assert limits_of(
        mutated(pod(container("app", {REGION: "1", LOGICAL + "arria-devel": "1"})))
    ) == {REGION: "2"}
    result = refused(pod(container("app", {REGION: "1", LOGICAL + "nlb0-af": "1"})))
    assert f"{REGION} (mode region or regiondevel)" in result.message


def test_what_is_asked_for_zero_times_has_no_mode() -> None:
    after = mutated(pod(container("app", {LOGICAL + "nlb0": "1", LOGICAL + "nlb0-af": "0"})))
    assert limits_of(after) == {REGION: "1", AF_NLB0: "0"}
    after = mutated(pod(container("app", {LOGICAL + "nlb0": "1", AF_NLB0: "0"})))
    assert limits_of(after) == {REGION: "1", AF_NLB0: "0"}


def test_a_long_mixture_is_shown_in_part() -> None:
    objects = [function(f"f{n}", "region") for n in range(5)] + [function("g", "af")]
    mappings = index(*objects).namespace("default")
    limits = {f"fpga.intel.com/{obj['metadata']['name']}": "1" for obj in objects}
    message = refused(pod(container("app", limits)), mappings).message
    assert "fpga.intel.com/f3 (mode region) and 2 more; request" in message


def test_different_modes_in_different_containers_are_warned_of() -> None:
    before = pod(
        container("one", {LOGICAL + "nlb0": "1"}),
        container("two", {LOGICAL + "stratix.nlb3-af": "1"}),
        container("three", {LOGICAL + "nlb0-af": "1"}),
        container("none", {LOGICAL + "nlb0-af": "0"}),
    )
    result = judge(before)
    assert isinstance(result, Patched)
    assert result.warnings == ("containers one (region) and two (af): a node runs one mode only",)
    again = judge(apply(before, result))
    assert isinstance(again, Unchanged)
    assert again.warnings == result.warnings  # of two equal ones an API server passes on one


def test_a_function_that_env_spells_takes_a_node_of_mode_region() -> None:
    before = pod(container("app", {REGION: "1", LOGICAL + "devel": "1"}, env=pair(1)))
    mappings = index(function("nlb0", "region"), region("devel")).namespace("default")
    assert "resources of different modes" in refused(before, mappings).message
    without = pod(container("app", {REGION: "1", LOGICAL + "devel": "1"}))
    assert isinstance(judge(without, mappings), Patched)


def test_warnings_are_short_and_few() -> None:
    objects = [function("a" * 63, "region"), function("b" * 63, "af"), region("c" * 63)]
    again = [parse(obj) for obj in objects * 2]
    mappings = build_index(again).namespace("default")
    before = pod(
        container("x" * 63, {LOGICAL + "a" * 63: "1"}),
        container("y" * 63, {LOGICAL + "b" * 63: "1"}),
        container("z" * 63, {LOGICAL + "c" * 63: "1"}),
    )
    result = judge(before, mappings)
    assert isinstance(result, Patched)
    assert len(result.warnings) == 4
    assert (
        f"containers {'x' * 19}… (region) and {'y' * 19}… (af): a node runs one mode only"
    ) in result.warnings
    assert all(len(warning) <= 120 for warning in result.warnings)


# Several problems, odd shapes, other domains


def test_all_problems_of_a_pod_are_told_at_once() -> None:
    result = refused(
        pod(
            container("one", {LOGICAL + "x": "1", LOGICAL + "nlb0": "0.5"}),
            container("two", {LOGICAL + "nlb0": "99"}, env=pair(1)),
            container("three", {LOGICAL + "nlb0": "1", LOGICAL + "nlb0-af": "1"}),
        )
    )
    assert [(refusal.container, refusal.reason) for refusal in result.refusals] == [
        ("one", RefusalReason.INVALID_QUANTITY),
        ("one", RefusalReason.UNKNOWN_NAME),
        ("two", RefusalReason.TOO_MANY_UNITS),
        ("two", RefusalReason.ENV_NOT_ALLOWED),
        ("three", RefusalReason.MIXED_MODES),
    ]
    assert result.message.startswith("5 problems: (1) container ")
    assert ' (5) container "three": resources' in result.message


@pytest.mark.parametrize("quantity", ["1", "1.5"])
def test_no_more_than_eight_problems_are_told(quantity: str) -> None:
    many = {f"{LOGICAL}x{n:05}": quantity for n in range(20_000)}
    result = refused(pod(container("app", many), container("too", many)))
    assert len(result.refusals) == 8
    result = refused(pod(container("app", {"cpu": "1"}, requests=many), container("too", many)))
    assert len(result.refusals) == 8
    assert {refusal.container for refusal in result.refusals} == {"app"}


def test_very_many_bad_containers_are_not_all_looked_at() -> None:
    result = refused(pod(*[container(f"c{n}", {LOGICAL + "x": "1"}) for n in range(10_000)]))
    assert [refusal.container for refusal in result.refusals] == [f"c{n}" for n in range(8)]


def test_containers_of_one_name_are_each_rewritten() -> None:
    before = pod(
        container("app", {LOGICAL + "nlb0": "1"}), container("app", {LOGICAL + "nlb3": "1"})
    )
    after = mutated(before)
    assert requested_of(after) == {"app": {LOGICAL + "nlb0": 1, LOGICAL + "nlb3": 1}}
    assert [env_of(after, n) for n in (0, 1)] == [pair(1), pair(1, afu=NLB3)]


@pytest.mark.parametrize(
    ("env", "problem"),
    [
        ({}, "Expected `array | null`, got `object` in /spec/containers/0/env"),
        ([1], "Expected `object`, got `int` - at `$[0]` in /spec/containers/0/env"),
        (
            [{"name": "FPGA_AFU_1", "value": 1}],
            "Expected `str | null`, got `int` - at `$[0].value` in /spec/containers/0/env",
        ),
    ],
)
def test_an_env_of_another_shape_is_named(env: Any, problem: str) -> None:
    before = pod(container("app", {LOGICAL + "nlb0": "1"}))
    before["spec"]["containers"][0]["env"] = env
    with pytest.raises(InvalidReview) as caught:
        judge(before)
    assert str(caught.value) == f"the pod can't be read: {problem}"


@pytest.mark.parametrize(
    "env", [b'[{"name":"FPGA_\xff"}]', b'[{"name":"\\ud800"}]'], ids=["utf-8", "surrogate"]
)
def test_an_env_that_is_no_text_is_refused(env: bytes) -> None:
    obj = json.dumps(pod(container("app", {LOGICAL + "nlb0": "1"}, env=[{"name": "@"}]))).encode()
    body = obj.replace(b'[{"name": "@"}]', env)
    with pytest.raises(InvalidReview, match="the pod can't be read: "):
        mutate(decode_pod(body), usual(), Policy())


def test_a_deep_env_is_no_way_out() -> None:
    obj = json.dumps(pod(container("app", {LOGICAL + "nlb0": "1"}, env=[{"name": "@"}]))).encode()
    body = obj.replace(b'{"name": "@"}', b"[" * 100_000 + b"]" * 100_000)
    with pytest.raises(InvalidReview, match="the pod can't be read: "):
        mutate(decode_pod(body), usual(), Policy())


def test_other_domains_can_be_served_beside_ours() -> None:
    policy = Policy(domains=("fpga.intel.com", "fpga.example.org"))
    other = "fpga.example.org/"
    before = pod(
        container("app", {LOGICAL + "nlb0": "1", other + "nlb3": "2", "fpga.example.com/x": "1"})
    )
    after = mutated(before, policy=policy)
    assert limits_of(after) == {
        REGION: "1",
        f"{other}region-{ARRIA}": "2",
        "fpga.example.com/x": "1",
    }
    assert env_of(after) == pair(1, afu=NLB3) + pair(2, afu=NLB3) + pair(3)
    assert requested_of(after) == {"app": {LOGICAL + "nlb0": 1, other + "nlb3": 2}}
    result = refused(pod(container("app", {other + "nlb1": "1"})), policy=policy)
    assert "did you mean nlb0?" in result.message
    assert judge(before, policy=Policy(domains=("fpga.example.net",))) == Unchanged(
        UnchangedReason.NOTHING_ASKED
    )


def test_units_need_no_mapping_where_their_domain_is_ours_too() -> None:
    policy = Policy(domains=("fpga.intel.com", "b-com.com"), max_units=3)
    units = "b-com.com/accelerator"
    before = pod(container("app", {units: "2"}))
    assert judge(before, policy=policy) == Unchanged(UnchangedReason.ALREADY_PHYSICAL)
    after = mutated(
        pod(container("app", {units: "2"}), container("b", {LOGICAL + "nlb0": "1"})), policy=policy
    )
    assert limits_of(after) == {units: "2"}
    result = refused(pod(container("app", {units: "4"})), policy=policy)
    assert "the limit is 3 per container" in result.message
    result = refused(pod(container("app", {"b-com.com/other": "1"})), policy=policy)
    assert "b-com.com/other does not exist in" in result.message


def test_the_codes_of_refusals_and_of_unchanged_pods_never_change() -> None:
    assert {reason.value for reason in RefusalReason} == {
        "unknown-name",
        "unusable-mapping",
        "unmapped-resource",
        "invalid-quantity",
        "requests-differ",
        "too-many-units",
        "mixed-modes",
        "env-not-allowed",
        "shared-device",
    }
    assert {reason.value for reason in UnchangedReason} == {
        "nothing-asked",
        "mirror-pod",
        "already-physical",
    }
