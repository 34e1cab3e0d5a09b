"""What `accelbind doctor` looks at of a node's files: CDI, bitstreams, the hook, the state."""

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from accelbind.doctor.model import Check, Line, failed, ok, skipped, unseen, warning
from accelbind.doctor.node import Node
from plugin.settings import Programming
from services.bitstreams.storage import BitstreamStorage
from services.devices.cdi import FILE_NAME, KIND
from services.devices.model import PluginMode
from services.process.text import plain
from services.process.yaml import BrokenDocument, read_documents

MAX_FILE: Final = 4 * 1024 * 1024
"""Bytes of a CDI file: one about a thousand devices has a fifth of that."""

_SUFFIXES: Final = frozenset({".json", ".yaml"})
"""Of the files that runtimes read; the public plugin writes YAML."""

_READ_SECONDS: Final = 0.6
"""Part of a check's time in which bitstreams are read: each may be as large as a card's flash."""


@dataclass(slots=True)
class NodeFiles:
    """The files of a node.

    Args:
        node: The node.
        seconds: What a check may take.
    """

    node: Node
    seconds: float

    def checks(self) -> list[Check]:
        """All that this module looks at."""
        return [
            Check("node.cdi", "Can runtimes use our CDI file?", self.cdi),
            Check("node.bitstreams", "Can all bitstreams be used?", self.bitstreams, grows=True),
            Check("node.state-dir", "Is the folder of locks root's alone?", self.state_dir),
            Check("node.hook", "Is the OCI hook where the host looks for it?", self.hook),
        ]

    # CDI --------------------------------------------------------------------------------------

    def cdi(self) -> Iterator[Line]:
        """What is wrong with the CDI files of our kind."""
        options = self.node.options
        folders = [options.cdi_dir] if options.cdi_dir else self._cdi_folders()
        files = [path for folder in folders for path in _spec_files(folder)]
        owner: dict[str, Path] = {}
        count = 0
        for path in files:
            content = _read(path)
            if isinstance(content, Line):
                yield content
            elif content.get("kind") == KIND:
                count += 1
                yield from self._file(path, content, owner)
        ours = [path for path in files if path.name == FILE_NAME]
        if not ours and (options.cdi or options.programming is Programming.OCI_HOOK):
            yield failed(
                f"there is no {FILE_NAME} in {folders[0]}, which --cdi and the hook need",
                "see node.plugin: it writes it; the folder must be mounted into its pod",
            )
        elif not count:
            yield skipped("no file describes our devices")
        else:
            yield ok(f"{len(owner)} devices in {count} file{'s' if count != 1 else ''}")

    def _cdi_folders(self) -> list[Path]:
        root = self.node.options.root
        return [root / "etc/cdi", root / "var/run/cdi"]

    def _file(self, path: Path, content: dict[str, Any], owner: dict[str, Path]) -> Iterator[Line]:
        for device in _dicts(content.get("devices")):
            name = str(device.get("name"))
            if name in owner:
                yield failed(
                    f"{path} and {owner[name]} both define {KIND}={plain(name)}: a runtime refuses"
                    " it",
                    "remove the file that isn't accelbind's: another plugin left it",
                )
            owner[name] = path
            edits = device.get("containerEdits")
            edits = edits if isinstance(edits, dict) else {}
            for what in ("deviceNodes", "hooks"):
                for each in _dicts(edits.get(what)):
                    host = str(each.get("hostPath") or each.get("path"))
                    if (place := self._seen(host)) is not None and not os.path.lexists(place):
                        yield failed(
                            f"{path}: {plain(name)} needs {plain(host)}, which isn't there",
                            "containers that get it don't start; see node.hook and"
                            " node.device-nodes",
                        )

    def _seen(self, host: str) -> Path | None:
        """Where we see what the host calls so; None where we don't."""
        options = self.node.options
        before, root = str(options.host_root).rstrip("/"), options.root
        if host.startswith(f"{before}/dev/"):
            return root / host.removeprefix(f"{before}/")
        if root == Path("/") and host.startswith("/"):
            return Path(host)
        return None

    # Bitstreams -------------------------------------------------------------------------------

    def bitstreams(self) -> Iterator[Line]:
        """Each bitstream that can't be used, and each card without any."""
        folder = self.node.options.bitstreams
        region = self.node.mode() is PluginMode.REGION
        if not folder.exists():
            if region and self.node.options.programming is not Programming.NONE:
                yield failed(
                    f"{folder} isn't there: nothing can be programmed",
                    "accelbind bitstream install FILE, or name the folder with --bitstreams",
                )
            else:
                yield skipped(f"{folder} isn't there, and mode {self.node.mode()} needs none")
            return
        until = time.monotonic() + self.seconds * _READ_SECONDS
        good, interfaces = 0, set()
        for stored in BitstreamStorage(folder).entries():
            if stored.bitstream is None:
                yield failed(
                    stored.problem,
                    "install it anew: accelbind bitstream install --force FILE; or remove it",
                )
            else:
                good += 1
                interfaces.add(stored.interface_id)
            if time.monotonic() > until:
                yield unseen("there are more", "accelbind bitstream verify reads all of them")
                break
        yield ok(f"{good} can be used in {folder}")
        if region:
            yield from self._without(interfaces)

    def _without(self, interfaces: set[str]) -> Iterator[Line]:
        for card in self.node.inventory().cards:
            interface = card.fme.interface_id if card.fme else ""
            if interface and interface not in interfaces:
                yield warning(
                    f"{card.name} has interface {interface}, for which no bitstream is there",
                    "it can only do what is in it: accelbind bitstream install FILE",
                )

    # Programming ------------------------------------------------------------------------------

    def state_dir(self) -> Iterator[Line]:
        """Whether anybody but root could forge what stands there."""
        path = self.node.options.state_dir
        if self.node.mode() is not PluginMode.REGION:
            yield skipped("only mode region needs it")
            return
        try:
            found = path.lstat()
        except FileNotFoundError:
            yield ok(f"{path} isn't there yet: it is made when it is needed")
            return
        if not stat.S_ISDIR(found.st_mode):
            yield failed(f"{path} is no folder", "move it away: the plugin makes a folder")
        elif found.st_mode & 0o022:
            yield failed(
                f"{path} may be written to by others (mode {stat.S_IMODE(found.st_mode):o})",
                f"approvals could be forged: chmod 755 {path}",
            )
        elif found.st_uid not in {0, os.geteuid()}:
            yield failed(f"{path} is user {found.st_uid}'s", f"chown root {path}")
        else:
            yield ok(f"{path}, user {found.st_uid}'s alone")

    def hook(self) -> Iterator[Line]:
        """Whether the hook can be started."""
        options = self.node.options
        if options.programming is not Programming.OCI_HOOK:
            yield skipped(f"programming is {options.programming}")
            return
        path = options.root / str(options.hook_path).lstrip("/")
        todo = "the init container of the plugin's DaemonSet copies it there; make hook builds it"
        if options.root != Path("/") and not path.parent.exists():
            yield unseen(f"{path.parent} can't be seen from here", "look on the host itself")
        elif not path.is_file():
            yield failed(f"{path} isn't there: no container with a region starts", todo)
        elif not path.stat().st_mode & stat.S_IXUSR:
            yield failed(f"{path} can't be executed", f"chmod 755 {path}")
        else:
            yield ok(str(path))


def _spec_files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _read(path: Path) -> dict[str, Any] | Line:
    """What a CDI file holds, or what is wrong with it: runtimes leave out a broken one."""
    todo = "runtimes leave it out: remove it, its owner writes it anew"
    try:
        if not path.is_file():  # a FIFO would be waited for
            return failed(f"{path} is no file", todo)
        with path.open("rb") as file:
            data = file.read(MAX_FILE + 1)
    except PermissionError:
        return unseen(f"{path} can't be read by user {os.geteuid()}", "run it as root")
    if len(data) > MAX_FILE:
        return failed(f"{path} has more than {MAX_FILE} bytes", todo)
    for document in read_documents(data, types=True):  # JSON is YAML too
        if isinstance(document, BrokenDocument):
            told = plain(document.message, 200)
            return failed(f"{path}, line {document.line}: {told}", todo)
        if isinstance(document.value, dict):
            return document.value
    return failed(f"{path} is no CDI file", todo)


def _dicts(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
