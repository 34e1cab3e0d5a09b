"""Chooses what is checked before a container starts, by the node's mode and the plugin's settings.

Mode region always has a policy: a container names its function, but is not trusted with it. Modes
regiondevel and af have one if mappings are enforced. `--enforce-mappings=auto` doesn't enforce them
if no API server is configured, since then no mapping can be read.
"""

import time
from typing import Final

from plugin.hook_server import HookServer
from plugin.node_parts import NodeParts
from plugin.settings import PluginSettings, Programming
from services.bitstreams.storage import BitstreamStorage
from services.containers.approvals import Approvals
from services.containers.claims import StartClaims
from services.containers.hook_starts import HookStarts
from services.containers.permission import Enforce, is_enforced
from services.devices.model import PluginMode
from services.kubelet.sockets import checkpoint_file
from services.node.cdi_publisher import CdiPublisher
from services.node.regions import RegionProgramming
from services.node.start_gate import (
    FunctionStartPolicy,
    HookStartPolicy,
    MappingStartPolicy,
    RegionStartPolicy,
    StartPolicy,
)
from services.process.errors import InvalidSettings
from services.programming.programmer import Programmer

HOOK_SOCKET: Final = "hook.sock"
"""The socket for the OCI hook, in `--state-dir`."""


def is_hooked(settings: PluginSettings, mode: PluginMode) -> bool:
    """Whether an OCI hook has the functions programmed in a mode."""
    return mode is PluginMode.REGION and settings.programming is Programming.OCI_HOOK


class StartPolicies:
    """Creates the policy of a mode."""

    def __init__(self, parts: NodeParts) -> None:
        self._parts = parts
        self._settings = parts.settings
        self._starts = HookStarts(time.monotonic)
        self._approvals = Approvals()

    def for_mode(self, mode: PluginMode, cdi: CdiPublisher | None = None) -> StartPolicy | None:
        """The policy of a mode; None if the kubelet need not ask before a start."""
        claims = self._claims(mode)
        if mode is not PluginMode.REGION:
            return MappingStartPolicy(claims) if self._is_enforced(mode) else None
        if self._settings.programming is Programming.PRESTART:
            return self._region_policy(claims)
        if self._settings.programming is Programming.OCI_HOOK:
            if cdi is None:
                raise InvalidSettings("--programming=oci-hook needs --cdi-dir")
            return HookStartPolicy(
                claims,
                require_cdi=cdi.require,
                starts=self._starts,
                on_missing=self._parts.metrics.hook_calls.labels("missing").inc,
                record_event=self._parts.record_event,
            )
        return FunctionStartPolicy(
            claims, self._region_programming(), record_event=self._parts.record_event
        )

    def hook_server(self, mode: PluginMode) -> HookServer | None:
        """What answers the OCI hook in a mode; None if no hook is announced."""
        settings, hook_calls = self._settings, self._parts.metrics.hook_calls
        if not is_hooked(settings, mode):
            return None
        return HookServer(
            settings.state_dir / HOOK_SOCKET,
            checkpoint=checkpoint_file(settings.kubelet_dir),
            policy=self._region_policy(self._claims(mode)),
            calls=self._parts.calls,
            count=lambda outcome: hook_calls.labels(outcome).inc(),
            on_call=self._starts.called,
        )

    def _is_enforced(self, mode: PluginMode) -> bool:
        enforce = self._settings.enforce_mappings
        if enforce is Enforce.AUTO and self._parts.pods is None:
            return False
        return is_enforced(enforce, mode)

    def _claims(self, mode: PluginMode) -> StartClaims:
        settings = self._settings
        return StartClaims(
            mode,
            kubelet_dir=settings.kubelet_dir,
            pod_logs_dir=settings.pod_logs_dir,
            node=settings.node_name,
            pods=self._parts.pods,
            enforced=self._is_enforced(mode),
            approvals=self._approvals,
            calls=self._parts.calls,
        )

    def _region_policy(self, claims: StartClaims) -> RegionStartPolicy:
        record_event = self._parts.record_event
        return RegionStartPolicy(claims, self._region_programming(), record_event=record_event)

    def _region_programming(self) -> RegionProgramming:
        parts, metrics = self._parts, self._parts.metrics
        return RegionProgramming(
            programmer=self._programmer(),
            storage=BitstreamStorage(self._settings.bitstreams),
            calls=parts.calls,
            scan=parts.scanner.scan_sync,
            node=self._settings.node_name,
            count=lambda outcome: metrics.programmings.labels(outcome).inc(),
            observe_seconds=lambda interface_id, function, seconds: (
                metrics.programming_seconds.labels(interface_id, function).observe(seconds)
            ),
            on_done=parts.state.request_rescan,
        )

    def _programmer(self) -> Programmer:
        settings = self._settings
        return Programmer(
            settings.root,
            settings.state_dir,
            scan_cards=self._parts.scanner.scan_sync,
            clocks=settings.user_clock,
            calls=self._parts.driver_calls,
        )
