"""What `accelbind doctor` checks about a node's CDI files."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from accelbind.doctor.model import AS_ROOT, Line, failed, ok, skipped, unseen
from accelbind.doctor.node import Node
from plugin.settings import Programming
from services.devices.cdi import FILES, KIND
from services.process.text import count, plain
from services.process.yaml import BrokenDocument, read_documents

_SUFFIXES: Final = frozenset({".json", ".yaml"})


class _Device(msgspec.Struct):
    name: str


class _CdiFile(msgspec.Struct):
    devices: tuple[_Device, ...] = ()


def check_cdi(node: Node) -> Iterator[Line]:
    """Can runtimes use our CDI file?"""
    options = node.options
    usual = [options.root / "etc/cdi", options.root / "var/run/cdi"]
    folders = [options.cdi_dir] if options.cdi_dir else usual
    entries = [path for each in folders if each.is_dir() for path in each.iterdir()]
    files = sorted(path for path in entries if path.suffix in _SUFFIXES and path.is_file())
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
    if is_needed and not any(path.name == FILES[KIND] for path in files):
        yield failed(
            f"there is no {FILES[KIND]} in {folders[0]}, which --cdi and the OCI hook need",
            "mount the folder into the plugin's pod, which writes the file; see node.plugin",
        )
    elif not ours:
        yield skipped("no CDI file describes our devices")
    else:
        yield ok(f"{count(len(owner), 'device')} in {count(ours, 'file')}")


def _read_cdi(path: Path) -> _CdiFile | Line | None:
    """A CDI file of ours, or what is wrong with one; None if it is of another kind."""
    todo = "remove it: runtimes ignore it, and its owner writes it again"
    try:
        data = path.read_bytes()
    except PermissionError:  # of another suite: it must not hide what is wrong with ours
        return unseen(f"{path} can't be read by user {os.geteuid()}", AS_ROOT)
    document = next(iter(read_documents(data, types=True)), None)  # JSON is YAML too
    if isinstance(document, BrokenDocument):
        return failed(f"{path}, line {document.line}: {plain(document.message, 200)}", todo)
    content = document.value if document else None
    if isinstance(content, dict) and content.get("kind") != KIND:
        return None
    try:
        return msgspec.convert(content, _CdiFile)
    except msgspec.ValidationError as error:
        return failed(f"{path} is not a CDI file: {plain(str(error), 200)}", todo)
