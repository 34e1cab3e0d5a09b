"""Claims that only this driver knows: their devices are not free, and they end by themselves.

    known ── the kubelet does not know it ──► leftover ── unused for UNUSED_SECONDS ──► given back
      ▲                                         │  ▲ │
      └────────── the kubelet knows it ─────────┘  └─┘ in use, or in doubt: the time begins anew

A kubelet that has lost its state, as after a reset without a reboot, never gives its claims back.
It lists no container of them either, although one that was deleted by force may still run.
`plugin.dra.claim_use` finds out whether a claim is used. The devices of a leftover claim are
unhealthy, so slices, `accelbind devices`, metrics and Events show it.

The book is read before the kubelet's checkpoint: the kubelet writes a claim there before it has it
prepared, and removes it after it was given back. That the kubelet does not know a claim is noted in
its entry. Since when it is unused is kept in memory: a driver that was restarted begins anew.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, NoReturn

import structlog

from plugin.dra.book import ClaimBook, ClaimEntry
from plugin.dra.claim_use import ClaimUse
from services.process.errors import AccelbindError, HardwareError
from services.process.outage import Outage
from services.process.problem import Problem

LEFTOVER: Final = "leftover-claim"

UNUSED_SECONDS: Final = 300.0
"""How long a leftover claim must be unused until it is given back."""

ROUND_SECONDS: Final = 30.0
"""Between two rounds. Without leftover claims they cost nothing."""

log = structlog.get_logger(component="dra")


class LeftoverClaims:
    """Finds leftover claims, and gives them back once they are unused.

    Args:
        book: The claims on this node.
        use: Finds out whether they are used.
        clock: Returns seconds.
    """

    def __init__(
        self,
        book: ClaimBook,
        use: ClaimUse,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._book = book
        self._use = use
        self.clock = clock
        self._unused_since: dict[str, float] = {}
        self._reasons: Mapping[str, str] = {}
        """Why claims count as used, by UID."""
        self._outage = Outage(
            log,
            "it can't be noted which claims the kubelet knows",
            "it is noted again which claims the kubelet knows",
            level="info",
        )
        self._unended = Outage(
            log, "leftover claims can't be given back", "leftover claims are given back again"
        )

    async def problems(self) -> Mapping[str, Problem]:
        """Find the leftover claims; return why their devices are not free, by the devices' ids."""
        before = self._book.entries()
        if before:
            try:
                known = await self._use.known_to_kubelet()
            except AccelbindError as error:
                self._outage.failed(str(error))  # what was known before stays
            else:
                errors = [self._note(each, known.get(each.claim.uid)) for each in before]
                self._outage.update("; ".join(filter(None, errors)))
        return {
            held.id: Problem(LEFTOVER, self._describe(entry))
            for entry in self._leftover()
            for held in entry.held()
            if not held.share.id  # the rest of the device is free
        }

    def _note(self, before: ClaimEntry, pods: Collection[str] | None) -> str:
        """Note what the kubelet knows of a claim that was here before it was asked.

        Returns:
            Why that can't be noted; empty if it is.
        """
        uid = before.claim.uid
        try:
            entry = self._book.find(uid)
            if entry is None:
                return ""
            if pods is None and not entry.is_leftover:
                claim = str(entry.claim)
                log.warning("the kubelet does not know a claim that is here", claim=claim, uid=uid)
            self._book.note_pods(entry, pods)
        except HardwareError as error:
            return str(error)
        return ""

    def _leftover(self) -> list[ClaimEntry]:
        return [each for each in self._book.entries() if each.is_leftover]

    def _describe(self, entry: ClaimEntry) -> str:
        uid = entry.claim.uid
        why = self._reasons.get(uid) or "whether it is used is being observed"
        return (
            f"{entry.claim} has it, and the kubelet does not know that claim ({why}): it is given"
            f" back once it has been unused for {UNUSED_SECONDS / 60:g} minutes; if no container"
            f" uses it: accelbind dra release {uid}"
        )

    async def run_forever(self, end: Callable[[ClaimEntry], Awaitable[None]]) -> NoReturn:
        """Observe leftover claims until cancelled; `end` gives one back."""
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            errors = []
            for entry in await self.unused():
                try:
                    await end(entry)
                except AccelbindError as error:
                    errors.append(str(error))
            self._unended.update("; ".join(errors))

    async def unused(self) -> list[ClaimEntry]:
        """Observe leftover claims once; return those that have been unused for long enough."""
        leftover, now = self._leftover(), self.clock()
        self._reasons = await self._use.find(leftover, now=now)
        unused = [each for each in leftover if each.claim.uid not in self._reasons]
        uids = [each.claim.uid for each in unused]
        self._unused_since = {uid: self._unused_since.get(uid, now) for uid in uids}
        return [e for e in unused if now - self._unused_since[e.claim.uid] >= UNUSED_SECONDS]
