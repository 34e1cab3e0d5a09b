"""The rule by which Node Feature Discovery labels nodes with cards: `make docs` writes it.

The PCI ids are those of the kernel's in-tree driver (drivers/fpga/dfl-pci.c). Intel's own OPAE
driver serves the older of these cards.
"""

from typing import Final, NamedTuple

PATH: Final = "manifests/components/nfd/rule.yaml"
LABEL: Final = "accelbind.dev/plugin"


class CardFamily(NamedTuple):
    """Cards with one name.

    Args:
        vendor: PCI vendor id, four hex digits in lower case, as NFD writes them.
        devices: PCI device ids of the physical function and of virtual functions.
        name: What people call the cards.
        subdevices: PCI subsystem device ids; empty where the device id is enough.
    """

    vendor: str
    devices: tuple[str, ...]
    name: str
    subdevices: tuple[str, ...] = ()


FAMILIES: Final = (
    CardFamily("8086", ("bcbd", "bcbf"), "integrated-5x"),
    CardFamily("8086", ("bcc0", "bcc1"), "integrated-6x"),
    CardFamily("8086", ("09c4", "09c5"), "pac-arria10"),
    CardFamily("8086", ("0b30",), "pac-n3000"),
    CardFamily("8086", ("0b2b", "0b2c"), "pac-d5005"),
    CardFamily("8086", ("bcce", "bccf"), "ofs", ("138d", "1770", "1771", "17d4")),
    CardFamily("1c2c", ("1000", "1001"), "silicom-n501x"),
)
"""Cards whose drivers accelbind reads."""


def page() -> str:
    """The NodeFeatureRule."""
    rules = "".join(_rule(family) for family in FAMILIES)
    return f"""\
# Made by `make docs` from tools/docs/node_rule.py.
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata:
  name: accelbind
spec:
  rules:
{rules}"""


def _rule(family: CardFamily) -> str:
    subsystem = ""
    if family.subdevices:
        subsystem = f"\n            subsystem_device: {_one_of(family.subdevices)}"
    return f"""\
    - name: accelbind-{family.name}
      labels:
        {LABEL}: "true"
      matchFeatures:
        - feature: pci.device
          matchExpressions:
            vendor: {_one_of((family.vendor,))}
            device: {_one_of(family.devices)}{subsystem}
"""


def _one_of(ids: tuple[str, ...]) -> str:
    return "{op: In, value: [" + ", ".join(f'"{each}"' for each in ids) + "]}"
