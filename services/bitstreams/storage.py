"""The bitstreams that a node keeps: found by interface and function, installed safely.

Places are those of the public suite: `<interface id>/<AFU id>.gbs`, or
`<interface id>/<program id>.aocx` for OpenCL. Names are not trusted: a file must hold what its
place says. A file appears whole or not at all, so only writers lock the storage's folder.
"""

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from services.bitstreams.aocx import is_elf, parse_aocx
from services.bitstreams.gbs import is_gbs, parse_gbs
from services.bitstreams.model import MAX_FILE, Bitstream, BitstreamKind
from services.process.errors import (
    BitstreamMissing,
    InvalidBitstream,
    InvalidSettings,
    StorageError,
)
from services.process.files import open_regular, replace_file


def parse(data: bytes | memoryview) -> Bitstream:
    """Read all bytes of a GBS or an AOCX."""
    if is_gbs(data):
        return parse_gbs(data)
    if is_elf(data):
        return parse_aocx(data)
    first = bytes(data[:4]).hex(" ") or "nothing"
    raise InvalidBitstream(f"it is neither a GBS nor an AOCX: it starts with {first}")


_INTERFACE: Final = re.compile(r"[0-9a-f]{8,32}")
_STORED: Final = re.compile(r"([0-9a-f]{8,40})\.(gbs|aocx)")
_FOLDER_MODE: Final = 0o755
_FILE_MODE: Final = 0o644


class InstallResult(StrEnum):
    """The result of installing a file."""

    INSTALLED = "installed"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in the storage."""

    path: Path
    interface_id: str
    """As its folder is named."""
    function_id: str
    """As it is named."""
    kind: BitstreamKind
    bitstream: Bitstream | None
    """What it holds, if it could be read and is what its place says."""
    problem: str = ""


def stored_name(bitstream: Bitstream) -> str:
    """Where below the storage's folder a bitstream belongs."""
    return f"{bitstream.interface_id}/{bitstream.function_id}.{bitstream.kind}"


def read_bitstream(path: Path) -> Bitstream:
    """Read a GBS or an AOCX from anywhere."""
    return _parsed(path, _read(path))


def _parsed(path: Path, data: bytes) -> Bitstream:
    try:
        return parse(data)
    except InvalidBitstream as error:
        raise InvalidBitstream(f"{path} is not a usable bitstream: {error}") from error


class BitstreamStorage:
    """A folder of bitstreams, which need not be there yet. A broken link is a file in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, interface_id: str, function_id: str) -> Bitstream:
        """Read the bitstream of a function, by canonical ids."""
        for path, kind in self._places(interface_id, function_id):
            return _read_named(path, interface_id, function_id, kind)
        raise self._missing(interface_id, function_id)

    def memory_needed(self, interface_id: str, function_id: str) -> int:
        """How many bytes of memory a function's bitstream needs at most, before it is read."""
        for path, kind in self._places(interface_id, function_id):
            try:
                size = min(path.stat().st_size, MAX_FILE)
            except OSError:
                return 0  # reading it gives the reason
            return 2 * size if kind is BitstreamKind.GBS else size + MAX_FILE  # unpacked, or copied
        return 0

    def entries(self) -> Iterator[StoredFile]:
        """All files that are named as bitstreams, each read and checked, in order of names."""
        for name in _listed(self.folder):
            folder = self.folder / name
            if _INTERFACE.fullmatch(name) and _is_folder(folder):
                for match in filter(None, map(_STORED.fullmatch, _listed(folder))):
                    yield _entry(folder / match[0], name, match[1], BitstreamKind(match[2]))

    def strays(self) -> Iterator[Path]:
        """Yield the files and folders that don't fit the layout, and are ignored."""
        for name in _listed(self.folder):
            folder = self.folder / name
            if not _is_folder(folder):
                yield folder
                continue
            is_interface, inside = bool(_INTERFACE.fullmatch(name)), _listed(folder)
            for each in inside:
                if not (is_interface and _STORED.fullmatch(each)):
                    yield folder / each
            if not inside and not is_interface:
                yield folder

    def install(
        self, source: Path, *, force: bool = False, dry_run: bool = False
    ) -> tuple[Path, InstallResult]:
        """Copy a GBS or an AOCX to its place; after an error the storage is as it was."""
        data = _read(source)
        place = self.folder / stored_name(_parsed(source, data))
        if dry_run:
            return place, _result(place, data, force=force)
        with self._writing(self.folder, place.parent):  # a parent would get no mode
            outcome = _result(place, data, force=force)
            if outcome is not InstallResult.UNCHANGED:
                replace_file(place, data, mode=_FILE_MODE)
        return place, outcome

    def remove(self, interface_id: str, function_id: str) -> list[Path]:
        """Remove the files of a function, whatever they hold."""
        if not _is_there(self.folder):
            raise self._missing(interface_id, function_id)
        gone = []
        with self._writing():
            for path, _ in list(self._places(interface_id, function_id)):
                with _failing(path, "removed"):
                    path.unlink()
                gone.append(path)
        if not gone:
            raise self._missing(interface_id, function_id)
        return gone

    def _missing(self, interface_id: str, function_id: str) -> BitstreamMissing:
        return BitstreamMissing(
            f"no bitstream for AFU {function_id} (interface {interface_id}) in {self.folder}"
        )

    def _places(self, interface_id: str, function_id: str) -> Iterator[tuple[Path, BitstreamKind]]:
        """The files of a function, the one that counts first."""
        for kind in (BitstreamKind.GBS, BitstreamKind.AOCX):
            path = self.folder / interface_id / f"{function_id}.{kind}"
            if _is_there(path):
                yield path, kind

    @contextlib.contextmanager
    def _writing(self, *folders: Path) -> Iterator[None]:
        """Make folders and hold the storage's lock."""
        with _failing(self.folder, "written"):
            for each in folders:
                each.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)  # which releases it, as the end of the process does


