"""Where the webhook's mappings come from: a folder, or the API server."""

from collections.abc import Mapping
from typing import Final, NoReturn, Protocol

from services.mappings.folder import FolderSource
from services.mappings.index import MappingIndex
from services.process.errors import InvalidSettings
from webhook.settings import WebhookSettings

WATCH_SECONDS: Final = 30.0
"""How long a watch may last: a connection that falls silent gives wrong answers for as long, and
what a webhook asks of an API server is little."""
WATCH_SHARE: Final = 0.5
"""How much of the staleness that is allowed a watch may last, at the most."""
GRACE_SHARE: Final = 0.25
"""How much of it a connection may be silent beyond that, and a pause may last, at the most."""
SHORTEST_PAUSE: Final = 15.0
"""To which pauses grow at least: four lists a minute, however fresh the mappings should be."""


class MappingSource(Protocol):
    """Mappings that are kept up to date.

    Attributes:
        index: What serves; replaced as a whole when they change.
        loaded: Whether there was a first snapshot.
    """

    index: MappingIndex
    loaded: bool

    @property
    def age(self) -> float:
        """Seconds since what serves was last known to be the newest."""

    @property
    def problem(self) -> str:
        """Why it isn't kept up to date now; empty if it is."""

    @property
    def counts(self) -> Mapping[str, int]:
        """How many mappings of each kind can be used."""

    @property
    def rejected(self) -> int:
        """How many can't."""

    @property
    def watch_failures(self) -> Mapping[str, int]:
        """How many lists and watches of each kind have failed; empty for a folder."""

    def load(self) -> None:
        """Does what the start needs; raises an `AccelbindError` if that can't be done."""

    async def follow(self) -> NoReturn:
        """Keeps up with changes until cancelled."""


def choose_source(settings: WebhookSettings) -> MappingSource:
    """The source that the settings, or else the surroundings, name.

    Raises:
        InvalidSettings: Neither do.
        ClusterError: What says how to reach the API server can't be used.
    """
    if settings.mappings is not None:
        return FolderSource(settings.mappings)
    # The client costs memory that a webhook over a folder needn't spend.
    from services.kube.config import load_config  # noqa: PLC0415 - the same
    from services.kube.connection import connector  # noqa: PLC0415 - the same
    from services.kube.list_watch import WatchTimeouts  # noqa: PLC0415 - the above
    from services.mappings.source import ApiServerSource  # noqa: PLC0415 - the same

    if load_config(settings.kubeconfig) is None:
        raise InvalidSettings(
            "--mappings or --kubeconfig is required: a folder with AcceleratorFunctions and"
            " FpgaRegions as YAML, or how to reach the API server that has them (a pod with a"
            " service account needs neither)"
        )
    pace = WatchTimeouts(watch=WATCH_SECONDS)
    if (longest := settings.max_staleness) is not None:
        # A quiet server is to be heard of more often than it may be silent.
        pace = WatchTimeouts(
            longest=min(pace.longest, max(SHORTEST_PAUSE, longest * GRACE_SHARE)),
            watch=min(pace.watch, longest * WATCH_SHARE),
            grace=min(pace.grace, longest * GRACE_SHARE),
        )
    return ApiServerSource(connector(settings.kubeconfig), pace=pace)


def staleness(source: MappingSource, longest: float | None) -> str:
    """What is wrong with a source, for `/readyz`; empty if nothing is.

    Args:
        source: The source.
        longest: The most seconds that what serves may be old, if that is bounded.
    """
    because = f" ({source.problem})" if source.problem else ""
    if not source.loaded:
        return f"mappings not loaded{because}"
    if longest is not None and source.age > longest:
        return f"mappings are {source.age:.0f} s old, which is over {longest:g} s{because}"
    return ""
