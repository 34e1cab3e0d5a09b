"""Keeps what committed claims were promised on the disk: their files and entries.

A CDI file and an entry each have what it takes to restore the other; files of metadata follow from
the entry alone.

The kubelet doesn't prepare a claim again while its sandbox lives, but its containers may restart,
and only the file says what they get. So after each scan, and before the kubelet is served:

    devices of the claim           its file
    healthy                        as it would be written today
    one's node others still have   as it was written last, unless it names another device's node
    away or unhealthy              as it was written last, unless it names another device's node
    one's node is another's now    absent
"""

import asyncio
from dataclasses import dataclass
from typing import NoReturn

import msgspec
import structlog

from plugin.dra.book import ClaimBook, ClaimEntry
from plugin.dra.claim_files import CdiClaimFiles
from plugin.dra.preparation import Preparation
from plugin.dra.wants import located, require_healthy
from services.node.kept_files import Kept, KeptFiles
from services.node.state import NodeState
from services.process.errors import AccelbindError, HardwareError, NotAllowed
from services.process.files import MISSING
from services.process.outage import Outage

log = structlog.get_logger(component="dra")


@dataclass(frozen=True, slots=True)
class _Promise:
    """The files that a committed claim is to have on the disk."""

    noted: ClaimEntry
    entry: ClaimEntry
    """With the ids that its devices have now, and its CDI file, empty if there is to be none."""
    error: str = ""
    """Why its devices can't be followed."""

    @property
    def is_new(self) -> bool:
        """Whether the entry is to be written too."""
        return not self.error and self.entry != self.noted


class ClaimUpkeep:
    """Keeps the files of claims."""

    def __init__(
        self,
        book: ClaimBook,
        files: CdiClaimFiles,
        preparation: Preparation,
        state: NodeState,
        *,
        kept: KeptFiles,
    ) -> None:
        self.checked = asyncio.Event()
        """Set once the files were compared with a scan."""
        self._book = book
        self._files = files
        self._preparation = preparation
        self._kept = kept
        self._state = state
        self._due = state.steps.follow()
        self._outage = Outage(
            log, "claims can't follow their devices", "claims follow their devices again"
        )

    async def run_forever(self) -> NoReturn:
        """Check after each scan, until cancelled."""
        await self._due.run_forever(self.run_once)

    async def run_once(self) -> None:
        """Follow the devices of committed claims, and restore their files."""
        errors: list[str] = []
        try:
            await self._restore_entries()
            promises = [
                await self._promise(entry)
                for entry in self._book.entries()
                if entry.is_committed and not self._preparation.is_worked_on(entry.claim.uid)
            ]
            faulty = await self._files.faulty([each.entry for each in promises])
            for each in promises:
                uid, error = each.entry.claim.uid, ""
                if each.is_new or uid in faulty:
                    error = await self._keep(each)
                if not error and each.error and not each.entry.file:
                    error = f"{each.entry.claim} is without {self._files.path(uid)}: {each.error}"
                errors.append(error)
            self._outage.update("; ".join(each.error for each in promises if each.error))
        except AccelbindError as error:
            errors.append(str(error))
        self._kept.update(Kept.CDI_CLAIM, "; ".join(filter(None, errors)))
        self.checked.set()

    async def _restore_entries(self) -> None:
        """Restore entries that are lost or can't be read, from the files of their claims."""
        # The file of a claim is written after its entry and removed before it.
        errors, known = [], [each.claim.uid for each in self._book.entries()]
        for uid, file in (await self._files.others(known)).items():
            if self._preparation.is_worked_on(uid):
                continue
            async with self._preparation.lock(uid):
                found = MISSING
                try:
                    if self._book.find(uid) is not None:  # since a moment
                        continue
                except HardwareError:
                    found = "it can't be read"
                try:
                    if self._book.restore(uid, file):
                        self._kept.restored(Kept.CLAIM, self._book.path(uid), found)
                except AccelbindError as error:
                    errors.append(str(error))
        self._kept.update(Kept.CLAIM, "; ".join([*errors, *self._book.unreadable()]))

    async def _promise(self, entry: ClaimEntry) -> _Promise:
        """The files that a committed claim is to have now."""
        noted, file = entry, entry.file
        if file is None:
            file = await self._files.read(entry.claim.uid)
            entry = msgspec.structs.replace(entry, file=file)
        devices = self._state.ledger.by_name
        try:
            # A driver that is loaded again may number its devices otherwise.
            now = msgspec.structs.replace(entry, wants=located(entry.wants, devices))
            promise = _Promise(noted, self._files.describe(now)[1])
            if promise.is_new:
                # An unhealthy device may lack a node or a variable for a while.
                require_healthy(now.wants, devices)
        except AccelbindError as error:
            why = str(error)
        else:
            return promise
        try:
            self._files.require_own(file, entry.wants)
        except NotAllowed as other:
            file, why = "", f"{why}; {other}"
        return _Promise(noted, msgspec.structs.replace(entry, file=file), why)

    async def _keep(self, promise: _Promise) -> str:
        """Keep the files of a claim and its entry; return why they can't be kept, if so."""
        noted, entry, uid = promise.noted, promise.entry, promise.noted.claim.uid
        if self._preparation.is_worked_on(uid):  # which writes or removes the file
            return ""
        async with self._preparation.lock(uid):
            try:
                if self._book.find(uid) != noted:  # it may have been unprepared meanwhile
                    return ""
                if promise.is_new:  # first: what the file names counts as given from then on
                    self._preparation.commit(entry)
                found = await self._files.write(entry)
            except AccelbindError as error:
                return f"{entry.claim}: {error}"
        # Older versions have written another content.
        for path, why in found.items() if entry.file else ():
            if why == MISSING if noted.file is None else not promise.is_new:
                self._kept.restored(Kept.CDI_CLAIM, path, why)
        return ""