def _entry(path: Path, interface_id: str, function_id: str, kind: BitstreamKind) -> StoredFile:
    bitstream, problem = None, ""
    try:
        bitstream = _read_named(path, interface_id, function_id, kind)
    except (InvalidBitstream, StorageError) as error:
        problem = str(error)
    return StoredFile(path, interface_id, function_id, kind, bitstream, problem)


def _read_named(path: Path, interface_id: str, function_id: str, kind: BitstreamKind) -> Bitstream:
    """Read a file of the storage, and check that it holds what its place says."""
    bitstream = read_bitstream(path)
    if (bitstream.interface_id, bitstream.function_id, bitstream.kind) != (
        interface_id,
        function_id,
        kind,
    ):
        raise InvalidBitstream(
            f"{path} is not what its name says: it holds another bitstream: a"
            f" {bitstream.kind.upper()} of function {bitstream.function_id} for interface"
            f" {bitstream.interface_id}; remove it, and install what belongs there with: accelbind"
            " bitstream install FILE"
        )
    return bitstream


def _read(path: Path) -> bytes:
    with _failing(path, "read"), open_regular(path, follow_links=True) as file:
        before = os.fstat(file.fileno())
        if before.st_size > MAX_FILE:
            raise InvalidBitstream(
                f"{path} is not a usable bitstream: it has {before.st_size} bytes, and at most"
                f" {MAX_FILE} are read"
            )
        data, now = file.read(MAX_FILE), os.fstat(file.fileno())
        if (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            raise StorageError(f"{path} is being written: try again once it is whole")
        return data


def _is_folder(path: Path) -> bool:
    with _failing(path, "read"):
        return path.is_dir()


def _is_there(path: Path) -> bool:
    """Whether anything has this name, a broken link too; an error if that can't be seen."""
    with _failing(path, "read"), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.lstat()
        return True
    return False


def _result(place: Path, data: bytes, *, force: bool) -> InstallResult:
    """The result of putting a file there."""
    if not _is_there(place):
        return InstallResult.INSTALLED
    with contextlib.suppress(StorageError, InvalidBitstream):
        if _read(place) == data:
            return InstallResult.UNCHANGED
    if not force:
        raise InvalidSettings(
            f"{place} is there already and differs: remove it first, or use --force"
        )
    return InstallResult.REPLACED


def _listed(folder: Path) -> list[str]:
    with _failing(folder, "listed"), contextlib.suppress(FileNotFoundError):
        return sorted(os.listdir(folder))  # noqa: PTH208 - names are all that is needed
    return []


@contextlib.contextmanager
def _failing(path: Path, verb: str) -> Iterator[None]:
    """Translate an OSError into a sentence about what can't be done with a path."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in {errno.EACCES, errno.EPERM}:
            reason = f"{reason} (as user {os.geteuid()})"
        raise StorageError(f"{path} can't be {verb}: {reason}") from error
