"""The source of the webhook's mappings: a folder or the API server."""

from typing import TYPE_CHECKING, Final, TypeAlias

from services.mappings.folder import FolderSource
from services.process.errors import InvalidSettings
from webhook.settings import WebhookSettings

if TYPE_CHECKING:
    from services.mappings.source import ApiServerSource

# A connection that silently breaks leads to outdated answers for as long, and short watches cost
# the API server little.
WATCH_SECONDS: Final = 30.0
"""Length of a watch."""
WATCH_SHARE: Final = 0.5
"""Longest watch, as a share of `--max-staleness`."""
GRACE_SHARE: Final = 0.25
"""Longest silence after that, and longest pause, as a share of `--max-staleness`."""
SHORTEST_PAUSE: Final = 15.0
"""Pauses grow to at least this, so there are at most four lists a minute for any setting."""


MappingSource: TypeAlias = "FolderSource | ApiServerSource"


def choose_source(settings: WebhookSettings) -> MappingSource:
    """Return the source that the settings, or else the environment, name; a folder is loaded.

    Raises:
        InvalidSettings: Neither names one.
        ExternalFailure: The folder can't be read.
        ClusterError: The service account can't be used.
    """
    if settings.mappings is not None:
        source = FolderSource(settings.mappings)
        source.load()
        return source
    # The API client costs memory that a webhook with a folder does not need.
    from services.kube.access import find_access  # noqa: PLC0415 - the same
    from services.kube.client import ClusterClient  # noqa: PLC0415 - the same
    from services.kube.watches import WatchTiming  # noqa: PLC0415 - the above
    from services.mappings.source import ApiServerSource  # noqa: PLC0415 - the same

    access = find_access(settings.api_server)
    if access is None:
        raise InvalidSettings(
            "--mappings or --api-server is required: a folder with mappings as YAML, or the address"
            " of the API server that has them (a pod with a service account needs neither)"
        )
    timing = WatchTiming(watch=WATCH_SECONDS)
    if (longest := settings.max_staleness) is not None:
        # Confirms the mappings more often than they may be stale.
        timing = WatchTiming(
            longest=min(timing.longest, max(SHORTEST_PAUSE, longest * GRACE_SHARE)),
            watch=min(timing.watch, longest * WATCH_SHARE),
            grace=min(timing.grace, longest * GRACE_SHARE),
        )
    return ApiServerSource(ClusterClient(access), timing=timing)


def staleness(source: MappingSource, longest: float | None) -> str:
    """Return why a source makes the process not ready, such as an age over `longest` seconds."""
    reason = f" ({source.error})" if source.error else ""
    if not source.loaded:
        return f"mappings not loaded{reason}"
    if longest is not None and source.age > longest:
        return f"mappings are over {longest:g} s old{reason}"
    return ""
