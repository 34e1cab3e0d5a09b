import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.containers.holders import Holder, find_holders
from services.containers.identity import PodRef
from services.kubelet.values import ActivePod, Entry, Held

AF = "fpga.intel.com/af-x"
REGION = "fpga.intel.com/region-y"


def entry(uid: str, container: str = "c", *ids: str, resource: str = AF) -> Entry:
    return Entry(uid, container, resource, frozenset(ids or ("p0",)))


def active(name: str, *held: Held) -> ActivePod:
    return ActivePod("ns", name, held)


RUNNING = active("a", Held("c", AF, ("p0",)))


A, B = active("a"), active("b")
INIT_ONLY = [entry("1", "init")]
NOBODY: dict[tuple[str, str], tuple[Holder, ...]] = {}


def of(*holders: tuple[str, str], key: str = "p0") -> dict[tuple[str, str], tuple[Holder, ...]]:
    """The holders of one device: pod (empty if unknown) and container."""
    return {(AF, key): tuple(Holder("ns" if pod else "", pod, name) for pod, name in holders)}


@pytest.mark.parametrize(
    ("entries", "folders", "pods", "found"),
    [
        ([entry("1")], ["ns_a_1"], [RUNNING], of(("a", "c"))),  # known from both places
        ([entry("1", "init")], ["ns_a_1"], [A], of(("a", "init"))),  # plain init containers
        (
            [entry("1", "init", "p0", "p1"), entry("1", "c", "p0")],
            ["ns_a_1"],
            [RUNNING],
            of(("a", "c"), ("a", "init")) | of(("a", "init"), key="p1"),
        ),
        ([], [], [RUNNING], of(("a", "c"))),  # not in the checkpoint yet
        ([entry("1")], ["ns_a_1"], [], NOBODY),  # its pod has ended
        ([entry("1")], ["ns_a_1", "ns_b_2"], [B], NOBODY),
        ([entry("1")], [], [], NOBODY),  # without a folder, and all active pods are known
        ([entry("1")], ["ns_b_2"], [B], NOBODY),
        (INIT_ONLY, ["ns_b_2"], [B, A], of(("", "init"))),  # a pod that is about to start
        ([entry("1")], ["ns_a_1", "ns_b_1"], [A, B], of(("", "c"))),  # two folders claim a UID
        ([entry("1")], ["ns_b_1", "ns_a_1"], [A, B], of(("", "c"))),
        *(
            ([entry("1")], [folder], [A], of(("", "c")))
            for folder in ("", "_", "ns_a", "ns_a_1_x", "_a_1", "ns__1", "ns_a_", "a")
        ),
        (  # made again under its name: the entries of the old one do not count
            [entry("1", "c", "p1"), entry("1", "init", "p2"), entry("2", "c", "p0")],
            ["ns_a_1", "ns_a_2"],
            [RUNNING],
            of(("a", "c")),
        ),
        (  # PodResources lists a container's devices in parts
            [entry("1", "c", "p0", "p1")],
            ["ns_a_1"],
            [active("a", Held("c", AF, ("p0",)), Held("c", AF, ("p1",)))],
            of(("a", "c")) | of(("a", "c"), key="p1"),
        ),
        (  # without folders, equal devices name the init containers too
            [entry("1", "c", "p0"), entry("1", "init", "p0", "p1")],
            [],
            [RUNNING],
            of(("a", "c"), ("a", "init")) | of(("a", "init"), key="p1"),
        ),
        (  # without PodResources every entry counts
            [entry("1", "c", "p0"), entry("2", "c", "p1")],
            ["ns_a_1"],
            None,
            of(("a", "c")) | of(("", "c"), key="p1"),
        ),
        (  # an unknown holder may be one that is known
            [entry("1", "c"), entry("1", "init"), entry("2", "c")],
            [],
            [RUNNING],
            of(("", "init"), ("a", "c")),
        ),
        (
            [entry("1", "c"), entry("1", "init")],
            [],
            [active("a", Held("d", AF, ("p1",)))],
            of(("", "c"), ("", "init")) | of(("a", "d"), key="p1"),
        ),
    ],
)
def test_the_holders_of_devices(
    entries: list[Entry],
    folders: list[str],
    pods: list[ActivePod] | None,
    found: dict[tuple[str, str], tuple[Holder, ...]],
) -> None:
    assert find_holders(entries, folders, pods) == found


def test_namespaces_and_resources_keep_equal_names_apart() -> None:
    pods = [ActivePod("n1", "a"), ActivePod("n2", "a")]
    entries = [entry("1"), entry("2", resource=REGION)]
    found = find_holders(entries, ["n1_a_1", "n2_a_2"], pods)
    assert found == {
        (AF, "p0"): (Holder("n1", "a", "c"),),
        (REGION, "p0"): (Holder("n2", "a", "c"),),
    }


@given(
    st.lists(st.tuples(st.sampled_from("12345"), st.sampled_from(["p0", "p1", "p2"])), max_size=8),
    st.sets(st.sampled_from("12345")),
    st.sets(st.sampled_from("12345")),
    st.sets(st.sampled_from("12345")),
    st.sets(st.sampled_from("12345")),
)
def test_a_device_of_an_active_pod_is_never_taken_for_free(
    held: list[tuple[str, str]],
    alive: set[str],
    with_folder: set[str],
    told: set[str],
    known: set[str],
) -> None:
    """Pods 1 to 5; `told` says of which active ones PodResources has the devices.

    `known` says which of them were found earlier.
    """
    entries = [entry(uid, "c", key) for uid, key in held]
    pods = [
        active(
            f"pod{uid}", *(Held("c", AF, (key,)) for who, key in held if who == uid and uid in told)
        )
        for uid in sorted(alive)
    ]
    found = find_holders(
        entries,
        [f"ns_pod{uid}_{uid}" for uid in with_folder],
        pods,
        known={uid: PodRef("ns", f"pod{uid}", uid) for uid in known},
    )
    assert {(AF, key) for uid, key in held if uid in alive} <= found.keys()
    if alive <= with_folder:
        assert found.keys() == {(AF, key) for uid, key in held if uid in alive}


def test_a_pod_that_has_ended_and_is_listed_all_the_same_has_nothing() -> None:
    ended = ActivePod("ns", "a", (), ("c",))
    entries = [entry("1", "c", "p0"), entry("1", "init", "p0")]
    assert find_holders(entries, ["ns_a_1"], [ended]) == {}
    cautious = find_holders(entries, ["ns_a_1"], [ended], cautious=True)
    assert [each.container for each in cautious[AF, "p0"]] == ["c", "init"]
    assert find_holders(entries[1:], ["ns_a_1"], [ended]) == {
        (AF, "p0"): (Holder("ns", "a", "init"),)
    }


@pytest.mark.parametrize("cautious", [False, True])
def test_a_pod_that_was_found_earlier_is_known_to_have_ended(cautious: bool) -> None:
    entries, others = [entry("1", "c", "p0"), entry("1", "init", "p1")], [active("b")]
    known = {"1": PodRef("ns", "a", "1")}
    assert set(find_holders(entries, [], others, cautious=cautious)) == {(AF, "p0"), (AF, "p1")}
    assert find_holders(entries, [], others, known=known, cautious=cautious) == {}
    entries.append(entry("2", "init", "p2"))  # a new pod, with the name of the one that has ended
    found = find_holders(entries, [], [active("a")], known=known, cautious=cautious)
    assert found[AF, "p2"] == (Holder("", "", "init"),)
