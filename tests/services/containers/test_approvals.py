import pytest

from services.containers import approvals as module
from services.containers.approvals import Approvals, BrokenApprovals, StartApproval, decode
from services.containers.identity import ContainerIdentity
from services.containers.wanted import WantedFunctions
from services.devices.model import PluginMode

RESOURCE = "fpga.intel.com/region-ce48969398f05f33946d560708be108a"


def approval(
    uid: str = "u", container: str = "c", *devices: str, functions: tuple[str, ...] = ("f",)
) -> StartApproval:
    return StartApproval(uid, container, RESOURCE, devices or ("a", "b"), "who", functions)


def test_an_approval_is_found_for_exactly_its_devices() -> None:
    known = Approvals().with_([approval()])
    found = known.find(ContainerIdentity("u", "c"), RESOURCE, ["b", "a"])
    assert found is not None
    assert found.wanted == WantedFunctions("who", ("f",))
    for candidate, resource, devices in (
        (ContainerIdentity("v", "c"), RESOURCE, ["a", "b"]),
        (ContainerIdentity("u", "d"), RESOURCE, ["a", "b"]),
        (ContainerIdentity("u", "c"), "other/x", ["a", "b"]),
        (ContainerIdentity("u", "c"), RESOURCE, ["a"]),
        (ContainerIdentity("u", "c"), RESOURCE, ["a", "b", "c"]),
    ):
        assert known.find(candidate, resource, devices) is None


@pytest.mark.parametrize(
    ("functions", "modes"),
    [(("f",), {PluginMode.REGION}), ((), set(PluginMode) - {PluginMode.REGION})],
)
def test_an_approval_is_none_after_a_change_of_mode(
    functions: tuple[str, ...], modes: set[PluginMode]
) -> None:
    given = approval(functions=functions)
    assert {mode for mode in PluginMode if given.is_for(mode)} == modes


def test_a_newer_approval_replaces_the_one_of_the_same_container() -> None:
    known = Approvals().with_([approval(), approval("u", "d")])
    newer = known.with_([approval("u", "c", "a", "b", functions=("g",))])
    assert len(newer) == 2
    found = newer.find(ContainerIdentity("u", "c"), RESOURCE, ["a", "b"])
    assert found is not None
    assert found.functions == ("g",)
    assert known != newer


def test_those_of_pods_that_are_gone_can_be_dropped() -> None:
    known = Approvals().with_([approval("u"), approval("v")])
    assert known.pods == {"u", "v"}
    assert known.without_pods({"u", "w"}) == Approvals().with_([approval("v")])


def test_of_too_many_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_APPROVALS", 2)
    known = Approvals().with_([approval("1"), approval("2")])
    known = known.with_([approval("1")]).with_([approval("3")])
    assert known == Approvals().with_([approval("1"), approval("3")])


def test_they_outlive_a_process() -> None:
    known = Approvals().with_([approval("1"), approval("2", "x", "d")])
    assert decode(known.encode()) == known
    assert decode(Approvals().encode()) == Approvals()


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'[{"podUid": 1}]', b"\xff", b"[" * 100_000])
def test_a_file_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(BrokenApprovals, match="no approvals can be read"):
        decode(data)


def test_approvals_are_no_other_thing() -> None:
    assert Approvals() != 1
