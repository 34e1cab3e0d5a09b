"""Whether a container can have an IOMMU group."""

import pytest

from services.devices.vfio import Group, GroupMember, group_problem

ONE, TWO, ROOT = "0000:b1:00.5", "0000:b1:00.6", "0000:b0:02.0"


@pytest.mark.parametrize(
    ("group", "name", "others", "driver", "reason"),
    [
        ("7", "", [], "vfio-pci", ""),
        ("7", "DMAR", [], "mlx5_vfio_pci", ""),
        ("7", "", [GroupMember(ROOT, "060400", "pcieport")], "vfio-pci", ""),
        ("7", "", [GroupMember(TWO, "020000", "vfio-pci")], "vfio-pci", ""),
        ("7", "", [GroupMember(TWO, "020000", "")], "vfio-pci", ""),
        ("7", "", [GroupMember(TWO, "020000", "pci-stub")], "vfio-pci", ""),
        ("7", "", [GroupMember(TWO, "020000", "i40e")], "vfio-pci", "vfio-not-viable"),
        ("7", "", [GroupMember(ROOT, "060000", "x")], "vfio-pci", "vfio-not-viable"),
        ("7", "", [], "", "vfio-not-bound"),
        ("7", "", [], "dfl-pci", "vfio-not-bound"),
        ("7", "vfio-noiommu", [], "vfio-pci", "vfio-no-group"),
        ("", "", [], "vfio-pci", "vfio-no-group"),
    ],
)
def test_a_group_is_given_if_vfio_opens_it(
    group: str, name: str, others: list[GroupMember], driver: str, reason: str
) -> None:
    members = (GroupMember(ONE, "120000", driver), *others)
    problem = group_problem(Group(group, name, members), [ONE])
    assert (problem.code if problem else "") == reason
    assert problem is None or (ONE if reason == "vfio-not-bound" else "") in problem.text
