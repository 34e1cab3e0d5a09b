"""Which mode this node is in: what its annotation says, or `--mode` where it says nothing.

    annotation      what counts
    af, region,     that
    regiondevel
    none            --mode
    anything else   the mode that counted before; said in the log, a metric and an Event

The annotation overrides `--mode` whatever that is, `units` and `bdf` too; those two are no values
of it. Until the API server has said what the annotation is, nothing is served, but not for longer
than a moment: then the mode counts that was served last, or else `--mode`, until more is known.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from services.devices.model import PluginMode
from services.names import DOMAIN
from services.process.text import plain

ANNOTATION: Final = f"{DOMAIN}/device-plugin-mode"
"""Says the mode of the node, and overrides `--mode`: `af`, `region` or `regiondevel`."""

ANNOTATED: Final = (PluginMode.AF, PluginMode.REGION, PluginMode.REGIONDEVEL)
"""The modes that the annotation may name."""

KNOWN_SECONDS: Final = 2.0
"""How long a start waits for the API server to tell the annotation."""

log = structlog.get_logger(room="plugin")


@dataclass(frozen=True, slots=True)
class Choice:
    """What counts now.

    Args:
        mode: The mode.
        source: Who says so: `annotation`, `flag`, or `last` while nobody has said.
        trouble: Why the annotation doesn't count although there is one; empty if it does.
    """

    mode: PluginMode
    source: str
    trouble: str = ""


def choose(before: Choice, configured: PluginMode, annotations: Mapping[str, str]) -> Choice:
    """What counts once a node's annotations are known.

    Args:
        before: What counted before.
        configured: What `--mode` says.
        annotations: The node's.
    """
    value = annotations.get(ANNOTATION)
    if value is None:
        return Choice(configured, "flag")
    if value.strip() in ANNOTATED:
        return Choice(PluginMode(value.strip()), "annotation")
    trouble = (
        f'the node\'s annotation {ANNOTATION} is "{plain(value, 60)}", which is none of'
        f" {', '.join(ANNOTATED)}: it stays in mode {before.mode}"
    )
    return Choice(before.mode, before.source, trouble)


class NodeMode:
    """The node's mode, as it changes.

    Args:
        configured: What `--mode` says.
        told: Told each change: what counted before, and what counts now.
    """

    def __init__(
        self, configured: PluginMode, *, told: Callable[[Choice, Choice], None] = lambda *_: None
    ) -> None:
        self.choice = Choice(configured, "flag")
        self._configured = configured
        self._told = told
        self._known = asyncio.Event()
        self._changed = asyncio.Event()

    def take(self, annotations: Mapping[str, str] | None) -> None:
        """Takes the node's annotations as they are now; None where nobody will tell them."""
        first = not self._known.is_set()
        self._known.set()
        if annotations is None:
            return
        before = self.choice
        self.choice = choose(before, self._configured, annotations)
        if self.choice == before:
            return
        self._say(before)
        if not first or self.choice.trouble:
            self._told(before, self.choice)
        if self.choice.mode is not before.mode:
            self._changed.set()
            self._changed = asyncio.Event()

    async def known(self, seconds: float) -> bool:
        """Waits until the annotations have been told once, but not for long.

        Args:
            seconds: How long at most.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._known.wait()
        return self._known.is_set()

    def resume(self, last: PluginMode | None) -> None:
        """Goes on in the mode that was served last, until the annotations are told.

        Args:
            last: That mode; None where nobody knows, and then `--mode` counts.
        """
        if self._known.is_set():
            return
        if last in ANNOTATED:
            self.choice = Choice(last, "last")
        log.warning(
            "the API server hasn't told this node's annotations yet: until it does, the mode counts"
            " that was served last, or else --mode",
            mode=self.choice.mode.value,
            source=self.choice.source,
        )

    async def differs(self, mode: PluginMode) -> None:
        """Waits until another mode counts.

        Args:
            mode: The one that is served.
        """
        while self.choice.mode is mode:
            await self._changed.wait()

    def _say(self, before: Choice) -> None:
        now = self.choice
        if now.trouble:
            log.warning("the node's annotation is not understood", reason=now.trouble)
        else:
            same = now.mode is before.mode
            log.info(
                "the node's mode is confirmed" if same else "the node's mode changes",
                mode=now.mode.value,
                source=now.source,
                was=before.mode.value,
            )
