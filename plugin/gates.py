"""What is asked before a container starts, by the node's mode and the plugin's settings.

In mode region always: a container's function is its own to name, but not to be trusted with. In
modes regiondevel and af where mappings are enforced; `auto` leaves that where nothing says how to
reach an API server, since then there is nobody to ask at all.
"""

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol

from plugin.distrust import lasting_folder
from plugin.settings import PluginSettings, Programming
from services.containers.approval_file import ApprovalFile
from services.containers.claims import PodSource, StartClaims
from services.containers.enforce import Enforce, is_enforced
from services.containers.hook_starts import HookStarts
from services.devices.model import Inventory, PluginMode
from services.kube.events import EventRecord
from services.kubelet.sockets import checkpoint_file, plugins_folder
from services.node.cdi_publisher import CdiPublisher
from services.node.discovery import Discovery
from services.node.start_gate import (
    FunctionGate,
    HookGate,
    MappingGate,
    RegionGate,
    RegionsNow,
    StartGate,
    regions_now,
)
from services.process.blocking import BlockingCalls
from services.process.errors import HardwareError, InvalidSettings
from services.programming.ioctls import DriverCalls

if TYPE_CHECKING:
    from plugin.hook_server import HookServer
    from services.node.regions import RegionProgramming
    from services.programming.programmer import Programmer


HOOK_SOCKET: Final = "hook.sock"
"""Where the OCI hook asks, in `--state-dir`."""


class Counts(Protocol):
    """What is counted of starts."""

    def programmed(self, interface_id: str, function: str, seconds: float) -> None:
        """A function was programmed into a region."""

    def programming_ended(self, outcome: str) -> None:
        """A region was made ready for a container, or couldn't be."""

    def hooked(self, outcome: str) -> None:
        """A call of the OCI hook was answered, or was found missing."""


def is_hooked(options: PluginSettings, mode: PluginMode) -> bool:
    """Tell whether an OCI hook has the functions programmed in a mode."""
    return mode is PluginMode.REGION and options.programming is Programming.OCI_HOOK


class Gates:
    """Makes a mode's gate; what all gates share is here.

    Args:
        options: What the process has to know.
        pods: The API server; None where nothing says how to reach it.
        scan: Reads the cards as they are, those that are worked on too.
        counts: What to count programming with.
        calls: Makes the calls that may hang.
        tell: Takes what is to be written as Events.
        driver_calls: Makes the ioctls of the cards' drivers.
    """

    def __init__(
        self,
        options: PluginSettings,
        *,
        pods: PodSource | None,
        scan: Callable[[], Inventory],
        counts: Counts,
        calls: BlockingCalls,
        tell: Callable[[EventRecord], None],
        driver_calls: DriverCalls,
    ) -> None:
        self._options = options
        self._driver_calls = driver_calls
        self._pods = pods
        self._scan = scan
        self._counts = counts
        self._calls = calls
        self._tell = tell
        self._starts = HookStarts(time.monotonic)
        self._approvals = ApprovalFile(options.state_dir / "approvals.json", calls)

    def of(
        self, mode: PluginMode, discovery: Discovery, cdi: CdiPublisher | None = None
    ) -> StartGate | None:
        """What the kubelet has to ask in a mode; None if it need not.

        Args:
            mode: The mode.
            discovery: What looks at the cards in it.
            cdi: What keeps the CDI file, which announces the OCI hook.
        """
        enforced = self._is_enforced(mode)
        if mode is not PluginMode.REGION:
            return MappingGate(self._claims(enforced=True), mode) if enforced else None
        claims = self._claims(enforced=enforced)
        if self._options.programming is Programming.PRESTART:
            return RegionGate(claims, self._work(discovery), record_event=self._tell)
        if self._options.programming is Programming.OCI_HOOK:
            if cdi is None:
                raise InvalidSettings("--programming=oci-hook needs --cdi-dir")
            return HookGate(
                claims,
                require_cdi=cdi.require,
                starts=self._starts,
                on_missing=lambda: self._counts.hooked("missing"),
                record_event=self._tell,
            )
        return FunctionGate(
            claims, node=self._options.node_name, read_regions=self._regions_reader()
        )

    def hook_server(self, mode: PluginMode, discovery: Discovery) -> "HookServer | None":
        """What answers the OCI hook in a mode; None if it isn't announced.

        Args:
            mode: The mode.
            discovery: What looks at the cards in it.
        """
        options = self._options
        if not is_hooked(options, mode):
            return None
        # Only who has a hook pays for it.
        from plugin.hook_server import HookServer  # noqa: PLC0415
        from services.programming.regions import Region, regions_of  # noqa: PLC0415

        def regions() -> dict[str, Region]:
            if discovery.inventory is None:
                raise HardwareError("the cards have not been read yet: try again in a moment")
            return regions_of(discovery.inventory)

        claims = self._claims(enforced=self._is_enforced(mode))
        return HookServer(
            options.state_dir / HOOK_SOCKET,
            checkpoint=checkpoint_file(options.kubelet_dir),
            regions=regions,
            gate=RegionGate(claims, self._work(discovery), record_event=self._tell),
            calls=self._calls,
            counted=self._counts.hooked,
            called=self._starts.confirm,
        )

    def _is_enforced(self, mode: PluginMode) -> bool:
        enforce = self._options.enforce_mappings
        if enforce is Enforce.AUTO and self._pods is None:
            return False
        return is_enforced(enforce, mode)

    def _claims(self, *, enforced: bool) -> StartClaims:
        options = self._options
        return StartClaims(
            kubelet_dir=options.kubelet_dir,
            pod_logs_dir=options.pod_logs_dir,
            node=options.node_name,
            pods=self._pods,
            enforced=enforced,
            approvals=self._approvals,
            calls=self._calls,
        )

    def _regions_reader(self) -> Callable[[float], Awaitable[RegionsNow]]:
        programmer = self._programmer()

        def read() -> RegionsNow:
            inventory = self._scan()
            return regions_now(inventory, programmer.recorded(inventory))

        what = f"reading the cards below {self._options.root}"
        return lambda seconds: self._calls.run("scan", read, timeout=seconds, what=what)

    def _programmer(self) -> "Programmer":
        # Only mode region pays for it: a fifth of the time that a plugin takes to start.
        from services.programming.clock_registers import ClockPolicy  # noqa: PLC0415 - see above
        from services.programming.programmer import Programmer  # noqa: PLC0415 - see above

        options = self._options
        return Programmer(
            options.root,
            options.state_dir,
            lasting=lasting_folder(plugins_folder(options.kubelet_dir)),
            look=self._scan,
            clock=ClockPolicy.TRY,
            calls=self._driver_calls,
        )

    def _work(self, discovery: Discovery) -> "RegionProgramming":
        # Only nodes that program pay for it, see `_programmer`.
        from services.bitstreams.storage import BitstreamStorage  # noqa: PLC0415 - see above
        from services.node.regions import RegionProgramming  # noqa: PLC0415 - see above

        options = self._options
        return RegionProgramming(
            programmer=self._programmer(),
            storage=BitstreamStorage(options.bitstreams),
            calls=self._calls,
            scan=self._scan,
            node=options.node_name,
            metrics=self._counts,
            on_done=discovery.look_now,
        )
