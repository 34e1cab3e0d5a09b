"""The claims that this node has reserved or prepared: a file each, `<uid>.json`.

    file of a claim    what it says
    absent             nothing of it is here
    not committed      its devices are reserved; work on them may have begun
    committed          it was answered, or is about to be

A file is written before the step that it tells of, and removed when everything else of the claim
is. Nothing is kept in memory: whoever asks reads the folder, so a driver that was killed goes on
where it was. The folder is in memory (`/run`), as CDI files and what ports carry: after a reboot
there is none of it. Files of another boot don't count.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from plugin.dra.claims import ClaimRef
from plugin.dra.wants import Part, Want, held
from services.containers.holders import Given, Holder, HolderReader, Holders
from services.devices.cdi import read_claim_file
from services.devices.dra import DraDevice
from services.devices.model import REPLICA
from services.process.errors import HardwareError, NotAllowed
from services.process.files import discard_unfinished, open_regular, replace_file
from services.process.json import UNREADABLE
from services.process.text import plain, quote
from services.programming.host_state import BOOT_ID

FOLDER: Final = "claims"
"""Below `--state-dir`."""

_SUFFIX: Final = ".json"
_MAX_BYTES: Final = 1 << 20
_UID: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")


class ClaimEntry(msgspec.Struct, frozen=True):
    """A claim on this node."""

    claim: ClaimRef
    boot: str
    wants: tuple[Want, ...]
    is_committed: bool = False
    file: str | None = None
    """Its CDI file, empty if it has none; None if an older version has committed it."""
    pods: tuple[str, ...] = ()
    """UIDs of the pods that use it; none if an older version has written the file."""
    is_leftover: bool = False
    """Whether the kubelet did not know it when it was last asked."""
    pod_claim: str | None = None
    """As in `AllocatedClaim`; None if an older version has written it: it has no metadata."""
    nodes: tuple[str, ...] = ()
    """Paths on the host of the device nodes that its CDI file has named before."""

    @property
    def note(self) -> str:
        """The entry once it is committed as text, for `ClaimBook.restore`."""
        # What may change as long as the claim is prepared would change the file that has the note.
        noted = msgspec.structs.replace(
            self, is_committed=True, file=None, pods=(), is_leftover=False
        )
        values = msgspec.to_builtins(noted)
        if not self.nodes:  # older versions have no such key, and their files are to stay
            del values["nodes"]
        return msgspec.json.encode(values).decode()

    def parts(self) -> Iterator[Part]:
        """Each device, also one that it only watches."""
        return (part for want in self.wants for part in want.parts())

    def held(self) -> Iterator[Part]:
        """Each device that it has, as a whole or in part."""
        return held(self.wants)

    def given_nodes(self) -> frozenset[str]:
        """Paths on the host of the device nodes that its containers may have."""
        file = read_claim_file(self.file or "")
        return frozenset((*self.nodes, *(each.on_host for each in (file.nodes if file else ()))))

    def given(self) -> Given:
        """The same, and for which devices."""
        names = sorted({part.device for part in self.held()})
        return Given(str(self.claim), "", tuple(names), tuple(sorted(self.given_nodes())))


def is_uid(text: str) -> bool:
    """Whether a text can be the UID of a claim."""
    return _UID.fullmatch(text) is not None


class ClaimBook:
    """The claims of a node, in a folder that need not be there yet."""

    def __init__(self, folder: Path, boot_id: Path = BOOT_ID) -> None:
        self._folder = folder
        self._boot = boot_id.read_text(encoding="ascii").strip()

    def find(self, uid: str) -> ClaimEntry | None:
        """The stored entry of a claim, if any."""
        return self._read(self.path(uid))

    def entries(self) -> tuple[ClaimEntry, ...]:
        """All claims that are here and can be read."""
        return self._all()[0]

    def unreadable(self) -> tuple[str, ...]:
        """Why others can't be read, and what to do."""
        return tuple(self._all()[1])

    def require_readable(self) -> tuple[ClaimEntry, ...]:
        """All claims that are here.

        Raises:
            HardwareError: One can't be read; it may have any device.
        """
        entries, unreadable = self._all()
        if unreadable:
            raise HardwareError(f"it is unknown which devices claims have: {unreadable[0]}")
        return entries

    def reserve(
        self,
        claim: ClaimRef,
        wants: tuple[Want, ...],
        pods: tuple[str, ...] = (),
        pod_claim: str | None = None,
    ) -> ClaimEntry:
        """Reserve the devices of a claim; the caller has made sure that nobody has them."""
        before = self.find(claim.uid)
        nodes = tuple(sorted(before.given_nodes())) if before else ()
        entry = ClaimEntry(claim, self._boot, wants, pods=pods, pod_claim=pod_claim, nodes=nodes)
        self._write(entry)
        return entry

    def commit(self, entry: ClaimEntry) -> None:
        """Note that a claim is prepared."""
        # Its pods may have been noted since the entry was read.
        pods = (self.find(entry.claim.uid) or entry).pods
        committed = msgspec.structs.replace(entry, is_committed=True, pods=pods, is_leftover=False)
        self._write(committed)

    def note_pods(self, entry: ClaimEntry, pods: Collection[str] | None) -> None:
        """Note which pods use a claim, as the kubelet says; None if it does not know the claim.

        Raises:
            HardwareError: The entry can't be written.
        """
        noted = msgspec.structs.replace(
            entry, pods=tuple(sorted(pods)) if pods else entry.pods, is_leftover=pods is None
        )
        if noted != entry:
            self._write(noted)

    def restore(self, uid: str, file: str) -> bool:
        """Write the entry of a claim again if a note of this boot in its CDI file has it.

        Raises:
            HardwareError: It can't be written.
        """
        found = read_claim_file(file)
        try:
            entry = msgspec.json.decode(found.note if found else "", type=ClaimEntry)
        except UNREADABLE:
            return False
        if (entry.claim.uid, entry.boot) != (uid, self._boot):
            return False
        self._write(msgspec.structs.replace(entry, file=file))
        return True

    def remove(self, uid: str) -> None:
        """Forget a claim; it need not be here."""
        discard_unfinished(self.path(uid))
        try:
            self.path(uid).unlink(missing_ok=True)
        except OSError as error:
            raise HardwareError(f"{self.path(uid)} can't be removed: {error.strerror}") from error

    def others(
        self, uid: str, wanted: Mapping[str, int], devices: Mapping[str, DraDevice]
    ) -> dict[str, ClaimRef]:
        """The claims that leave too little of devices which a claim wants, by device.

        `wanted` are shares by device, 0 for a whole one; `devices` are those of the node.

        Raises:
            HardwareError: A claim can't be read, so it may have them.
        """
        others: dict[str, ClaimRef] = {}
        left = {name: devices[name].device.shares or 0 for name in wanted if name in devices}
        for entry in self.require_readable():
            for part in entry.held() if entry.claim.uid != uid else ():
                if part.device in wanted:
                    others[part.device] = entry.claim
                    left[part.device] = left.get(part.device, 0) - part.share.amount
        short = {
            name: claim
            for name, claim in others.items()
            if not wanted[name] or left[name] < wanted[name]
        }
        return short or {
            device: claim
            for device, claim in self.renamed(devices).items()
            if device in wanted and claim.uid != uid
        }

    def renamed(self, devices: Mapping[str, DraDevice]) -> dict[str, ClaimRef]:
        """The claims that have the hardware of devices in another way than those are offered.

        The name of a device type has changed, or whether and how a device of it is shared. The
        scheduler does not count them. By device.

        Raises:
            HardwareError: A claim can't be read, so it may have them.
        """
        return {
            name: entry.claim
            for entry in self.require_readable()
            for part in entry.held()
            if not _is_offered(part, devices)
            for name, each in devices.items()
            if not each.device.claims.isdisjoint(part.claims)
        }

    # For others

    def committed(self) -> frozenset[str]:
        """The devices that containers may change: those of committed claims.

        Raises:
            HardwareError: A claim can't be read.
        """
        committed = [entry for entry in self.require_readable() if entry.is_committed]
        return frozenset(part.device for entry in committed for part in entry.held())

    def has_only_replicas(self) -> bool:
        """Whether committed claims have replicas of shared devices, and none has a share."""
        parts = [part for each in self.entries() if each.is_committed for part in each.held()]
        is_shared = any(each.share.id for each in parts)
        return not is_shared and any(REPLICA.search(each.id) for each in parts)

    def holders(self, pods: Holders) -> Holders:
        """Who has devices: containers of pods, and the claims that can be read."""
        holders = dict(pods)
        for entry in self.entries():
            for part in entry.held():
                holder = Holder(entry.claim.namespace, "", "", entry.claim.name, part.share.id)
                key = part.resource, part.id
                holders[key] = (*holders.get(key, ()), holder)
        return holders

    # The files

    def path(self, uid: str) -> Path:
        """The file of a claim.

        Raises:
            NotAllowed: The UID is none.
        """
        if not is_uid(uid):
            raise NotAllowed(f"{quote(uid)} is not the UID of a claim")
        return self._folder / f"{uid}{_SUFFIX}"

    def _all(self) -> tuple[tuple[ClaimEntry, ...], list[str]]:
        """All claims that are here, and why others can't be read."""
        entries: list[ClaimEntry | None] = []
        unreadable: list[str] = []
        for path in self._paths(unreadable):
            try:
                entries.append(self._read(path))
            except HardwareError as error:
                unreadable.append(str(error))
        return tuple(filter(None, entries)), unreadable

    def _paths(self, unreadable: list[str]) -> list[Path]:
        try:
            paths = sorted(self._folder.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            unreadable.append(f"{self._folder} can't be read: {error.strerror}")
            return []
        # People copy files: what has no UID as its name is not ours.
        return [each for each in paths if each.suffix == _SUFFIX and is_uid(each.stem)]

    def _read(self, path: Path) -> ClaimEntry | None:
        try:
            with open_regular(path) as file:
                entry = msgspec.json.decode(file.read(_MAX_BYTES), type=ClaimEntry)
            if entry.claim.uid != path.stem:
                raise ValueError(f"it is the entry of {entry.claim}, another claim")
        except FileNotFoundError:
            return None
        except (OSError, *UNREADABLE) as error:
            raise HardwareError(
                f"{path} can't be read: {plain(str(error))}; once no container uses that claim:"
                f" accelbind dra release {plain(path.stem)}"
            ) from error
        return entry if entry.boot == self._boot else None

    def _write(self, entry: ClaimEntry) -> None:
        path = self.path(entry.claim.uid)
        try:
            self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            replace_file(path, msgspec.json.encode(entry), mode=0o600)
        except OSError as error:
            reason = error.strerror or str(error)
            raise HardwareError(f"{path} can't be written: {reason}") from error


def _is_offered(part: Part, devices: Mapping[str, DraDevice]) -> bool:
    """Whether a device that a claim has is offered by its name, as a whole or in shares as then."""
    found = devices.get(part.device)
    return found is not None and bool(found.device.shares) == bool(part.share.id)


class ClaimHolders:
    """Who has devices: claims, and pods that still have them from the device plugin."""

    def __init__(self, book: ClaimBook, plugin: HolderReader) -> None:
        self._book = book
        self._plugin = plugin

    @property
    def holders(self) -> Holders:
        """As `HolderReader` says."""
        return self._book.holders(self._plugin.holders)

    @property
    def given(self) -> frozenset[Given]:
        """As `HolderReader` says; to claims too."""
        return self._plugin.given.union(each.given() for each in self._book.entries())

    async def read(self) -> Holders:
        """As `HolderReader` says."""
        self._book.require_readable()
        return self._book.holders(await self._plugin.read())

    async def current(self) -> Holders:
        """As `HolderReader` says."""
        return self._book.holders(await self._plugin.current())
