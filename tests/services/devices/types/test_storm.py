"""Devices come, go, fall ill and hang while the types change: a model says what is offered."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.devices.hardware.sysfs import Sysfs
from services.devices.health import Reading
from services.process.errors import DeviceHung
from simulator.devices import DEVICES, DeviceTree, SimulatedDevice
from tests.services.devices.types.making import Types
from tests.support import REPOSITORY, soaking

SHIPPED = {
    path.stem: path.read_text()
    for path in (REPOSITORY / "manifests" / "device-types").glob("*.yaml")
}
ENGINES, RENDER = "nec-vector-engine", "gpu-render"
RIVAL = """\
apiVersion: accelbind.dev/v1alpha1
kind: DeviceType
metadata: {name: rival}
spec:
  match: [{class: {name: ve}}]
  resource: {domain: device.accelbind.dev, name: rival}
"""
"""Matches vector engines by another way than their own type."""

Offered = dict[str, tuple[str, str]]
"""By id: the type, and why it is unhealthy."""


@dataclass(slots=True)
class Plugged:
    kind: str
    device: SimulatedDevice
    is_ill: bool = False


class HangingFiles(Sysfs):
    """Files of which some hang, as `BlockingCalls` reports that."""

    def __init__(self, root: Path, hanging: set[str]) -> None:
        super().__init__(root)
        self._hanging = hanging

    def read(self, path: str) -> Reading:
        if path in self._hanging:
            raise DeviceHung("no answer within 1 s")
        return super().read(path)


class Storm(RuleBasedStateMachine):
    """A node, and a model of it that knows no sysfs."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="storm-"))
        self.tree = DeviceTree(self.folder / "root")
        self.hanging: set[str] = set()
        self.types = Types(
            self.folder / "types",
            self.tree.root,
            files=lambda root: HangingFiles(root, self.hanging),
        )
        self.slots: dict[int, Plugged] = {}
        self.served: set[str] = set()
        """Types whose file can be used."""
        self.shares = 1
        """Replicas of GPUs."""
        self.known: set[tuple[str, str]] = set()
        """Type and id of what was found to have a resource in the scan before."""

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    # What happens

    @rule(slot=st.integers(0, 5), kind=st.sampled_from(sorted(DEVICES)))
    def plug(self, slot: int, kind: str) -> None:
        if slot not in self.slots:
            self.slots[slot] = Plugged(kind, DEVICES[kind](self.tree, slot))

    @precondition(lambda self: self.slots)
    @rule(data=st.data())
    def unplug(self, data: st.DataObject) -> None:
        gone = self.slots.pop(data.draw(st.sampled_from(sorted(self.slots))))
        self.hanging.discard(f"/{gone.device.state}")
        gone.device.remove(self.tree)

    @precondition(lambda self: any(each.device.state for each in self.slots.values()))
    @rule(data=st.data(), what=st.sampled_from(["ill", "well", "hangs", "answers"]))
    def change(self, data: st.DataObject, what: str) -> None:
        slots = [slot for slot, each in sorted(self.slots.items()) if each.device.state]
        each = self.slots[data.draw(st.sampled_from(slots))]
        device, path = each.device, f"/{each.device.state}"
        if what == "hangs":
            self.hanging.add(path)
        elif what == "answers":
            self.hanging.discard(path)
        else:
            each.is_ill = what == "ill"
            self.tree.file(device.state, device.bad if each.is_ill else device.good)

    @rule(name=st.sampled_from([*sorted(SHIPPED), "rival"]), is_bent=st.booleans())
    def write_type(self, name: str, is_bent: bool) -> None:
        text = SHIPPED.get(name, RIVAL)
        self._write(name, text.replace("match:", "matches:") if is_bent else text)
        self.served = self.served - {name} if is_bent else self.served | {name}
        if name == RENDER:
            self.shares = 1

    @rule(replicas=st.integers(1, 3))
    def share(self, replicas: int) -> None:
        self._write(RENDER, f"{SHIPPED[RENDER]}  sharing: {{replicas: {replicas}}}\n")
        self.served.add(RENDER)
        self.shares = replicas

    def _write(self, name: str, text: str) -> None:
        self.types.write(f"{name}.yaml", text)

    @rule(name=st.sampled_from([*sorted(SHIPPED), "rival"]))
    def remove_type(self, name: str) -> None:
        (self.types.folder / f"{name}.yaml").unlink(missing_ok=True)
        self.served.discard(name)

    # What must be offered

    def _found(self) -> Offered:
        """The devices with a resource, before those that two types match are taken out."""
        found: dict[tuple[str, str], str] = {}
        for each in self.slots.values():
            kind, device = each.kind, each.device
            if kind == ENGINES and "rival" in self.served:
                found["rival", device.id] = ""
            if kind not in self.served:
                continue
            for device_id in self._ids(kind, device.id):
                if f"/{device.state}" not in self.hanging:
                    found[kind, device_id] = device.reason if each.is_ill else ""
                elif (kind, device_id) in self.known:
                    found[kind, device_id] = "device-hung"
        self.known = set(found)
        return {f"{kind} {device_id}": (kind, why) for (kind, device_id), why in found.items()}

    def _ids(self, kind: str, device_id: str) -> list[str]:
        if kind != RENDER or self.shares == 1:
            return [device_id]
        return [f"{device_id}-r{number}" for number in range(self.shares)]

    @invariant()
    def what_is_offered_is_what_the_model_says(self) -> None:
        found = self._found()
        expected = {
            key.partition(" ")[2]: offer
            for key, offer in found.items()
            if offer[0] not in (ENGINES, "rival")
            or sum(each.endswith(f" {key.partition(' ')[2]}") for each in found) == 1
        }
        self.types.scan()  # types that can't be used count after the second scan
        merged = self.types.offer()
        offered = {
            device.id: (device.type, device.reasons[0].code if device.reasons else "")
            for device in merged.devices()
        }
        assert offered == expected
        claimed = [each for each in merged.not_offered if each.reasons[0].code == "claimed-twice"]
        both = {key.partition(" ")[2] for key in found} - expected.keys()
        assert {each.id for each in claimed} == both


def _steps() -> dict[str, Any]:
    return (
        {"max_examples": 100, "stateful_step_count": 50}
        if soaking()
        else {"max_examples": 8, "stateful_step_count": 25}
    )


TestStorm = Storm.TestCase
TestStorm.settings = settings(deadline=None, **_steps())
TestStorm = pytest.mark.long(TestStorm)
