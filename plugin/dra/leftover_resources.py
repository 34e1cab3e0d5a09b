"""Resources that an ended device plugin has left in the kubelet, withdrawn as a plugin would.

Before the kubelet starts a container that requests a resource which it knows from a device plugin,
it asks the endpoint that was registered last, also where a claim serves the request. If that
endpoint wanted `PreStartContainer`, or was forgotten while pods have devices of it, no container of
a claim starts (`pkg/kubelet/cm/devicemanager/manager.go`, `callPreStartContainerIfNeeded`). So each
such resource is registered again, without devices and without that option:

    left ──registered, the empty list is sent──▶ withdrawn ──no pod has devices of it──▶ ended
      ▲                                                                                   │
      └──────────────────────────── the kubelet restarts ◀────────────────────────────────┘

A resource of which another plugin offers healthy devices is left to that plugin.
"""

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import structlog

from plugin.settings import PluginSettings
from services.containers.holders import FPGA_RESOURCES
from services.devices.model import Device
from services.kubelet.checkpoint import KubeletFiles
from services.kubelet.pod_resources import served_resources
from services.kubelet.sockets import Identity, pod_resources_socket
from services.node.device_list import DeviceListServer
from services.node.kubelet_folder import KubeletFolder
from services.node.registration import ResourceSet
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError, KubeletError
from services.process.outage import Outage

CHECK_SECONDS: Final = 2.0
"""Between two checks of what the kubelet counts."""

ANSWER_SECONDS: Final = 2.0

log = structlog.get_logger(component="dra")


class LeftoverResources:
    """Withdraws what the kubelet still counts of an ended plugin.

    In a domain of device types, resources of which `state` has no devices may be served by plugins
    of others.
    """

    def __init__(
        self,
        settings: PluginSettings,
        folder: KubeletFolder,
        calls: BlockingCalls,
        state: NodeState,
    ) -> None:
        self._folder = folder
        self._pod_resources = pod_resources_socket(settings.kubelet_dir)
        self._files = KubeletFiles(settings.kubelet_dir, settings.pod_logs_dir, calls)
        self._state = state
        self._left: frozenset[str] = frozenset()
        self._withdrawn: dict[str, Identity | None] = {}
        """Resources that are withdrawn, and from which kubelet."""
        self._set = ResourceSet(self, folder, self)
        self._outage = Outage(
            log,
            "what the kubelet still counts of the device plugin is unknown",
            "what the kubelet still counts of the device plugin is known",
        )

    # As `services.node.device_list`

    def note_sent(
        self,
        resource: str,
        *,
        is_empty: bool,  # noqa: ARG002 - no other list is sent
    ) -> None:
        """Note that the kubelet was sent an empty list."""
        self._withdrawn[resource] = self._folder.kubelet

    def resources(self) -> Collection[str]:
        """The resources that are left, in the order of their names."""
        return sorted(self._left)

    # What runs

    async def withdraw_forever(self) -> None:
        """Withdraw what is left until cancelled."""
        async with self._set.serving():
            while True:
                await self.check()
                self._set.offer({})
                await asyncio.sleep(CHECK_SECONDS)

    def resend(self) -> None:
        """Have the kubelet write its checkpoint, if a resource is registered."""
        self._set.resend()

    def problems(self) -> list[str]:
        """Why resources that the kubelet still counts are not withdrawn."""
        registered = self._set.registrations.items()
        errors = [f"{name}: {each.error}" for name, each in registered if each.error]
        return [*filter(None, [self._outage.reason]), *errors]

    async def check(self) -> None:
        """See what is left."""
        try:
            before, self._left = self._left, await self._find()
        except (KubeletError, HardwareError) as error:
            missing = isinstance(error.__cause__, FileNotFoundError)  # no plugin ever served here
            self._outage.update("" if missing else str(error))
        else:
            self._outage.ended()
            for each in sorted(self._left - before):
                log.info("the kubelet counts a resource of an ended device plugin", resource=each)

    async def _find(self) -> frozenset[str]:
        counted, kubelet = await self._files.counted(), self._folder.kubelet
        withdrawn = {name for name, whose in self._withdrawn.items() if whose == kubelet}
        left = counted.held | (counted.registered - withdrawn)
        left = frozenset(filter(self._is_ours, left))
        if left == self._left:
            return left
        # Those of a plugin that has just ended count until the kubelet has noticed that. A stream
        # of ours that ends would end in the kubelet what has been registered since.
        served = await served_resources(self._pod_resources, seconds=ANSWER_SECONDS)
        return (left - served) | (self._left & served)

    def _is_ours(self, resource: str) -> bool:
        return resource.startswith(FPGA_RESOURCES) or resource in self._state.ledger.offer.resources

    # As `services.node.registration` says

    def create_server(
        self, resource: str, devices: Mapping[str, Device], path: Path
    ) -> DeviceListServer:
        """A server that sends the empty list; without devices the kubelet calls nothing else."""
        return DeviceListServer(resource, devices, path, self)  # type: ignore[abstract]
