"""What `accelbind doctor` checks about a node's files: CDI, bitstreams, state, the OCI hook."""

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from accelbind.doctor.model import AS_ROOT, Line, failed, ok, skipped, unseen, warning
from accelbind.doctor.node import Node
from accelbind.output import count
from plugin.settings import Programming
from services.bitstreams.storage import BitstreamStorage
from services.devices.cdi import FILE_NAME, KIND
from services.devices.model import PluginMode
from services.process.text import plain
from services.process.yaml import BrokenDocument, read_documents

_SUFFIXES: Final = frozenset({".json", ".yaml"})

_READ_SHARE: Final = 0.6
"""Share of the time limit for reading bitstreams, which may be as large as a card's flash."""
_INSTALL: Final = "accelbind bitstream install FILE"


# CDI ----------------------------------------------------------------------------------------------


class _Device(msgspec.Struct):
    name: str


class _CdiFile(msgspec.Struct):
    devices: tuple[_Device, ...] = ()


def check_cdi(node: Node) -> Iterator[Line]:
    """Can runtimes use our CDI file?"""
    options = node.options
    usual = [options.root / "etc/cdi", options.root / "var/run/cdi"]
    folders = [options.cdi_dir] if options.cdi_dir else usual
    found = [path for each in folders if each.is_dir() for path in each.iterdir()]
    files = sorted(path for path in found if path.suffix in _SUFFIXES and path.is_file())
    owner: dict[str, Path] = {}
    ours = 0
    for path in files:
        content = _read_cdi(path)
        if isinstance(content, Line):
            yield content
        elif content is not None:
            ours += 1
            for name in (plain(device.name) for device in content.devices):
                if name in owner:
                    text = f"{path} and {owner[name]} both define {KIND}={name}: runtimes refuse it"
                    yield failed(text, "remove the file that is not accelbind's")
                owner[name] = path
    is_needed = options.cdi or options.programming is Programming.OCI_HOOK
    if is_needed and not any(path.name == FILE_NAME for path in files):
        yield failed(
            f"there is no {FILE_NAME} in {folders[0]}, which --cdi and the OCI hook need",
            "mount the folder into the plugin's pod, which writes the file; see node.plugin",
        )
    elif not ours:
        yield skipped("no CDI file describes our devices")
    else:
        yield ok(f"{count(len(owner), 'device')} in {count(ours, 'file')}")


def _read_cdi(path: Path) -> _CdiFile | Line | None:
    """A CDI file of ours, or what is wrong with a file; None if it is of another kind."""
    todo = "remove it: runtimes ignore it, and its owner writes it again"
    try:
        data = path.read_bytes()
    except PermissionError:  # of another suite: it must not hide what is wrong with ours
        return unseen(f"{path} can't be read by user {os.geteuid()}", AS_ROOT)
    documents = read_documents(data, types=True)  # JSON is YAML too
    document = next(iter(documents), None)
    if isinstance(document, BrokenDocument):
        return failed(f"{path}, line {document.line}: {plain(document.message, 200)}", todo)
    content = document.value if document else None
    if isinstance(content, dict) and content.get("kind") != KIND:
        return None
    try:
        return msgspec.convert(content, _CdiFile)
    except msgspec.ValidationError as error:
        return failed(f"{path} is not a CDI file: {plain(str(error), 200)}", todo)


# Programming --------------------------------------------------------------------------------------


def check_bitstreams(node: Node) -> Iterator[Line]:
    """Can all bitstreams be used?"""
    folder = node.options.bitstreams
    if not folder.exists():
        if node.mode is PluginMode.REGION and node.options.programming is not Programming.NONE:
            yield failed(
                f"{folder} does not exist: nothing can be programmed",
                f"{_INSTALL}, or name the folder with --bitstreams",
            )
        else:
            yield skipped(f"{folder} does not exist, and is not needed")
        return
    until = time.monotonic() + node.seconds * _READ_SHARE
    good, interfaces = 0, set()
    for stored in BitstreamStorage(folder).entries():
        if stored.bitstream is None:
            yield failed(stored.problem, "replace it: accelbind bitstream install --force FILE")
        else:
            good += 1
            interfaces.add(stored.interface_id)
        if time.monotonic() > until:
            yield unseen("there are more", "accelbind bitstream verify reads all of them")
            break
    yield ok(f"{count(good, 'usable bitstream')} in {folder}")
    for card in node.inventory.cards if node.mode is PluginMode.REGION else ():
        interface = card.fme.interface_id if card.fme else ""
        if interface and interface not in interfaces:
            yield warning(
                f"{card.name} has interface {interface}, for which there is no bitstream",
                f"{_INSTALL}; until then the card keeps its function",
            )


def check_state_dir(node: Node) -> Iterator[Line]:
    """Can only root write to the state folder?"""
    path = node.options.state_dir
    if node.mode is not PluginMode.REGION:
        yield skipped("only mode region needs it")
        return
    try:
        found = path.lstat()
    except FileNotFoundError:
        yield ok(f"{path} does not exist yet: the plugin creates it")
        return
    if not stat.S_ISDIR(found.st_mode):
        yield failed(f"{path} is not a directory", "move it away: the plugin creates a folder")
    elif found.st_mode & 0o022:
        yield failed(
            f"others can write to {path} (mode {stat.S_IMODE(found.st_mode):o})",
            f"chmod 755 {path}: locks could be forged",
        )
    elif found.st_uid not in {0, os.geteuid()}:
        yield failed(f"{path} belongs to user {found.st_uid}", f"chown root {path}")
    else:
        yield ok(f"only user {found.st_uid} can write to {path}")


def check_hook(node: Node) -> Iterator[Line]:
    """Can the host start the OCI hook?"""
    options = node.options
    path = options.root / str(options.hook_path).lstrip("/")
    if options.programming is not Programming.OCI_HOOK:
        yield skipped(f"programming is {options.programming}")
    elif options.root != Path("/") and not path.parent.exists():
        yield unseen(f"{path.parent} can't be seen from here", "run the doctor on the host")
    elif not path.is_file():
        yield failed(
            f"{path} does not exist: no container with a region starts",
            "restart the plugin's pod, whose init container copies it (make hook builds it)",
        )
    elif not path.stat().st_mode & stat.S_IXUSR:
        yield failed(f"{path} can't be executed", f"chmod 755 {path}")
    else:
        yield ok(str(path))
