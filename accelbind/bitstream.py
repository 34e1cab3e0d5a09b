"""`accelbind bitstream`: show bitstreams, and manage those of a node."""

from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from accelbind.flags import switch, with_settings
from accelbind.output import Exit, Output, fact_lines, print_result, table_lines
from plugin.settings import PluginSettings
from services.bitstreams.model import Bitstream, BitstreamKind
from services.bitstreams.storage import (
    BitstreamStorage,
    InstallResult,
    StoredFile,
    read_bitstream,
    stored_name,
)
from services.names import AFU_LENGTHS, INTERFACE_LENGTHS, check_id
from services.process.errors import StorageError
from services.process.text import count, plain

Files = Annotated[
    list[Path], typer.Argument(metavar="FILE", help="GBS or AOCX files.", readable=False)
]
on_storage = with_settings(PluginSettings, "bitstreams")
"""Adds `--bitstreams` to a command."""
InterfaceId = Annotated[str, typer.Argument(metavar="INTERFACE", help="Interface id.")]
FunctionId = Annotated[
    str, typer.Argument(metavar="FUNCTION", help="AFU id, or id of an OpenCL program.")
]

app = typer.Typer(no_args_is_help=True)


@app.callback()
def bitstream() -> None:
    """Show bitstreams, and manage those of a node.

    A node has them in one folder, as INTERFACE/AFU.gbs, or as
    INTERFACE/PROGRAM.aocx for OpenCL.

    Exit codes: 0 done, 1 (verify) a bitstream of the node can't be used, 2 a
    bitstream or the request is wrong, or a file can't be read or written.
    """


@app.command()
def info(files: Files, *, output: Output = "text") -> None:
    """Show the content of bitstream files.

    [bold]Example[/bold]
      accelbind bitstream info nlb0.gbs
    """
    described = [{"file": str(path)} | _described(read_bitstream(path)) for path in files]
    pages = [["", *fact_lines(each)] for each in described]
    print_result(output, described, [*chain.from_iterable(pages)][1:])


@app.command()
@on_storage
def install(
    files: Files,
    *,
    force: Annotated[
        bool, switch("--force", help="Replace a different file of the same name.")
    ] = False,
    dry_run: Annotated[
        bool, switch("--dry-run", help="Check the files, and show where they would go.")
    ] = False,
    output: Output = "text",
    settings: PluginSettings,
) -> None:
    """Copy bitstream files to the node's folder.

    Each file is read and checked first. The ids in it decide its place, not its
    own name. A file is written completely or not at all.

    [bold]Example[/bold]
      accelbind bitstream install nlb0.gbs
    """
    for path in files:
        read_bitstream(path)  # nothing is installed if one of them can't be
    storage, done = BitstreamStorage(settings.bitstreams), []
    for path in files:
        place, outcome = storage.install(path, force=force, dry_run=dry_run)
        would = "would-be-" if dry_run and outcome is not InstallResult.UNCHANGED else ""
        done.append({"file": str(path), "path": str(place), "outcome": f"{would}{outcome}"})
    lines = ("{file} → {path} ({outcome})".format_map(each) for each in done)
    print_result(output, done, lines)


@app.command("list")
@on_storage
def list_(*, output: Output = "text", settings: PluginSettings) -> None:
    """Show the bitstreams of this node, and their problems.

    [bold]Example[/bold]
      accelbind bitstream list -o json
    """
    stored, strays = _stored(settings.bitstreams)
    headings = ("INTERFACE", "FUNCTION", "KIND", "NAME", "SIZE", "STATE")
    none = [f"no bitstreams in {settings.bitstreams}"]
    table = table_lines(headings, map(_row, stored)) if stored else none
    print_result(output, _document(stored, strays), [*table, *map(_ignored, strays)])


