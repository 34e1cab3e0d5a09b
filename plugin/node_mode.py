"""The node's mode: its annotation, or `--mode` if it has none.

    annotation      mode
    af, region,     that one
    regiondevel
    none            --mode
    anything else   the mode before; reported by the log, a metric and an Event

The annotation overrides any `--mode`, also `units` and `bdf`, which are not values of it.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from services.devices.model import PluginMode
from services.kube.events import EventRecorder
from services.names import DOMAIN
from services.node.events import EventReason
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
    """`annotation`, `flag`, or `last` while the annotation is unknown."""
    error: str = ""
    """Why an annotation is ignored; empty if none is."""


def choose(
    before: ModeChoice, configured: PluginMode, annotations: Mapping[str, str]
) -> ModeChoice:
    """The mode of a node with these annotations, where `--mode` says what is configured."""
    value = annotations.get(ANNOTATION)
    if value is None:
        return ModeChoice(configured, "flag")
    if value.strip() in ANNOTATED:
        return ModeChoice(PluginMode(value.strip()), "annotation")
    error = (
        f'the node\'s annotation {ANNOTATION} is "{plain(value, 60)}", which is none of'
        f" {', '.join(ANNOTATED)}: it stays in mode {before.mode}"
    )
    return ModeChoice(before.mode, before.source, error)


class NodeMode:
    """The node's mode, as it changes, which is recorded as Events."""

    def __init__(
        self,
        configured: PluginMode,
        events: EventRecorder,
    ) -> None:
        self.choice = ModeChoice(configured, "flag")
        self._configured = configured
        self._events = events
        self._known = asyncio.Event()
        self._changed = asyncio.Event()

    def update(self, annotations: Mapping[str, str] | None) -> None:
        """Follow the node's annotations; None if the API server refuses them."""
        first = not self._known.is_set()
        self._known.set()
        if annotations is None:  # no reason to wait longer, and none to leave the mode
            return
        before, now = self.choice, choose(self.choice, self._configured, annotations)
        if now == before:
            return
        self.choice = now
        if now.error:
            log.warning("the node's annotation is not understood", reason=now.error)
            self._record(EventReason.MODE_ANNOTATION_INVALID, now.error)
        else:
            why = "its annotation says so" if now.source == "annotation" else "it has no annotation"
            message = f"mode {now.mode}: {why}; it was {before.mode}"
            log.info("the node's mode", reason=message)
            if not first:  # at a start nothing was served in the mode before
                self._record(EventReason.MODE_CHANGED, message)
        self._changed.set()

    def _record(self, reason: EventReason, message: str) -> None:
        self._events.record_on_node("mode", reason, message, warning=reason.warning)

    async def known(self, seconds: float) -> bool:
        """Wait some seconds at most until the annotations are known; return whether they are."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._known.wait()
        return self._known.is_set()

    def resume(self, last: PluginMode | None) -> None:
        """Continue in the mode that was served last, if any, until the annotations are known."""
        if self._known.is_set():  # while the last mode was read
            return
        if last in ANNOTATED:  # any other one came from --mode, which counts anyway
            self.choice = ModeChoice(last, "last")
        log.warning(
            "the API server hasn't returned this node's annotations yet: until it does, the mode"
            " that was served last counts, or else --mode",
            mode=self.choice.mode.value,
            source=self.choice.source,
        )

    async def differs(self, mode: PluginMode) -> None:
        """Wait until the node has another mode than the one that is served; for one waiter."""
        while self.choice.mode is mode:
            self._changed.clear()
            await self._changed.wait()
