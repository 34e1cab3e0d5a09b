"""The CDI files of claims: what containers get with the devices of their claims.

There is a file for each claim, and a CDI device in it for each device of a request.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dra.wants import Kind, Want, require_present
from services.devices.allocation import allocate, resource_variable
from services.devices.cdi import ClaimDevice, claim_file, describe_claim
from services.devices.cdi_files import CdiFolder
from services.devices.dra import DraDevice
from services.devices.model import Device, DeviceNode
from services.node.node_check import require_numbers
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError

WRITE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Given:
    """What a container gets with a device of a request."""

    request: str
    device: str
    edits: ClaimDevice


class CdiClaimFiles:
    """The files of claims in a folder; `devices` returns the node's, by name."""

    def __init__(
        self,
        folder: Path,
        *,
        host_root: str,
        calls: BlockingCalls,
        devices: Callable[[], Mapping[str, DraDevice]],
        root: Path,
    ) -> None:
        self._folder = folder
        self._host_root = host_root
        self._calls = calls
        self._devices = devices
        self._root = root

    async def write(self, uid: str, wants: Sequence[Want]) -> tuple[Given, ...]:
        """Write the file of a claim; return what it gives containers.

        Raises:
            ExternalFailure: A device is gone, or the file can't be written.
            NotAllowed: Another device has a device's node now.
        """
        given = given_to(uid, wants, self._devices())
        require_numbers(self._root, (node for each in given for node in each.edits.nodes))
        edits = [each.edits for each in given]
        await self._replace(uid, describe_claim(edits, host_root=self._host_root))
        return given

    async def remove(self, uid: str) -> None:
        """Remove the file of a claim; it need not be there."""
        await self._replace(uid, b"")

    async def _replace(self, uid: str, content: bytes) -> None:
        folder = CdiFolder(self._folder, claim_file(uid))
        done = await self._calls.run(
            "cdi claims",  # one after the other: what was begun for a claim doesn't end after this
            lambda: folder.write(content),
            timeout=WRITE_SECONDS,
            what=f"writing CDI files below {self._folder}",
        )
        if done.error:
            raise HardwareError(done.error)


def given_to(
    uid: str, wants: Sequence[Want], devices: Mapping[str, DraDevice]
) -> tuple[Given, ...]:
    """What containers get with each device of a claim."""
    given = []
    for want in wants:
        present = require_present(want.devices, devices, want.who)
        chosen = {name: _device(want, each) for name, each in present.items()}
        by_id = {each.id: each for each in chosen.values()}
        # A container sees only one variable of a name: each device of a request has those of all.
        envs = dict(allocate(by_id, [*by_id]).envs)
        # If several requests have one resource, it is up to the runtime whose variable a container
        # sees. So each is also there with the request's name: ACCELBIND_VE_FIRST.
        if [each.resource for each in wants].count(want.resource) > 1:
            suffix = f"_{want.request.upper().replace('-', '_')}"
            envs |= {name + suffix: value for name, value in envs.items()}
        for name, device in chosen.items():
            # With the claim's UID: runtimes remember what a name means.
            edits = ClaimDevice(f"{uid}-{want.request}-{name}", device.nodes, tuple(envs.items()))
            given.append(Given(want.request, name, edits))
    return tuple(given)


def _device(want: Want, device: Device) -> Device:
    if want.kind is Kind.ADMIN:  # such a request may be for devices of several resources
        return replace(device, nodes=())
    if not device.type:  # a region's variable is named after what the claim has it for
        variable = resource_variable(want.resource), ",".join(device.pci_addresses)
        device = replace(device, envs=(variable,))
    if want.kind is Kind.DEVELOP:
        return replace(device, nodes=(*device.nodes, DeviceNode(device.id)))
    return device