@app.command()
@on_storage
def verify(*, output: Output = "text", settings: PluginSettings) -> None:
    """Read all bitstreams of this node; exit code 1 if one can't be used.

    Names everything else in the folder too, such as a bitstream that was copied
    there and not installed: it can't be used either. Exit code 2 if there is no
    such folder.

    [bold]Example[/bold]
      accelbind bitstream verify && echo all good
    """
    if not settings.bitstreams.exists():
        raise StorageError(f"{settings.bitstreams} does not exist: see --bitstreams")
    stored, strays = _stored(settings.bitstreams)
    bad = [each for each in stored if not each["ok"]]
    unusable = f", {len(bad)} of them can't be used" if bad else ""
    summary = f"{count(len(stored), 'bitstream')} in {settings.bitstreams}{unusable}"
    problems = [*(each["problem"] for each in bad), *map(_ignored, strays)]
    print_result(output, _document(stored, strays), [*problems, summary])
    if bad or any(_is_bitstream(each) for each in strays):
        raise typer.Exit(Exit.NO)


@app.command()
@on_storage
def remove(
    interface: InterfaceId,
    function: FunctionId,
    *,
    output: Output = "text",
    settings: PluginSettings,
) -> None:
    r"""Remove a function's bitstream from this node.

    [bold]Example[/bold]
      accelbind bitstream remove ce48969398f05f33946d560708be108a \
        d8424dc4a4a3c413f89e433683f9040b
    """
    gone = BitstreamStorage(settings.bitstreams).remove(
        check_id(interface, what="interface id", lengths=INTERFACE_LENGTHS),
        check_id(function, what="AFU id", lengths=AFU_LENGTHS),
    )
    done = [{"path": str(path), "outcome": "removed"} for path in gone]
    print_result(output, done, (f"removed {path}" for path in gone))


def _stored(folder: Path) -> tuple[list[dict[str, Any]], list[Path]]:
    """The bitstreams of a node, and what else is in their folder."""
    storage = BitstreamStorage(folder)
    # One at a time: each may be as large as a card's flash.
    return [_entry(each) for each in storage.entries()], [*storage.strays()]


def _document(stored: list[dict[str, Any]], strays: list[Path]) -> dict[str, Any]:
    return {"items": stored, "ignored": list(map(str, strays))}


def _is_bitstream(path: Path) -> bool:
    return path.suffix in {f".{kind}" for kind in BitstreamKind}


def _ignored(path: Path) -> str:
    shown = plain(str(path), 400)
    advice = "nothing reads it, so it may be moved away"
    if _is_bitstream(path):
        name = plain(path.name, 400)
        advice = f"move it away, and add it from there: accelbind bitstream install {name}"
    return f"ignored: {shown} is not named INTERFACE/FUNCTION.gbs or .aocx; {advice}"


def _entry(stored: StoredFile) -> dict[str, Any]:
    place = {
        "path": str(stored.path),
        "interfaceId": stored.interface_id,
        "functionId": stored.function_id,
        "kind": str(stored.kind),
        "ok": stored.bitstream is not None,
    }
    if stored.bitstream is None:
        return place | {"problem": stored.problem}
    return place | _described(stored.bitstream)


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    ids = (entry["interfaceId"], entry["functionId"], entry["kind"])
    if not entry["ok"]:
        return (*ids, "", "", entry["problem"])
    return (*ids, plain(entry["name"], 40), _size(entry["rawBytes"]), "ok")


def _described(bitstream: Bitstream) -> dict[str, Any]:
    metadata, opencl = bitstream.metadata, bitstream.opencl
    described: dict[str, Any] = {
        "kind": str(bitstream.kind),
        "interfaceId": bitstream.interface_id,
        "functionId": bitstream.function_id,
        "storedAs": stored_name(bitstream),
        "afuId": metadata.afu_id,
        "name": metadata.name,
        "platform": metadata.platform,
        "version": metadata.version,
        "powerWatts": metadata.power,
        "clockHighMhz": metadata.clock_high,
        "clockLowMhz": metadata.clock_low,
        "rawBytes": bitstream.size,
    }
    if opencl is not None:
        described["opencl"] = {
            "programId": opencl.program_id,
            "board": opencl.board,
            "target": opencl.target,
            "version": opencl.version,
        }
    return described


def _size(size: int) -> str:
    return f"{size / 1024 / 1024:.1f} MiB" if size >= 1024 * 1024 else count(size, "byte")
