"""What a kubelet asks of plugins for a pod, as tables without I/O."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from services.kubelet.deviceplugin_pb2 import ContainerAllocateResponse
from simulator.kubelet.allocator import (
    AllocationFailed,
    Allocator,
    AskAllocate,
    AskPreferred,
    PluginFailed,
    PreStart,
    Question,
    Save,
    StartRefused,
)
from simulator.kubelet.pods import PodSpec, read_pod
from simulator.kubelet.registry import Device, Options, Registry
from tests.simulator.kubelet.fake_plugin import RESOURCE, pod

OTHER = "fpga.intel.com/af-other"


@dataclass
class Table:
    """An allocator whose plugins answer from a table."""

    prefer: dict[int, list[str]] = field(default_factory=dict)
    fail: str = ""
    answer: ContainerAllocateResponse | None = field(default_factory=ContainerAllocateResponse)
    rng: random.Random | None = None
    now: float = 0.0
    active: list[str] = field(default_factory=list)
    asked: list[Question] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.registry = Registry(lambda: self.now)
        self.allocator = Allocator(self.registry, lambda: self.active, self.rng)

    def lists(self, *ids: str, resource: str = RESOURCE, options: Options | None = None) -> "Table":
        self.registry.connected(resource, options or Options(preferred=True))
        self.registry.listed(resource, [Device(each, healthy=True) for each in ids])
        return self

    def allocate(self, spec: PodSpec) -> list[Question]:
        self.active.append(spec.uid)
        self.asked = []
        conversation = self.allocator.allocate(spec)
        try:
            question = next(conversation)
            while True:
                self.asked.append(question)
                if self.fail == type(question).__name__:
                    question = conversation.throw(
                        PluginFailed("rpc error: code = Internal desc = no")
                    )
                elif isinstance(question, AskPreferred):
                    question = conversation.send(self.prefer.get(question.size, []))
                elif isinstance(question, AskAllocate):
                    question = conversation.send(self.answer)
                else:
                    question = conversation.send(None)
        except StopIteration:
            return self.asked

    def ids(self, spec: PodSpec, container: str) -> tuple[str, ...]:
        return tuple(
            each
            for entry in self.allocator.ledger.of_container(spec.uid, container)
            for each in entry.ids
        )


def ask(available: str, must_include: str, size: int) -> AskPreferred:
    return AskPreferred(RESOURCE, tuple(available), tuple(must_include), size)


def give(ids: str) -> AskAllocate:
    return AskAllocate(RESOURCE, tuple(ids))


@pytest.mark.parametrize(
    ("init", "sidecars", "containers", "expected"),
    [
        pytest.param(
            {}, [], {"one": 1, "two": 2},
            [ask("abcd", "", 1), give("a"), Save(), ask("bcd", "", 2), give("bc"), Save()],
            id="one container request each, in the order of the spec",
        ),
        pytest.param(
            {"i": 1}, [], {"main": 2},
            [ask("abcd", "", 1), give("a"), Save(), ask("abcd", "a", 2), give("ab"), Save()],
            id="an init container's device must be included for the app container",
        ),
        pytest.param(
            {"i": 2}, [], {"main": 1},
            [ask("abcd", "", 2), give("ab"), Save(), give("a"), Save()],
            id="where reuse is enough, nobody is asked for a preference",
        ),
        pytest.param(
            {"i": 1, "j": 2}, [], {"main": 2},
            [
                ask("abcd", "", 1), give("a"), Save(),
                ask("abcd", "a", 2), give("ab"), Save(),
                give("ab"), Save(),
            ],
            id="init containers hand on what they got to each other",
        ),
        pytest.param(
            {"i": 1}, [], {"one": 1, "two": 1},
            [
                ask("abcd", "", 1), give("a"), Save(),
                give("a"), Save(),
                ask("bcd", "", 1), give("b"), Save(),
            ],
            id="an app container takes a device out of the pool",
        ),
        pytest.param(
            {"side": 1, "i": 1}, ["side"], {"main": 2},
            [
                ask("abcd", "", 1), give("a"), Save(),
                ask("bcd", "", 1), give("b"), Save(),
                ask("bcd", "b", 2), give("bc"), Save(),
            ],
            id="a sidecar keeps its device",
        ),
        pytest.param(
            {"i": 1, "side": 1}, ["side"], {"main": 1},
            [
                ask("abcd", "", 1), give("a"), Save(),
                give("a"), Save(),
                ask("bcd", "", 1), give("b"), Save(),
            ],
            id="a sidecar takes what an init container before it had",
        ),
        pytest.param({}, [], {"main": 0}, [], id="a container that asks for nothing gets nothing"),
    ],
)  # fmt: skip
def test_questions_come_in_the_kubelets_order(
    init: dict[str, int],
    sidecars: Sequence[str],
    containers: dict[str, int],
    expected: list[Question],
) -> None:
    table = Table().lists(*"abcd")
    spec = read_pod(pod(init=init, sidecars=sidecars, containers=containers))
    assert table.allocate(spec) == expected


@pytest.mark.parametrize(
    ("preferred", "given"),
    [
        pytest.param(["c", "a"], "ac", id="a preference is followed"),
        pytest.param(["c"], "ac", id="what is missing is filled up"),
        pytest.param(["x", "d", "d"], "ad", id="what is not available is passed over"),
        pytest.param(["d", "c", "b"], "cd", id="what is too much is left"),
        pytest.param([], "ab", id="no preference is fine"),
    ],
)
def test_a_preference_is_advice(preferred: list[str], given: str) -> None:
    table = Table(prefer={2: preferred}).lists(*"abcd")
    spec = read_pod(pod(containers={"main": 2}))
    table.allocate(spec)
    assert table.ids(spec, "main") == tuple(given)


def test_without_an_announcement_nobody_is_asked_for_a_preference() -> None:
    table = Table().lists(*"ab", options=Options(preferred=False))
    assert table.allocate(read_pod(pod())) == [give("a"), Save()]


def test_a_resource_that_no_plugin_listed_is_passed_over() -> None:
    assert Table().lists(*"ab").allocate(read_pod(pod(resource=OTHER))) == []


def test_several_resources_of_a_container_are_asked_one_by_one_and_saved_once() -> None:
    table = Table().lists("a").lists("b", resource=OTHER, options=Options())
    described = pod()
    described["spec"]["containers"][0]["resources"]["limits"][OTHER] = 1  # type: ignore[index]
    assert table.allocate(read_pod(described)) == [
        ask("a", "", 1), give("a"), AskAllocate(OTHER, ("b",)), Save(),
    ]  # fmt: skip


def test_chance_may_decide_where_the_real_kubelet_leaves_it_to_chance() -> None:
    chosen = set()
    for seed in range(20):
        rng = random.Random(seed)  # noqa: S311 - nothing secret hangs on it
        table = Table(rng=rng).lists(*"abcd", options=Options())
        spec = read_pod(pod())
        table.allocate(spec)
        chosen.add(table.ids(spec, "main"))
    assert len(chosen) > 1


def failure(table: Table, spec: PodSpec) -> str:
    with pytest.raises(AllocationFailed) as caught:
        table.allocate(spec)
    return str(caught.value)


def test_too_few_devices_fail_the_pod() -> None:
    table = Table().lists(*"ab")
    table.allocate(read_pod(pod("first")))
    assert failure(table, read_pod(pod("second", containers={"main": 2}))) == (
        f"requested number of devices unavailable for {RESOURCE}. Requested: 2, Available: 1"
    )


def test_unhealthy_devices_are_not_given() -> None:
    table = Table().lists(*"ab")
    table.registry.listed(RESOURCE, [Device("a", healthy=False), Device("b", healthy=True)])
    spec = read_pod(pod())
    table.allocate(spec)
    assert table.ids(spec, "main") == ("b",)
    table.registry.listed(RESOURCE, [Device("a", healthy=False)])
    assert failure(table, read_pod(pod("other"))) == (
        f"no healthy devices present; cannot allocate unhealthy devices {RESOURCE}"
    )


def test_a_lost_plugin_fails_the_pod() -> None:
    table = Table().lists(*"ab")
    table.registry.disconnected(RESOURCE)
    assert "no healthy devices present" in failure(table, read_pod(pod()))
    table.registry.listed(RESOURCE, [Device("a", healthy=True)])
    assert failure(table, read_pod(pod())) == f"endpoint {RESOURCE} has been stopped"


def test_errors_of_the_plugin_fail_the_pod_and_free_its_devices() -> None:
    table = Table(fail="AskPreferred").lists(*"ab")
    assert failure(table, read_pod(pod())) == (
        "device plugin GetPreferredAllocation rpc failed with err:"
        " rpc error: code = Internal desc = no"
    )
    table.fail = "AskAllocate"
    assert failure(table, read_pod(pod())) == "rpc error: code = Internal desc = no"
    table.fail, table.answer = "", None
    assert failure(table, read_pod(pod())) == "no containers return in allocation response"
    assert table.allocator.ledger.in_use(RESOURCE) == set()


def test_a_failed_pods_first_containers_keep_their_devices_until_it_is_inactive() -> None:
    table = Table().lists(*"ab")
    spec = read_pod(pod(containers={"one": 1, "two": 2}))
    failure(table, spec)
    assert table.allocator.ledger.in_use(RESOURCE) == {"a"}
    table.active.clear()
    table.allocator.forget_inactive()
    assert table.allocator.ledger.in_use(RESOURCE) == set()


def test_a_pod_that_has_its_devices_is_not_allocated_again() -> None:
    table = Table().lists(*"ab")
    spec = read_pod(pod())
    table.allocate(spec)
    assert table.allocate(spec) == []
    more = read_pod(pod(containers={"main": 2}))
    assert "changed request" in failure(table, more)
    table.registry.listed(RESOURCE, [Device("b", healthy=True)])
    assert failure(table, spec).startswith("previously allocated devices are no longer healthy")


def test_a_resource_that_only_the_checkpoint_knows_cannot_be_allocated() -> None:
    table = Table().lists(*"ab")
    table.allocate(read_pod(pod("first")))
    table.registry.restore([])
    assert failure(table, read_pod(pod("second"))) == (
        f"cannot allocate unregistered device {RESOURCE}"
    )


def test_before_a_start_the_plugins_that_announced_it_are_called_with_the_containers_ids() -> None:
    table = Table().lists(*"abc", options=Options(pre_start=True))
    spec = read_pod(pod(init={"i": 1}, containers={"main": 2, "free": 0}))
    table.allocate(spec)
    calls = {each.name: table.allocator.before_start(spec, each) for each in spec.all_containers}
    assert calls == {
        "i": [PreStart(RESOURCE, ("a",))],
        "main": [PreStart(RESOURCE, ("a", "b"))],
        "free": [],
    }


def test_before_a_start_nobody_is_called_who_did_not_announce_it() -> None:
    table = Table().lists(*"abc")
    spec = read_pod(pod())
    table.allocate(spec)
    assert table.allocator.before_start(spec, spec.containers[0]) == []


def test_a_start_waits_for_a_plugin_that_is_gone() -> None:
    table = Table().lists("a", options=Options(pre_start=True))
    spec = read_pod(pod())
    with pytest.raises(StartRefused, match="no devices found allocated in local cache"):
        table.allocator.before_start(spec, spec.containers[0])
    table.allocate(spec)
    table.registry.disconnected(RESOURCE)
    with pytest.raises(StartRefused, match="has been stopped"):
        table.allocator.before_start(spec, spec.containers[0])
    table.now += 301
    assert table.registry.node_resources().capacity == {RESOURCE: 0}
    with pytest.raises(StartRefused, match="endpoint not found in cache"):
        table.allocator.before_start(spec, spec.containers[0])


def test_after_a_restart_nobody_is_called_until_the_plugin_registers_again() -> None:
    table = Table().lists("a", options=Options(pre_start=True))
    spec = read_pod(pod())
    table.allocate(spec)
    table.registry.restore([RESOURCE])
    assert table.allocator.before_start(spec, spec.containers[0]) == []
