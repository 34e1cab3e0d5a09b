"""Device types and trees of sysfs for tests."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.devices.hardware.sysfs import Sysfs
from services.devices.provider import Found
from services.devices.types.model import DeviceType
from services.devices.types.parsing import parse
from services.devices.types.provider import DeviceTypes
from services.process.blocking import BlockingCalls

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
        self._held: tuple[tuple[str, str], ...] = ()
        self.provider = DeviceTypes(
            folder,
            root,
            BlockingCalls(),
            holders=self._holders,
            # Files hang only where a test says so; a busy machine may stop a thread for a second.
            patience=20.0,
            files=files,
        )

    async def _holders(self) -> tuple[tuple[str, str], ...]:
        return self._held

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def scan(self, *held: tuple[str, str]) -> Found:
        """What it finds while containers have some devices, by resource and id."""
        self._held = held
        return asyncio.run(self.provider.devices())

    def reasons(self) -> dict[str, list[str]]:
        """The reasons of each device, by id."""
        return {each.id: [reason.reason for reason in each.reasons] for each in self.scan().devices}
