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


def test_a_container_is_known_from_both_places_once() -> None:
    found = find_holders([entry("1")], ["ns_a_1"], [RUNNING])
    assert found == {(AF, "p0"): (Holder("ns", "a", "c"),)}


def test_an_init_container_is_known_from_the_checkpoint() -> None:
    entries = [entry("1", "init", "p0", "p1"), entry("1", "c", "p0")]
    found = find_holders(entries, ["ns_a_1"], [RUNNING])
    assert found == {
        (AF, "p0"): (Holder("ns", "a", "c"), Holder("ns", "a", "init")),
        (AF, "p1"): (Holder("ns", "a", "init"),),
    }


def test_an_init_container_alone_makes_its_pod_a_holder() -> None:
    found = find_holders([entry("1", "init")], ["ns_a_1"], [active("a")])
    assert found == {(AF, "p0"): (Holder("ns", "a", "init"),)}


def test_a_container_that_the_checkpoint_does_not_have_yet_counts() -> None:
    assert find_holders([], [], [RUNNING]) == {(AF, "p0"): (Holder("ns", "a", "c"),)}


def test_a_pod_that_has_come_to_its_end_has_nothing() -> None:
    assert find_holders([entry("1")], ["ns_a_1"], []) == {}
    assert find_holders([entry("1")], ["ns_a_1", "ns_b_2"], [active("b")]) == {}


def test_an_entry_without_folder_is_of_a_pod_that_is_gone_if_all_others_are_known() -> None:
    assert find_holders([entry("1")], [], []) == {}
    assert find_holders([entry("1")], ["ns_b_2"], [active("b")]) == {}


def test_an_entry_without_folder_may_be_of_a_pod_that_is_about_to_start() -> None:
    found = find_holders([entry("1", "init")], ["ns_b_2"], [active("b"), active("a")])
    assert found == {(AF, "p0"): (Holder("", "", "init"),)}


@pytest.mark.parametrize("folders", [["ns_a_1", "ns_b_1"], ["ns_b_1", "ns_a_1"]])
def test_a_uid_that_two_folders_claim_is_nobodys(folders: list[str]) -> None:
    pods = [active("a"), active("b")]
    assert find_holders([entry("1")], folders, pods) == {(AF, "p0"): (Holder("", "", "c"),)}


@pytest.mark.parametrize("folder", ["", "_", "ns_a", "ns_a_1_x", "_a_1", "ns__1", "ns_a_", "a"])
def test_folders_of_other_names_tell_nothing(folder: str) -> None:
    assert find_holders([entry("1")], [folder], [active("a")]) == {
        (AF, "p0"): (Holder("", "", "c"),)
    }


def test_pods_of_one_name_in_two_namespaces_are_two() -> None:
    pods = [ActivePod("n1", "a"), ActivePod("n2", "a")]
    entries = [entry("1", "c", "p0"), entry("2", "c", "p1")]
    found = find_holders(entries, ["n1_a_1", "n2_a_2"], pods)
    assert found == {(AF, "p0"): (Holder("n1", "a", "c"),), (AF, "p1"): (Holder("n2", "a", "c"),)}


def test_devices_of_one_name_in_two_resources_are_two() -> None:
    entries = [entry("1"), entry("2", resource=REGION)]
    found = find_holders(entries, ["ns_a_1", "ns_b_2"], [active("a"), active("b")])
    assert {device: [each.pod for each in holders] for device, holders in found.items()} == {
        (AF, "p0"): ["a"],
        (REGION, "p0"): ["b"],
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


def test_the_entries_of_a_pod_made_anew_under_its_name_are_not_its_own() -> None:
    entries = [entry("1", "c", "p1"), entry("1", "init", "p2"), entry("2", "c", "p0")]
    folders = ["ns_a_1", "ns_a_2"]
    assert find_holders(entries, folders, [RUNNING]) == {(AF, "p0"): (Holder("ns", "a", "c"),)}


def test_a_pod_that_has_ended_and_is_listed_all_the_same_has_nothing() -> None:
    ended = ActivePod("ns", "a", (), ("c",))
    entries = [entry("1", "c", "p0"), entry("1", "init", "p0")]
    assert find_holders(entries, ["ns_a_1"], [ended]) == {}
    cautious = find_holders(entries, ["ns_a_1"], [ended], cautious=True)
    assert [each.container for each in cautious[AF, "p0"]] == ["c", "init"]
    assert find_holders(entries[1:], ["ns_a_1"], [ended]) == {
        (AF, "p0"): (Holder("ns", "a", "init"),)
    }


def test_devices_that_podresources_tells_in_parts_are_one_set() -> None:
    both = active("a", Held("c", AF, ("p0",)), Held("c", AF, ("p1",)))
    found = find_holders([entry("1", "c", "p0", "p1")], ["ns_a_1"], [both])
    assert set(found) == {(AF, "p0"), (AF, "p1")}


def test_a_holder_of_unknown_pod_is_left_out_if_it_may_be_one_that_is_known() -> None:
    entries = [entry("1", "c", "p0"), entry("1", "init", "p0")]
    told = active("a", Held("d", AF, ("p1",)))
    assert find_holders(entries, [], [told]) == {
        (AF, "p0"): (Holder("", "", "c"), Holder("", "", "init")),
        (AF, "p1"): (Holder("ns", "a", "d"),),
    }
    twice = [*entries, entry("2", "c", "p0")]
    assert find_holders(twice, [], [RUNNING]) == {
        (AF, "p0"): (Holder("", "", "init"), Holder("ns", "a", "c"))
    }


def test_without_log_folders_equal_devices_name_the_init_containers_too() -> None:
    entries = [entry("1", "c", "p0"), entry("1", "init", "p0", "p1")]
    both = (Holder("ns", "a", "c"), Holder("ns", "a", "init"))
    assert find_holders(entries, [], [RUNNING]) == {(AF, "p0"): both, (AF, "p1"): both[1:]}


@pytest.mark.parametrize("cautious", [False, True])
def test_a_pod_that_was_found_earlier_is_known_to_have_ended(cautious: bool) -> None:
    entries, others = [entry("1", "c", "p0"), entry("1", "init", "p1")], [active("b")]
    known = {"1": PodRef("ns", "a", "1")}
    assert set(find_holders(entries, [], others, cautious=cautious)) == {(AF, "p0"), (AF, "p1")}
    assert find_holders(entries, [], others, known=known, cautious=cautious) == {}
    entries.append(entry("2", "init", "p2"))  # a new pod, with the name of the one that has ended
    found = find_holders(entries, [], [active("a")], known=known, cautious=cautious)
    assert found[AF, "p2"] == (Holder("", "", "init"),)


def test_without_podresources_whoever_has_an_entry_counts() -> None:
    entries = [entry("1", "c", "p0"), entry("2", "c", "p1")]
    assert find_holders(entries, ["ns_a_1"], None) == {
        (AF, "p0"): (Holder("ns", "a", "c"),),
        (AF, "p1"): (Holder("", "", "c"),),
    }
