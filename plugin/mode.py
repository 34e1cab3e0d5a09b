"""The node's mode, decided when the process starts: its annotation, or `--mode` if it has none.

    the API server says         mode
    af, region, regiondevel     that one
    no annotation               --mode
    anything else               the one served last, or --mode; log, metric and Event say so
    nothing for 2 s             the same, and the process asks until it gets an answer

The last mode counts if an annotation can name it; `units`, `bdf` and `none` come from `--mode`. A
changed annotation counts at the next start.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Gauge

from services.devices.model import PluginMode
from services.kube.client import ClusterClient, requested_pause
from services.kube.nodes import node_annotations
from services.names import DOMAIN
from services.process.errors import ClusterError
from services.process.outage import Outage
from services.process.retry import Backoff
from services.process.text import plain

ANNOTATION: Final = f"{DOMAIN}/device-plugin-mode"
"""The mode of the node, which overrides `--mode`: `af`, `region` or `regiondevel`."""

ANNOTATED: Final = (PluginMode.AF, PluginMode.REGION, PluginMode.REGIONDEVEL)

KNOWN_SECONDS: Final = 2.0
"""How long a start waits for the API server to return the annotation; nothing is served before."""

log = structlog.get_logger(component="plugin")


@dataclass(frozen=True, slots=True)
class ModeChoice:
    """A mode and its source."""

    mode: PluginMode
    source: str
    """`annotation`, `flag`, or `last`."""
    error: str = ""
    """Why an annotation is ignored; empty if none is."""


def without_annotation(configured: PluginMode, last: PluginMode | None) -> ModeChoice:
    """The mode while the annotation is unknown: the last one served, or what `--mode` says."""
    return ModeChoice(last, "last") if last in ANNOTATED else ModeChoice(configured, "flag")


def choose(
    configured: PluginMode, last: PluginMode | None, annotations: Mapping[str, str]
) -> ModeChoice:
    """The mode of a node with these annotations."""
    value = annotations.get(ANNOTATION)
    if value is None:
        return ModeChoice(configured, "flag")
    if value.strip() in ANNOTATED:
        return ModeChoice(PluginMode(value.strip()), "annotation")
    instead = without_annotation(configured, last)
    error = (
        f'the node\'s annotation {ANNOTATION} is "{plain(value, 60)}", which is none of'
        f" {', '.join(ANNOTATED)}: mode {instead.mode} is served"
    )
    return ModeChoice(instead.mode, instead.source, error)


async def ask_once(connection: ClusterClient, node: str) -> Mapping[str, str] | None:
    """The node's annotations; None if the API server doesn't return them in time."""
    slow = f"the API server didn't answer within {KNOWN_SECONDS:g} s"
    try:
        async with asyncio.timeout(KNOWN_SECONDS):
            return await node_annotations(connection, node)
    except (ClusterError, TimeoutError) as error:
        log.warning(
            "the API server hasn't returned this node's annotations: until it does, the mode that"
            " was served last counts, or else --mode",
            reason=str(error) or slow,
        )
        return None


async def ask_until_answered(connection: ClusterClient, node: str) -> Mapping[str, str]:
    """The node's annotations, after pauses that grow."""
    backoff = Backoff()
    outage = Outage(log, "the node's annotations are unknown", "the node's annotations are known")
    pause = backoff.pause()
    while True:
        await asyncio.sleep(pause)
        try:
            annotations = await node_annotations(connection, node)
        except ClusterError as error:
            outage.failed(str(error))
            pause = backoff.pause(requested_pause(error))
        else:
            outage.ended()
            return annotations


class ModeMetrics:
    """Shows the node's mode in a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._mode = Gauge(
            "accelbind_node_mode",
            "The node's mode, and who says so (annotation, flag, or last: what was served last"
            " counts until the API server answers); always 1.",
            ("mode", "source"),
            registry=registry,
        )
        self._invalid = Gauge(
            "accelbind_node_mode_annotation_invalid",
            "Whether the node's annotation names no mode, so that the one before is kept: 1 or 0.",
            registry=registry,
        )

    def show(self, choice: ModeChoice) -> None:
        """Show this mode from now on."""
        self._mode.clear()
        self._mode.labels(choice.mode.value, choice.source).set(1)
        self._invalid.set(bool(choice.error))
