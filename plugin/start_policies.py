"""Chooses what is checked before a container starts, by the node's mode and the plugin's settings.

Mode region always has a policy: a container names its function, but is not trusted with it. Modes
regiondevel and af have one if mappings are enforced. `--enforce-mappings=auto` doesn't enforce them
if no API server is configured, since then no mapping can be read.
"""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from plugin.settings import PluginSettings, Programming
from services.containers.approvals import ApprovalFile
from services.containers.claims import PodSource, StartClaims
from services.containers.enforce import Enforce, is_enforced
from services.containers.hook_starts import HookStarts
from services.devices.model import Inventory, PluginMode
from services.kube.events import EventRecord
from services.kubelet.sockets import checkpoint_file, plugins_folder
from services.node.cdi_publisher import CdiPublisher
from services.node.node_mark import lasting_folder
from services.node.start_gate import (
    FunctionStartPolicy,
    HookStartPolicy,
    MappingStartPolicy,
    RegionStartPolicy,
    StartPolicy,
)
from services.node.state import NodeState
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError, InvalidSettings
from services.programming.ioctls import DriverCalls

if TYPE_CHECKING:
    from plugin.hook_server import HookServer
    from services.node.regions import RegionProgramming
    from services.programming.assignment import Region
    from services.programming.programmer import Programmer


HOOK_SOCKET: Final = "hook.sock"
"""The socket for the OCI hook, in `--state-dir`."""


class StartMetrics(Protocol):
    """Counts starts."""

    def programmed(self, interface_id: str, function: str, seconds: float) -> None:
        """A function was programmed into a region."""

    def programming_ended(self, outcome: str) -> None:
        """A region was made ready for a container, or couldn't be."""

    def hooked(self, outcome: str) -> None:
        """A call of the OCI hook was answered, or was found missing."""

    def hook_missing(self) -> None:
        """A start was refused because the OCI hook was or would not be called."""


def is_hooked(settings: PluginSettings, mode: PluginMode) -> bool:
    """Whether an OCI hook has the functions programmed in a mode."""
    return mode is PluginMode.REGION and settings.programming is Programming.OCI_HOOK


class StartPolicies:
    """Creates the policy of a mode.

    Args:
        settings: The plugin's settings.
        state: The node's state.
        pods: The API server; None if none is configured.
        scan: Reads the cards as they are, also while they are being programmed.
        metrics: Counts programming and hook calls.
        calls: Makes the calls that may hang.
        record_event: Writes an Event.
        driver_calls: Makes the ioctls of the cards' drivers.
    """

    def __init__(
        self,
        settings: PluginSettings,
        state: NodeState,
        *,
        pods: PodSource | None,
        scan: Callable[[], Inventory],
        metrics: StartMetrics,
        calls: BlockingCalls,
        record_event: Callable[[EventRecord], None],
        driver_calls: DriverCalls,
    ) -> None:
        self._settings = settings
        self._state = state
        self._pods = pods
        self._scan = scan
        self._metrics = metrics
        self._calls = calls
        self._record_event = record_event
        self._driver_calls = driver_calls
        self._starts = HookStarts(time.monotonic)
        self._approvals = ApprovalFile(settings.state_dir / "approvals.json", calls)

    def for_mode(self, mode: PluginMode, cdi: CdiPublisher | None = None) -> StartPolicy | None:
        """The policy of a mode; None if the kubelet need not ask before a start.

        Args:
            mode: The mode.
            cdi: Writes the CDI file, which announces the OCI hook.
        """
        if mode is not PluginMode.REGION:
            enforced = self._is_enforced(mode)
            return MappingStartPolicy(self._claims(mode)) if enforced else None
        claims = self._claims(mode)
        if self._settings.programming is Programming.PRESTART:
            return self._region_policy(claims)
        if self._settings.programming is Programming.OCI_HOOK:
            if cdi is None:
                raise InvalidSettings("--programming=oci-hook needs --cdi-dir")
            return HookStartPolicy(
                claims,
                require_cdi=cdi.require,
                starts=self._starts,
                on_missing=self._metrics.hook_missing,
                record_event=self._record_event,
            )
        return FunctionStartPolicy(claims, self._region_programming())

    def hook_server(self, mode: PluginMode) -> "HookServer | None":
        """What answers the OCI hook in a mode; None if no hook is announced."""
        settings = self._settings
        if not is_hooked(settings, mode):
            return None
        # Only nodes with a hook import it.
        from plugin.hook_server import HookServer  # noqa: PLC0415

        return HookServer(
            settings.state_dir / HOOK_SOCKET,
            checkpoint=checkpoint_file(settings.kubelet_dir),
            regions=self._last_regions,
            policy=self._region_policy(self._claims(mode)),
            calls=self._calls,
            count=self._metrics.hooked,
            on_call=self._starts.confirm,
        )

    def _last_regions(self) -> "Mapping[str, Region]":
        """The node's regions as the last scan found them."""
        from services.programming.assignment import regions_of  # noqa: PLC0415 - as `_programmer`

        if self._state.inventory is None:
            raise HardwareError("the cards have not been read yet: try again in a moment")
        return regions_of(self._state.inventory)

    def _is_enforced(self, mode: PluginMode) -> bool:
        enforce = self._settings.enforce_mappings
        if enforce is Enforce.AUTO and self._pods is None:
            return False
        return is_enforced(enforce, mode)

    def _claims(self, mode: PluginMode) -> StartClaims:
        settings = self._settings
        return StartClaims(
            mode,
            kubelet_dir=settings.kubelet_dir,
            pod_logs_dir=settings.pod_logs_dir,
            node=settings.node_name,
            pods=self._pods,
            enforced=self._is_enforced(mode),
            approvals=self._approvals,
            calls=self._calls,
        )

    def _region_policy(self, claims: StartClaims) -> RegionStartPolicy:
        return RegionStartPolicy(
            claims, self._region_programming(), record_event=self._record_event
        )

    def _programmer(self) -> "Programmer":
        # Only mode region imports it: that takes a fifth of the time of a plugin's start.
        from services.programming.clock_registers import ClockPolicy  # noqa: PLC0415 - see above
        from services.programming.programmer import Programmer  # noqa: PLC0415 - see above

        settings = self._settings
        return Programmer(
            settings.root,
            settings.state_dir,
            durable_dir=lasting_folder(plugins_folder(settings.kubelet_dir)),
            scan_cards=self._scan,
            clock=ClockPolicy.TRY,
            calls=self._driver_calls,
        )

    def _region_programming(self) -> "RegionProgramming":
        # Only mode region imports it, see `_programmer`.
        from services.bitstreams.storage import BitstreamStorage  # noqa: PLC0415 - see above
        from services.node.regions import RegionProgramming  # noqa: PLC0415 - see above

        settings = self._settings
        return RegionProgramming(
            programmer=self._programmer(),
            storage=BitstreamStorage(settings.bitstreams),
            calls=self._calls,
            scan=self._scan,
            node=settings.node_name,
            metrics=self._metrics,
            on_done=self._state.request_rescan,
        )
