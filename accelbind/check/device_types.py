"""`accelbind check device-types`: which files can be used, and what is wrong with the others."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from accelbind.check.suggest import suggest
from accelbind.flags import with_settings
from accelbind.output import Exit, Output, print_lines, print_result, table_lines
from services.devices.types.load import LoadedTypes, load_types, parse_types, read_type
from services.node.settings import NodeSettings
from services.process.errors import InvalidSettings
from services.process.text import count, plain

Folder = Annotated[
    Path | None,
    typer.Argument(metavar="PATH", help="Folder of device types, or a file.", show_default=False),
]


@with_settings(NodeSettings, "resource_domain", "allow_nodes", "root")
def device_types(
    folder: Folder = None,
    *,
    suggest_for: Annotated[
        str,
        typer.Option(
            "--suggest",
            metavar="DEVICE",
            help="Print a draft for a device of this node: /dev/NAME, a PCI address or a USB path.",
            show_default=False,
        ),
    ] = "",
    settings: NodeSettings,
    output: Output = "text",
) -> None:
    """Find what is wrong with device types.

    Reads each file as the plugin does, without looking at devices, and names the
    findings of a file with the lines of their fields. What fields are together is
    checked once each of them is right. With --suggest it prints a draft of a type
    instead, as sysfs shows the device.

    Exit code 0: no findings; 1: findings; 2: the folder can't be read,
    or a domain can't be one of device types.

    [bold]Examples[/bold]
      accelbind check device-types ./types
      accelbind check device-types ./types -o json
      accelbind check device-types --suggest /dev/hailo0 >types/hailo.yaml
    """
    if bool(suggest_for) == (folder is not None):
        raise InvalidSettings("name either a folder or, with --suggest, a device")
    if folder is None:
        print_lines(suggest(settings.root, suggest_for, settings.allow_nodes))
        return
    domains, allowed = settings.resource_domain, settings.allow_nodes
    if folder.is_file():
        files = {folder.name: read_type(folder)}
        loaded = parse_types(files, domains=domains, allowed=allowed)
    else:
        loaded = load_types(folder, domains=domains, allowed=allowed)
    result = {
        "types": [{"name": each.name, "resource": each.resource} for each in loaded.types],
        "findings": [dataclasses.asdict(each) for each in loaded.problems],
    }
    print_result(output, result, _lines(loaded))
    if loaded.problems:
        raise typer.Exit(Exit.NO)


def _lines(loaded: LoadedTypes) -> Iterator[str]:
    if loaded.types:
        types = ((each.name, each.resource) for each in loaded.types)
        yield from table_lines(("TYPE", "RESOURCE"), types)
    if loaded.problems:
        rows = (
            (plain(each.file), str(each.line or ""), plain(each.field), plain(each.message, 1000))
            for each in loaded.problems
        )
        yield from table_lines(("FILE", "LINE", "FIELD", "WHAT"), rows)
    amount = count(len(loaded.problems), "finding") if loaded.problems else "no findings"
    yield f"{count(len(loaded.types), 'device type')}: {amount}"
