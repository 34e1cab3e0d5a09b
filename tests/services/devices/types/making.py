"""Device types and trees of sysfs for tests."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.devices.hardware.sysfs import Sysfs
from services.devices.model import Device
from services.devices.resources import AdvertisedResources
from services.devices.types.model import DeviceType
from services.devices.types.parsing import parse
from services.devices.types.provider import DeviceTypes
from services.node.ledger import Ledger, Rules, World, step
from services.process.blocking import BlockingCalls
from services.process.problem import Problem

ENGINE = """\
apiVersion: accelbind.dev/v1alpha1
kind: DeviceType
metadata: {name: vector-engine}
spec:
  match: [{pci: {vendor: ["1bcf"], device: ["001c"]}}]
  attributes:
    - {name: state, file: "ve/ve*/ve_state", type: int}
    - {name: osState, file: "ve/ve*/os_state", type: int}
  health:
    - {attribute: state, equals: 1, reason: not-online}
    - {attribute: osState, equals: 0, reason: os-not-online}
  nodes: [{class: ve}]
  resource: {domain: device.accelbind.dev, name: ve}
  env: [{name: VE_NODE, attribute: numaNode}]
"""


def type_of(spec: dict[str, Any], name: str = "t") -> DeviceType:
    """A type with this spec, and a resource of its name."""
    return parse(document(spec, name))


def document(spec: dict[str, Any], name: str = "t") -> dict[str, Any]:
    resource = {"domain": "device.accelbind.dev", "name": name}
    return {
        "apiVersion": "accelbind.dev/v1alpha1",
        "kind": "DeviceType",
        "metadata": {"name": name},
        "spec": {"resource": resource} | spec,
    }


class Types:
    """A folder of types, served from a root."""

    def __init__(self, folder: Path, root: Path, files: Callable[[Path], Sysfs] = Sysfs) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ledger = Ledger(Rules(good_scans=1))
        self.provider = DeviceTypes(
            folder,
            root,
            BlockingCalls(),
            # Files hang only where a test says so; a busy machine may stop a thread for a second.
            patience=20.0,
            files=files,
        )

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def scan(self, *held: tuple[str, str]) -> "Found":
        """What it finds while containers have some devices, by resource and id."""
        read = asyncio.run(self.provider.read(held))
        self.ledger = step(self.ledger, World(holders={}, types=read), 0)
        return Found(self.ledger.types.devices, read.problems)

    def offer(self) -> AdvertisedResources:
        """What a node offers of it."""
        self.scan()
        return self.ledger.offer

    def reasons(self) -> dict[str, list[str]]:
        """The reasons of each device, by id."""
        return {each.id: [reason.code for reason in each.reasons] for each in self.scan().devices}


@dataclass(frozen=True)
class Found:
    """The devices of types before any is left out, and what is wrong with the types."""

    devices: tuple[Device, ...]
    problems: tuple[Problem, ...]
