import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.devices.damping import RECOVERING, Damping, Health, damp
from services.devices.model import Device, Problem
from services.devices.resources import AdvertisedResources
from tests.services.cards import BAD

ID = "dfl-port.0"
THREE = Damping(good_scans=3)


def tree_of(*devices: Device) -> AdvertisedResources:
    resources: dict[str, dict[str, Device]] = {}
    for device in devices:
        resources.setdefault(device.resource, {})[device.id] = device
    return AdvertisedResources(resources, ())


def device(key: str = ID, *problems: Problem, resource: str = "fpga.intel.com/af-x") -> Device:
    return Device(id=key, resource=resource, reasons=problems)


def told(scans: str, damping: Damping = THREE, spacing: float = 1.0) -> str:
    """What the kubelet is told of one device: `+` healthy, `-` unhealthy, a blank for not there."""
    health, answer = Health(), ""
    for index, scan in enumerate(scans):
        tree = tree_of() if scan == " " else tree_of(device(ID, *([BAD] if scan == "-" else [])))
        damped, health = damp(tree, health, damping, now=index * spacing)
        found = list(damped.devices())
        answer += " " if not found else "+" if found[0].healthy else "-"
    return answer


@pytest.mark.parametrize(
    ("scans", "answers"),
    [
        ("+++++", "+++++"),
        ("+-+++", "+---+"),
        ("+-++-+++", "+------+"),
        ("+---+++-+++", "+-----+---+"),
        ("---+++", "---+++"),  # never was healthy: nothing to prove
        ("--+-+++", "--+---+"),
        ("+- +", "+- +"),  # vanished: forgotten
    ],
)
def test_a_device_is_trusted_again_after_three_good_scans(scans: str, answers: str) -> None:
    assert told(scans) == answers


def test_scans_in_a_burst_count_as_one() -> None:
    burst = Damping(good_scans=3, spacing=2.0)
    assert told("+-++++++", burst, spacing=0.1) == "+-------"
    assert told("+-++++++", burst, spacing=1.0) == "+-----++"
    assert told("+-++++++", burst, spacing=2.0) == "+---++++"
    assert told("+-+++", Damping(good_scans=2, spacing=1.0), spacing=0) == "+----"
    assert told("+-+++", Damping(good_scans=2, spacing=4.0), spacing=-5) == "+--++"  # set back


def test_a_device_that_is_held_back_says_why_and_keeps_the_rest() -> None:
    good, other = device(), device("dfl-port.1")
    health = Health()
    for now, tree in enumerate((tree_of(good, other), tree_of(device(ID, BAD), other))):
        damped, health = damp(tree, health, THREE, now=now)
        assert damped is tree, "there is nothing to hold back"
    damped, _ = damp(tree_of(good, other), health, THREE, now=2)
    devices = damped.resources["fpga.intel.com/af-x"]
    assert devices["dfl-port.1"] is other
    (reason,) = devices[ID].reasons
    assert (devices[ID].healthy, reason.reason) == (False, RECOVERING)
    assert "3 good scans in a row" in reason.message


@given(st.text(alphabet="+- ", max_size=40), st.integers(1, 5), st.floats(0, 10))
def test_recovery_is_always_possible(scans: str, good_scans: int, spacing: float) -> None:
    end = "+" * (good_scans + 1)
    answers = told(scans + end, Damping(good_scans, spacing), spacing=spacing * 1.01 + 0.1)
    assert answers.endswith("+")
    assert all(answer != "+" for scan, answer in zip(scans, answers, strict=False) if scan == "-")
